"""One variable of a script: given a value, added, or taken out, where the script itself assigns it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from pdctl.facts.edit_launch import Launch, assigned, has_value
from pdctl.facts.edit_text import Refused, Region, condition_of, indentation, literal, quoted, walk, words_in
from pdctl.facts.shell_inner import ELSEWHERE
from pdctl.facts.shell_words import source_of

Span = tuple[int, int, str]
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_MPI = frozenset({"mpirun", "mpiexec", "orterun"})
_PAIRS = ("-e", "--env", "-x")
_END_OF_STATEMENT = re.compile(rb"[ \t]*;[ \t]*")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a variable is given a value: an assignment, or a word ``NAME=value`` after ``-e`` or ``env``."""

    region: Region
    node: Node
    is_word: bool = False

    @property
    def line(self) -> int:
        return self.region.line_of(self.node)


def check_name(name: str) -> None:
    """Raises ``Refused`` for what is no variable's name."""
    if not _NAME.fullmatch(name):
        raise Refused(f"{name!r} is no name of a variable")


def places_of(regions: Sequence[Region], name: str) -> list[Place]:
    """Everywhere the script assigns the variable."""
    out: list[Place] = []
    for region in regions:
        for node in walk(region.root):
            if node.type == "variable_assignment" and _target(node) == name:
                out.append(Place(region, node))
            elif node.type == "command":
                out += [Place(region, word, True) for word in _pair_words(node) if _pair_name(word) == name]
    return out


def _target(node: Node) -> str:
    return assigned(node) or source_of(node.named_children[0]).partition("[")[0]


def _pair_words(command: Node) -> list[Node]:
    """Words that set a variable for what the command starts: after ``-e``, ``--env``, ``-x`` or ``env``."""
    out, by_env, before = [], False, ""
    for word in words_in(command):
        text = source_of(word).strip("\"'")
        is_pair = bool(re.match(r"(?:--env=)?[A-Za-z_]\w*=", text))
        if is_pair and (by_env or before in _PAIRS or text.startswith("--env=")):
            out.append(word)
        by_env = text == "env" or text.endswith("/env") or (by_env and (is_pair or text.startswith("-")))
        before = text
    return out


def _pair_name(word: Node) -> str:
    return source_of(word).strip("\"'").removeprefix("--env=").partition("=")[0]


# --- set -----------------------------------------------------------------------------------------------------------


def value_edit(place: Place, name: str, value: str, launch: Launch | None) -> list[Span]:
    """The replacement of one assignment's value. Raises ``Refused`` where it cannot be made safely."""
    node, region = place.node, place.region
    why = _why_conditional(place, launch)
    if why is not None:
        raise Refused(f"{name} is built by a condition: line {place.line} is {why}", "Edit the script by hand.")
    if place.is_word:
        return _word_edit(place, name, value)
    if node.named_children[0].type == "subscript" or _is_array(node):
        raise Refused(f"{name} is an array (line {place.line})", "Edit the script by hand, or set one option: flag.")
    if any(c.type == "+=" for c in node.children):
        raise Refused(f"{name} is put together from pieces (line {place.line} adds to it)", "Edit the script by hand.")
    if not has_value(node):
        at = region.base + node.end_byte
        return [(at, at, quoted(value, region.forbidden) if value else "")]
    old = node.named_children[1]
    style = source_of(old)[:1] if old.type in ("string", "raw_string") else ""
    written = "" if not value and not style else quoted(value, region.forbidden, style)
    return [(region.base + old.start_byte, region.base + old.end_byte, written)]


def _word_edit(place: Place, name: str, value: str) -> list[Span]:
    node, region = place.node, place.region
    text = source_of(node)
    quote = text[0] if text[0] in "\"'" else ""
    cut = text.index(f"{name}=") + len(name) + 1
    head = text[:cut].lstrip("\"'")
    written = quoted(head + value, region.forbidden, quote) if quote else _plain_pair(head, value, text[cut:], region)
    return [(region.base + node.start_byte, region.base + node.end_byte, written)]


def _plain_pair(head: str, value: str, old: str, region: Region) -> str:
    style = old[:1] if old[:1] in ("'", '"') else ""
    return head + (quoted(value, region.forbidden, style) if value else "")


