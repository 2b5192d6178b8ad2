"""A serve script read without running it: the variables it sets, the commands it runs, and what cannot be known.

The text is parsed by tree-sitter's grammar of bash. Statements are followed in order: assignments, exports, arrays,
functions where they are called, files read in or run where their text is at hand, ``eval``, ``bash -c`` and
here-documents of known text.
Branches and loops are followed too, everything in them marked with its condition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from pdctl.facts.flags import launch_at
from pdctl.facts.shell_conditions import both, condition_of_branch, condition_of_list, line_of, short
from pdctl.facts.shell_inner import (
    Inner,
    document_of,
    environment_of,
    inner_of,
    is_elsewhere,
    reads_script,
    written_to,
)
from pdctl.facts.shell_scope import Held, Scope, Word
from pdctl.facts.shell_words import source_of, text_of, words_after_redirects, words_of

_DEEPEST = 8  # functions, eval and files read in may nest this far
_PLAIN = ("program", "compound_statement", "do_group", "negated_command", "variable_assignments", "ERROR")
_BRANCHES = (
    "if_statement", "elif_clause", "else_clause", "case_statement", "while_statement", "for_statement",
    "c_style_for_statement",
)  # fmt: skip
_ESCAPED_BLANK = re.compile(r"(?<!\\)[\s=(]\\[ \t]")
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
    blank = next(
        (found for found in _ESCAPED_BLANK.finditer(text) if not _is_quoted(tree, text, found.end() - 1)), None
    )
    if blank:
        line = text.count("\n", 0, blank.start()) + 1
        scope.note(f"line {line} begins a word with an escaped blank, which may be misread: put it in quotes")
    _run(tree.root_node, scope, None)
    return scope


def _is_quoted(tree: Tree, text: str, at: int) -> bool:
    """Whether the character stands in single quotes or in a comment, where a blank is read as what it is."""
    place = len(text[:at].encode())
    node = tree.root_node.descendant_for_byte_range(place, place + 1)
    return node is not None and node.type in ("raw_string", "comment")


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
        for redirect in (c for c in node.named_children if c.type == "heredoc_redirect"):
            _document(node, redirect, scope, why)
        return
    if node.type == "pipeline":
        _run_all(node.named_children, scope, why)
        return
    left, right = node.named_children[0], node.named_children[-1]
    _run(left, scope, why)
    _run(right, scope, both(why, condition_of_list(node, left)))


def _document(node: Node, redirect: Node, scope: Scope, why: str | None) -> None:
    """A here-document that a shell runs, or that is kept in a file which may be run later."""
    consumers = [c for c in (node.child_by_field_name("body"), *redirect.named_children) if c is not None]
    commands = [c for holder in consumers for c in ([holder] if holder.type == "command" else holder.named_children)]
    for command in (c for c in commands if c.type == "command"):
        words = [w for child in command.named_children for w in words_of(child, scope)]
        if reads_script(words):
            text = document_of(redirect, scope)
            _inner(Inner(text, None, (), is_elsewhere(words)), environment_of(words), scope, why)
            return
    kept = written_to(node, redirect, scope)
    if kept is not None:
        scope.written[kept] = document_of(redirect, scope)
    _run_all([c for c in redirect.named_children if c.type in ("command", "pipeline")], scope, why)


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
    for child in words_after_redirects(node):
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
    text = scope.text_of(path)
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
    inner = inner_of(words)
    if inner is not None and inner.path is not None and launch_at([w.text for w in words]) is None:
        text = scope.text_of(inner.path)
        if text is not None:
            inner = inner._replace(text=text)
        else:
            scope.note(f"line {line_of(node)} runs {inner.path}{f' {why}' if why else ''}, which was not read here")
    if inner is not None and inner.text is not None:
        _inner(inner, {**own, **environment_of(words)}, scope, why)
        return
    scope.record(tuple(words), line_of(node), why, own)


def _inner(inner: Inner, own: Mapping[str, str], scope: Scope, why: str | None) -> None:
    """A script run by a shell of its own: it sees what is exported here, or nothing of it on another machine."""
    if scope.depth >= _DEEPEST or inner.text is None:
        return
    before = scope.held, scope.exported, scope.exports_all, scope.outer
    seen = set() if inner.elsewhere else scope.exported
    scope.outer = {**scope.outer, **{n: h for n, h in scope.held.items() if n not in _POSITIONAL}}
    scope.held = {n: h for n, h in scope.held.items() if n in seen} | {n: Held(v) for n, v in own.items()}
    scope.exported = set(seen) | own.keys()
    scope.exports_all = False
    _number(inner.arguments, scope)
    _run_text(inner.text, scope, why)
    scope.held, scope.exported, scope.exports_all, scope.outer = before


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
