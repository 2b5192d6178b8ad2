"""A serve script read without running it: the variables it sets, the commands it runs, and what cannot be known.

The text is parsed by tree-sitter's grammar of bash. Statements are followed in order: assignments, exports, arrays,
functions where they are called, files read in where their text is at hand, ``eval`` and ``bash -c`` of known text.
Branches and loops are followed too, everything in them marked with its condition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from pdctl.facts.shell_conditions import both, condition_of_branch, condition_of_list, line_of, short
from pdctl.facts.shell_scope import Scope, Word
from pdctl.facts.shell_words import source_of, text_of, words_of

_DEEPEST = 8  # functions, eval and files read in may nest this far
_PLAIN = ("program", "compound_statement", "do_group", "negated_command", "variable_assignments", "ERROR")
_BRANCHES = (
    "if_statement", "elif_clause", "else_clause", "case_statement", "while_statement", "for_statement",
    "c_style_for_statement",
)  # fmt: skip
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/env"})
_POSITIONAL = ("@", *"123456789")
_READERS = frozenset({"read", "mapfile", "readarray"})


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def parse(text: str) -> Tree:
    """The syntax tree of a script."""
    return _parser().parse(text.encode("utf-8", "replace"))


def read_shell(text: str, files: Mapping[str, str] | None = None) -> Scope:
    """What the script does, in order. ``files``: the texts of files it may read in (``source``), by the path it
    writes; one that is not among them is noted."""
    scope = Scope(files or {})
    tree = parse(text)
    if tree.root_node.has_error:
        scope.note(f"line {_error_line(tree.root_node)} does not parse: what follows may be misread")
    _run(tree.root_node, scope, None)
    return scope


def _error_line(node: Node) -> int:
    """The first line that does not parse."""
    while True:
        inner = next((c for c in node.children if c.has_error or c.is_missing or c.type == "ERROR"), None)
        if inner is None or node.type == "ERROR":
            return line_of(node)
        node = inner


def _run(node: Node, scope: Scope, why: str | None) -> None:
    """One statement, under the condition ``why`` (None: always)."""
    kind = node.type
    if kind in _PLAIN:
        _run_all(node.named_children, scope, why)
    elif kind == "variable_assignment":
        _assign(node, scope, why)
    elif kind == "declaration_command":
        _declare(node, scope, why)
    elif kind == "unset_command":
        for child in node.named_children:
            scope.forget(source_of(child), why)
    elif kind == "command":
        _command(node, scope, why)
    elif kind in ("redirected_statement", "pipeline", "list"):
        _joined(node, scope, why)
    elif kind == "case_statement":
        _case(node, scope, why)
    elif kind in _BRANCHES:
        _branch(node, scope, why)
    elif kind == "subshell":
        held, exported = dict(scope.held), set(scope.exported)
        _run_all(node.named_children, scope, why)
        scope.held, scope.exported = held, exported
    elif kind == "function_definition":
        scope.functions[source_of(node.named_children[0])] = node.named_children[-1]


def _run_all(nodes: list[Node], scope: Scope, why: str | None) -> None:
    for node in nodes:
        _run(node, scope, why)


# --- variables -----------------------------------------------------------------------------------------------------


def _assign(node: Node, scope: Scope, why: str | None) -> str | None:
    """``X=v``, ``X+=v``, ``X=(...)``. Returns the name; elements of arrays (``X[1]=v``) leave the array in doubt."""
    target, value = node.named_children[0], node.named_children[1:]
    name = source_of(target)
    if target.type == "subscript":
        name = name.partition("[")[0]
        scope.doubt(name, f"line {line_of(node)} sets single elements")
        return name
    added = any(c.type == "+=" for c in node.children)
    if value and value[0].type == "array":
        words = tuple(w for child in value[0].named_children if child.type != "comment" for w in words_of(child, scope))
        scope.assign(name, words, why, added)
    else:
        text = text_of(value[0], scope) if value else ""
        itself = re.match(rf"\$(?:{name}|\{{{name}\}})(?=\s|$)", text)  # X="$X --more" of an X in doubt
        if itself and name in scope.held:
            scope.assign(name, text[itself.end() :], why, added=True)
        else:
            scope.assign(name, text, why, added)
    return name


def _declare(node: Node, scope: Scope, why: str | None) -> None:
    """``export``, ``declare``, ``typeset``, ``local``, ``readonly``."""
    options = "".join(source_of(c) for c in node.named_children if source_of(c)[:1] in "-+")
    names = []
    for child in node.named_children:
        if child.type == "variable_assignment":
            names.append(_assign(child, scope, why))
        elif child.type == "variable_name":
            names.append(source_of(child))
    exports = node.children[0].type == "export" or ("x" in options and "+" not in options)
    if exports and "n" in options:
        scope.exported -= {n for n in names if n}
    elif exports:
        scope.exported |= {n for n in names if n}


# --- flow ----------------------------------------------------------------------------------------------------------


def _joined(node: Node, scope: Scope, why: str | None) -> None:
    """Redirections carry one statement; a pipeline runs all of its commands; in a list the right side runs if the left
    one went well (``&&``: taken as certain unless the left is a test) or not (``||``)."""
    if node.type == "redirected_statement":
        body = node.child_by_field_name("body")
        if body is not None:
            _run(body, scope, why)
        return
    if node.type == "pipeline":
        _run_all(node.named_children, scope, why)
        return
    left, right = node.named_children[0], node.named_children[-1]
    _run(left, scope, why)
    _run(right, scope, both(why, condition_of_list(node, left)))


def _case(node: Node, scope: Scope, why: str | None) -> None:
    subject = node.named_children[0]
    for item in node.named_children[1:]:
        patterns = item.children_by_field_name("value")
        within = both(why, f"if {short(subject)} is {'|'.join(source_of(p) for p in patterns)}")
        skip = {p.id for p in patterns}
        _run_all([c for c in item.named_children if c.id not in skip], scope, within)


def _branch(node: Node, scope: Scope, why: str | None) -> None:
    """``if``, ``elif``, ``else``, ``while``, ``until``, ``for``: the body under its condition, other branches beside
    it."""
    conditions = [c for c in node.children_by_field_name("condition") if c.is_named]
    _run_all(conditions, scope, why)
    inside = both(why, condition_of_branch(node, conditions))
    variable = node.child_by_field_name("variable")
    if variable is not None:
        scope.doubt(source_of(variable), f"in the loop of line {line_of(node)}")
    heads = [*conditions, *node.children_by_field_name("variable"), *node.children_by_field_name("value")]
    skip = {head.id for head in heads}
    for child in node.named_children:
        if child.id not in skip:
            _run(child, scope, why if child.type in ("elif_clause", "else_clause") else inside)


# --- commands ------------------------------------------------------------------------------------------------------


def _command(node: Node, scope: Scope, why: str | None) -> None:
    own: dict[str, str] = {}
    words: list[Word] = []
    for child in node.named_children:
        if child.type == "variable_assignment":
            name, value = child.named_children[0], child.named_children[1:]
            own[source_of(name)] = text_of(value[0], scope) if value else ""
        elif not child.type.endswith("redirect"):
            words += words_of(child, scope)
    if not _built_in(words, node, scope, why):
        _perform(words, node, scope, why, own)


def _built_in(words: list[Word], node: Node, scope: Scope, why: str | None) -> bool:
    """What changes the scope itself. Returns whether the command was one of these."""
    name = words[0].text if words else ":"
    if name == ":":
        _defaults(node, scope, why)
    elif name in ("source", "."):
        _source(words[1].text if len(words) > 1 else "", node, scope, why)
    elif name == "set":
        scope.set_options([w.text for w in words[1:]])
    elif name == "shift":
        _shift(scope)
    elif name in _READERS:
        for word in words[1:]:
            if word.text.isidentifier():
                scope.doubt(word.text, f"line {line_of(node)} reads it")
    else:
        return False
    return True


def _defaults(node: Node, scope: Scope, why: str | None) -> None:
    """``: "${X:=5}"`` gives X a value where the caller gave none."""
    stack = list(node.named_children)
    while stack:
        child = stack.pop()
        stack += child.named_children
        if child.type == "expansion" and any(c.type in (":=", "=") for c in child.children):
            name = source_of(child.named_children[0])
            if name not in scope.held:
                scope.assign(name, source_of(child).replace(":=", ":-", 1), why)


def _source(path: str, node: Node, scope: Scope, why: str | None) -> None:
    scope.sources.append(path)
    text = scope.files.get(path)
    if text is None:
        scope.note(f"line {line_of(node)} reads in {path}{f' {why}' if why else ''}, which was not read here")
    else:
        _run_text(text, scope, why)


def _perform(words: list[Word], node: Node, scope: Scope, why: str | None, own: Mapping[str, str]) -> None:
    name = words[0].text
    if name == "eval":
        _run_text(" ".join(w.text for w in words[1:]), scope, why)
        return
    if name in scope.functions:
        _call(name, words[1:], scope, why)
        return
    inner = _inner_script(words)
    if inner is not None:
        _run_text(inner, scope, why)
        return
    scope.record(tuple(words), line_of(node), why, own)


def _inner_script(words: list[Word]) -> str | None:
    """The text of ``bash -c TEXT``, wherever in the command it stands."""
    for index, word in enumerate(words[:-2]):
        option = words[index + 1].text
        if word.text in _SHELLS and option.startswith("-") and option.endswith("c") and not option.startswith("--"):
            return words[index + 2].text
    return None


def _call(name: str, arguments: list[Word], scope: Scope, why: str | None) -> None:
    """A function's body with its own positional parameters, where it is called."""
    if scope.depth >= _DEEPEST:
        return
    before = {key: scope.held.pop(key, None) for key in _POSITIONAL}
    _number(tuple(arguments), scope)
    scope.depth += 1
    _run(scope.functions[name], scope, why)
    scope.depth -= 1
    for key, held in before.items():
        scope.held.pop(key, None)
        if held is not None:
            scope.held[key] = held


def _number(arguments: tuple[Word, ...], scope: Scope) -> None:
    """``$@`` and ``$1`` to ``$9``."""
    scope.assign("@", arguments, None)
    for index, key in enumerate(_POSITIONAL[1:]):
        scope.held.pop(key, None)
        if index < len(arguments):
            scope.assign(key, arguments[index].text, arguments[index].why)


def _shift(scope: Scope) -> None:
    held = scope.held.get("@")
    if held is not None and isinstance(held.value, tuple):
        _number(held.value[1:], scope)


def _run_text(text: str, scope: Scope, why: str | None) -> None:
    if scope.depth >= _DEEPEST:
        return
    scope.depth += 1
    _run(parse(text).root_node, scope, why)
    scope.depth -= 1
