"""A shell script as bytes with its syntax trees: what may be replaced where, and how a value is written there.

Edits are byte ranges of the tree; everything outside of them stays as it is, byte for byte. Scripts inside the script
(``bash -c '...'``, here-documents) are regions of their own: their bytes stand in the file as they are, and what they
must not hold (their own closing quote) is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from pdctl.facts.shell import parse
from pdctl.facts.shell_conditions import condition_of_list, line_of
from pdctl.facts.shell_inner import SHELLS, reads_script, ssh_command
from pdctl.facts.shell_scope import Scope, Word
from pdctl.facts.shell_words import source_of, text_of, words_after_redirects

_DEEPEST = 4
_BARE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BRANCHES = frozenset(
    {
        "if_statement", "elif_clause", "else_clause", "case_item", "while_statement", "for_statement",
        "c_style_for_statement", "function_definition", "subshell", "command_substitution", "process_substitution",
    }
)  # fmt: skip
EXPANSIONS = frozenset(
    {
        "simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion",
        "ansi_c_string", "brace_expression", "translated_string",
    }
)  # fmt: skip


class Refused(Exception):
    """The edit is not made: ``reason`` says why, ``hint`` what would do instead."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Region:
    """A script or a script inside one. ``base`` is where its bytes begin in the file, ``line`` the number of its first
    line, ``forbidden`` the characters that must not be put in; ``is_inline``: it begins in the middle of a line."""

    raw: bytes
    root: Node
    base: int = 0
    line: int = 1
    forbidden: str = ""
    is_inline: bool = False

    def line_of(self, node: Node) -> int:
        return self.line + line_of(node) - 1


def regions_of(raw: bytes) -> list[Region]:
    """The script and every script inside it whose bytes stand in it as they are."""
    out: list[Region] = []
    _add(Region(raw, parse(raw.decode("utf-8", "surrogateescape")).root_node), out, 0)
    return out


def _add(region: Region, out: list[Region], depth: int) -> None:
    out.append(region)
    if depth >= _DEEPEST:
        return
    for node in walk(region.root):
        for start, end, forbidden in _inner(node, region.raw):
            raw = region.raw[start:end]
            inner = Region(
                raw,
                parse(raw.decode("utf-8", "surrogateescape")).root_node,
                region.base + start,
                region.line + region.raw.count(b"\n", 0, start),
                "".join(sorted({*region.forbidden, *forbidden})),
                node.type == "command",
            )
            _add(inner, out, depth + 1)


def walk(node: Node) -> Iterator[Node]:
    """A node and everything below it, in order of the text."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.named_children))


def _inner(node: Node, raw: bytes) -> Iterator[tuple[int, int, str]]:
    """Where a node holds a script as it is: start, end, and what it must not hold."""
    if node.type == "command":
        text = _script_argument(node)
        if text is not None and (text.type == "raw_string" or (is_literal(text) and b"\\" not in (text.text or b""))):
            yield text.start_byte + 1, text.end_byte - 1, "'" if text.type == "raw_string" else '"$`\\'
    elif node.type == "redirected_statement":
        for redirect in (c for c in node.named_children if c.type == "heredoc_redirect"):
            yield from _document(node, redirect)


def _script_argument(node: Node) -> Node | None:
    """The quoted word of ``bash -c TEXT`` or ``ssh HOST TEXT``."""
    words = words_in(node)
    texts = [literal(word) or "" for word in words]
    for index, text in enumerate(texts[:-2]):
        option = texts[index + 1]
        if text in SHELLS and option.startswith("-") and option.endswith("c") and not option.startswith("--"):
            return words[index + 2] if words[index + 2].type in ("raw_string", "string") else None
    over_ssh = ssh_command([Word(text) for text in texts])
    if len(over_ssh) == 1 and words[-1].type in ("raw_string", "string"):
        return words[-1]
    return None


def _document(node: Node, redirect: Node) -> Iterator[tuple[int, int, str]]:
    start = next((c for c in redirect.named_children if c.type == "heredoc_start"), None)
    body = next((c for c in redirect.named_children if c.type == "heredoc_body"), None)
    if start is None or body is None:
        return
    commands = [c for holder in (node, redirect) for c in walk(holder) if c.type == "command" and not _within(c, body)]
    words = [[Word(literal(w) or "") for w in words_in(c)] for c in commands]
    if not any(reads_script(w) or (w and w[0].text in ("cat", "tee", "sudo")) for w in words):
        return
    quoted = source_of(start)[:1] in "'\"\\"
    if quoted or b"\\" not in (body.text or b""):
        yield body.start_byte, body.end_byte, "" if quoted else "$`\\"


def _within(node: Node, other: Node) -> bool:
    return other.start_byte <= node.start_byte and node.end_byte <= other.end_byte


# --- words ---------------------------------------------------------------------------------------------------------


def words_in(command: Node) -> list[Node]:
    """The words of a command, its name first; assignments before it and redirections left out."""
    own = [
        c
        for c in command.named_children
        if c.type not in ("variable_assignment", "comment") and not c.type.endswith("redirect")
    ]
    return [*own, *words_after_redirects(command)]


def is_literal(node: Node) -> bool:
    """Whether a word means the same whatever is set."""
    return not any(inner.type in EXPANSIONS for inner in walk(node))


def literal(node: Node) -> str | None:
    """What a word means, None where that depends on what is set."""
    return text_of(node, Scope()) if is_literal(node) else None


def condition_of(node: Node, beside: Node | None) -> str | None:
    """Under which condition a statement runs that does not also hold for another; None where it always runs with it."""
    shared = set()
    while beside is not None:
        shared.add(beside.id)
        beside = beside.parent
    child: Node = node
    parent = node.parent
    while parent is not None and parent.id not in shared:
        if parent.type in _BRANCHES:
            return f"inside the {parent.type.replace('_', ' ')} of line {line_of(parent)}"
        if parent.type == "list" and child.id == parent.named_children[-1].id:
            why = condition_of_list(parent, parent.named_children[0])
            if why is not None:
                return why
        child, parent = parent, parent.parent
    return None


# --- writing -------------------------------------------------------------------------------------------------------


def quoted(value: str, forbidden: str, style: str = "") -> str:
    """A value as a word of the shell: in the style of what it replaces (``'``, ``"`` or none) where it fits, else in
    the plainest that does. Raises ``Refused`` where none does."""
    if _CONTROL.search(value):
        raise Refused("the value holds control characters", "A value is one line of text.")
    double = '"' + re.sub(r'([\\"$`])', r"\\\1", value) + '"'
    single = f"'{value}'" if "'" not in value else None
    bare = value if _BARE.fullmatch(value) else None
    order = {'"': (double, bare, single), "'": (single, bare, double)}.get(style, (bare, double, single))
    if style == "" and re.search(r'[\\"$`]', value):
        order = (bare, single, double)
    for written in order:
        if written is not None and not any(c in written for c in forbidden):
            return written
    raise Refused(
        f"the value cannot be written where it belongs: that place is quoted itself and must not hold {forbidden!r}"
    )


def spliced(raw: bytes, edits: Sequence[tuple[int, int, str]]) -> bytes:
    """The bytes with ranges replaced."""
    out, at = [], 0
    for start, end, text in sorted(edits):
        out += [raw[at:start], text.encode("utf-8", "surrogateescape")]
        at = end
    return b"".join([*out, raw[at:]])


def indentation(raw: bytes, at: int) -> str:
    """The white space that begins the line of a byte."""
    start = raw.rfind(b"\n", 0, at) + 1
    line = raw[start:at]
    return line[: len(line) - len(line.lstrip(b" \t"))].decode()