def _is_array(node: Node) -> bool:
    return has_value(node) and node.named_children[1].type == "array"


def _why_conditional(place: Place, launch: Launch | None) -> str | None:
    beside = launch.node if launch is not None and launch.region.base == place.region.base else None
    return condition_of(place.node, beside)


# --- add -----------------------------------------------------------------------------------------------------------


def insertion(regions: Sequence[Region], name: str, value: str, launch: Launch | None) -> list[Span]:
    """A new assignment: for the launch command's own environment where it runs elsewhere, else as an ``export`` on a
    line of its own before it. Raises ``Refused``."""
    if launch is None:
        return _at_end(regions[0], name, value)
    _refuse_sudo(launch, name)
    started = next((w for w in words_in(launch.node) if _program(w) in ELSEWHERE | _MPI), None)
    if started is not None:
        return _pair(launch, started, name, value)
    return _export(launch, name, value)


def _refuse_sudo(launch: Launch, name: str) -> None:
    texts = [t.text or "" for t in launch.tokens[: launch.first]]
    keeps = any(text == "-E" or text.startswith("--preserve-env") for text in texts)
    if "sudo" in texts and not keeps:
        raise Refused(f"the engine is started through sudo (line {launch.line}), which does not pass {name} on")


def _program(word: Node) -> str:
    return (literal(word) or "").rpartition("/")[2]


def _pair(launch: Launch, started: Node, name: str, value: str) -> list[Span]:
    """``-e NAME=value`` for a container, ``-x`` for mpirun: after the last of its kind, else right after its verb."""
    program, region = _program(started), launch.region
    if program not in _CONTAINERS | _MPI:
        raise Refused(f"the engine is started through {program} (line {launch.line}), which does not pass {name} on")
    words = words_in(launch.node)
    option = "-x" if program in _MPI else "-e"
    texts = [literal(w) or source_of(w) for w in words]
    known = [i for i, text in enumerate(texts[:-1]) if text in _PAIRS and "=" in texts[i + 1]]
    verbs = [i for i, text in enumerate(texts) if text in ("run", "exec", "create")] or [words.index(started)]
    written = f"{option} {name}={quoted(value, region.forbidden) if value else ''}"
    if not known:
        at = region.base + words[words.index(started) if program in _MPI else verbs[0]].end_byte
        return [(at, at, f" {written}")]
    start, end = words[known[-1]].start_byte, words[known[-1] + 1].end_byte
    line_start = region.raw.rfind(b"\n", 0, start) + 1
    if not region.raw[line_start:start].strip():
        return [(region.base + end, region.base + end, f" \\\n{indentation(region.raw, start)}{written}")]
    return [(region.base + end, region.base + end, f" {written}")]


def _export(launch: Launch, name: str, value: str) -> list[Span]:
    """After the last assignment that stands on a line of its own before the launch command, else right before it."""
    region = launch.region
    text = f"export {name}={quoted(value, region.forbidden) if value else ''}"
    statement = _outermost(launch.node)
    before = [n for n in region.root.named_children if n.end_byte <= statement.start_byte and _sets(n)]
    lines = _whole_lines(region.raw, before[-1]) if before else None
    if lines is not None:
        at = region.base + lines[1]
        return [(at, at, f"{indentation(region.raw, before[-1].start_byte)}{text}\n")]
    line_start = region.raw.rfind(b"\n", 0, statement.start_byte) + 1
    if region.raw[line_start : statement.start_byte].strip() or (region.is_inline and line_start == 0):
        at = region.base + statement.start_byte
        return [(at, at, f"{text}; ")]
    at = region.base + line_start
    return [(at, at, f"{indentation(region.raw, statement.start_byte)}{text}\n")]


def _outermost(node: Node) -> Node:
    while node.parent is not None and node.parent.type != "program":
        node = node.parent
    return node


def _sets(node: Node) -> bool:
    is_export = node.type == "declaration_command" and source_of(node).startswith("export")
    return is_export and any(c.type == "variable_assignment" for c in node.named_children)


