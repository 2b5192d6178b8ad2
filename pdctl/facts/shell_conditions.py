"""Under which condition a statement of a shell script runs, in words."""

from __future__ import annotations

from tree_sitter import Node

from pdctl.facts.shell_words import source_of

_ENDLESS = frozenset({"true", ":", "((1))", "[ 1 ]", "[[ 1 ]]", "[ true ]", "[[ true ]]"})


def line_of(node: Node) -> int:
    """The line a node begins on, the first being 1."""
    return node.start_point[0] + 1


def condition_of_list(node: Node, left: Node) -> str | None:
    """Why the right side of ``&&`` or ``||`` runs; None where it is taken as certain."""
    operator = next((c.type for c in node.children if c.type in ("&&", "||")), "&&")
    last = left.named_children[-1] if left.type == "list" else left
    if operator == "||":
        return f"unless {short(last)}"
    is_test = last.type in ("test_command", "negated_command") or _first_word(last) in ("test", "[", "grep", "command")
    return f"if {short(last)}" if is_test else None


def _first_word(node: Node) -> str:
    return source_of(node.named_children[0]) if node.type == "command" and node.named_children else ""


def condition_of_branch(node: Node, conditions: list[Node]) -> str | None:
    """Why the body runs; None for a loop without end, whose body runs at once."""
    if node.type == "else_clause":
        return f"else of line {line_of(node.parent) if node.parent else line_of(node)}"
    if node.type in ("for_statement", "c_style_for_statement"):
        return f"in the loop of line {line_of(node)}"
    condition = "; ".join(short(c) for c in conditions)
    if node.type == "while_statement":
        until = node.children[0].type == "until"
        endless = condition == "false" if until else condition in _ENDLESS
        return None if endless else f"{'until' if until else 'while'} {condition}"
    return f"if {condition}"


def both(outer: str | None, inner: str | None) -> str | None:
    """Two conditions as one."""
    return " and ".join(w for w in (outer, inner) if w) or None


def short(node: Node, most: int = 60) -> str:
    """A node's source on one line."""
    text = " ".join(source_of(node).split())
    return text if len(text) <= most else text[: most - 2] + ".."