def _at_end(region: Region, name: str, value: str) -> list[Span]:
    """A file without launch command, as environments are kept: in the form of the assignments it has."""
    kinds = [n.type for n in region.root.named_children if n.type in ("variable_assignment", "declaration_command")]
    export = "" if kinds and kinds[-1] == "variable_assignment" else "export "
    at = len(region.raw)
    text = f"{export}{name}={quoted(value, '') if value else ''}"
    return [(at, at, f"{text}\n" if not region.raw or region.raw.endswith(b"\n") else f"\n{text}")]


# --- take out ------------------------------------------------------------------------------------------------------


def removal(regions: Sequence[Region], place: Place, name: str, launch: Launch | None) -> list[Span]:
    """The range an assignment takes with what parts it from its neighbours. Raises ``Refused``."""
    why = _why_conditional(place, launch)
    if why is not None:
        raise Refused(f"{name} is built by a condition: line {place.line} is {why}", "Edit the script by hand.")
    _refuse_if_used(regions, place, name)
    base = place.region.base
    start, end = _pair_range(place) if place.is_word else _range(place.region.raw, place.node)
    return [(base + start, base + end, "")]


def _refuse_if_used(regions: Sequence[Region], place: Place, name: str) -> None:
    for region in regions:
        for node in walk(region.root):
            if node.type != "variable_name" or source_of(node) != name or node.parent is None:
                continue
            if region.base == place.region.base and place.node.start_byte <= node.start_byte < place.node.end_byte:
                continue  # its own default: X=${X:-1}
            if node.parent.type in ("simple_expansion", "expansion", "subscript"):
                line = region.line_of(node)
                raise Refused(f"{name} is still used in line {line}", f"Give it an empty value: set {name}=")


def _pair_range(place: Place) -> tuple[int, int]:
    """``-e NAME=value`` with the option, from the end of the word before it."""
    words = words_in(place.node.parent) if place.node.parent is not None else []
    index = next(i for i, w in enumerate(words) if w.id == place.node.id)
    first = index - 1 if source_of(words[index - 1]) in _PAIRS else index
    return (words[first - 1].end_byte if first else words[first].start_byte), place.node.end_byte


def _range(raw: bytes, node: Node) -> tuple[int, int]:
    """The bytes to take out for one assignment."""
    parent = node.parent
    assert parent is not None
    siblings = [c for c in parent.named_children if c.type in ("variable_assignment", "variable_name")]
    if parent.type == "command":
        return node.start_byte, _next_child(parent, node).start_byte
    if parent.type == "variable_assignments" or (parent.type == "declaration_command" and len(siblings) > 1):
        return _among(parent, node)
    return _statement_range(raw, parent if parent.type == "declaration_command" else node)


def _next_child(parent: Node, node: Node) -> Node:
    following = [c for c in parent.named_children if c.start_byte >= node.end_byte]
    return following[0]


def _among(parent: Node, node: Node) -> tuple[int, int]:
    """One of several in ``export A=1 B=2``: with the space before it, or after it where it is the first of a line."""
    before = [c for c in parent.children if c.end_byte <= node.start_byte]
    if before:
        return before[-1].end_byte, node.end_byte
    return node.start_byte, _next_child(parent, node).start_byte


def _statement_range(raw: bytes, statement: Node) -> tuple[int, int]:
    lines = _whole_lines(raw, statement)
    if lines is not None:
        return lines
    parent = statement.parent
    if parent is not None and parent.type == "list":
        left, right = parent.named_children[0], parent.named_children[-1]
        if statement.id == left.id:
            return left.start_byte, right.start_byte
        return left.end_byte, right.end_byte
    after = _END_OF_STATEMENT.match(raw, statement.end_byte)
    if after and raw[after.end() : after.end() + 1] not in (b"", b"\n", b"#"):
        return statement.start_byte, after.end()
    before = raw[: statement.start_byte].rstrip(b" \t")
    if before.endswith(b";"):
        return len(before) - 1, statement.end_byte
    return statement.start_byte, statement.end_byte


def _whole_lines(raw: bytes, node: Node) -> tuple[int, int] | None:
    """The lines of a statement that has them for itself, None where something else stands there."""
    start = raw.rfind(b"\n", 0, node.start_byte) + 1
    end = raw.find(b"\n", node.end_byte)
    last = end if end >= 0 else len(raw)
    if raw[start : node.start_byte].strip() or raw[node.end_byte : last].strip():
        return None
    return (start, end + 1) if end >= 0 else (max(0, start - 1), last)
