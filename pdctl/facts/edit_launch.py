"""The launch command of a script as its syntax tree has it, and what its words come from.

A word may stand in the command itself, in an array (``"${ARGS[@]}"``) or in a variable that the shell splits
(``$COMMON``): each is a token with the bytes it is written in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tree_sitter import Node

from pdctl.facts.edit_text import EXPANSIONS, Refused, Region, condition_of, literal, walk, words_in
from pdctl.facts.flags import ROUTER, launch_at, read_flags
from pdctl.facts.shell_words import source_of
from pdctl.model.cluster import Instance, Role

_ARRAY = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_PIECE = re.compile(rb"[^\s\\]+")
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Token:
    """One word. ``text`` is None where it cannot be known; ``made_of`` is then how it is written. ``start`` and ``end``
    are bytes of the file, ``gap`` where what stands before it ended. ``holder`` is "" for the command itself, else the
    variable it stands in; ``is_split`` where that is text the shell splits. ``why``: only under that condition."""

    text: str | None
    start: int
    end: int
    gap: int
    line: int
    region: Region
    holder: str = ""
    is_split: bool = False
    why: str | None = None
    made_of: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch command: its node, all its tokens, which program it starts and the first token of its arguments;
    ``assigned`` are the variables that the script gives a value anywhere."""

    region: Region
    node: Node
    tokens: tuple[Token, ...]
    launcher: str
    first: int
    assigned: frozenset[str] = frozenset()

    @property
    def arguments(self) -> tuple[Token, ...]:
        return self.tokens[self.first :]

    @property
    def line(self) -> int:
        return self.region.line_of(self.node)


def launch_of(regions: Sequence[Region], instance: Instance | None) -> Launch:
    """The launch command that is the instance's. Raises ``Refused`` where there is none, or several fit alike."""
    names = frozenset(assigned(n) for r in regions for n in walk(r.root) if n.type == "variable_assignment")
    found = [replace(launch, assigned=names) for region in regions for launch in _launches(region, regions)]
    if not found:
        raise Refused("no launch command was found in it", "Flags are edited where the script names them itself.")
    best = max(_fit(launch, instance) for launch in found)
    fitting = [launch for launch in found if _fit(launch, instance) == best]
    if len(fitting) > 1:
        lines = ", ".join(str(launch.line) for launch in fitting)
        raise Refused(f"it has {len(fitting)} launch commands that fit alike (lines {lines})")
    return fitting[0]


def _launches(region: Region, regions: Sequence[Region]) -> Iterator[Launch]:
    for node in walk(region.root):
        if node.type == "command" and node.parent is not None and node.parent.type != "command_substitution":
            tokens = tuple(_tokens(node, region, regions))
            found = launch_at([t.text if t.text is not None else "\0" for t in tokens])
            if found is not None and not _is_quoted_script(tokens, found[1]):
                yield Launch(region, node, tokens, *found)


def _is_quoted_script(tokens: Sequence[Token], first: int) -> bool:
    return first > 0 and " " in (tokens[first - 1].text or "")


def _fit(launch: Launch, instance: Instance | None) -> int:
    """As the reader of scripts has it: by role, then by port."""
    if instance is None:
        return 0
    words = [t.text for t in launch.arguments if t.text is not None]
    flags = read_flags(words, launch.launcher)
    role = Role.ROUTER if launch.launcher == ROUTER else flags.get("--disaggregation-mode")
    port = urlsplit(instance.url).port if instance.url else None
    return 2 * (role == instance.role) + (port is not None and flags.get("--port") == str(port))


# --- tokens --------------------------------------------------------------------------------------------------------


def _tokens(command: Node, region: Region, regions: Sequence[Region]) -> Iterator[Token]:
    words = words_in(command)
    taken = [node.end_byte for node in (*command.named_children, *_beside(command))]
    for word in words:
        before = max((end for end in taken if end <= word.start_byte), default=command.start_byte)
        yield from _of_word(word, before, region, regions, command, 0)


def _beside(command: Node) -> Iterator[Node]:
    """Redirections of a command with the words in them: what may stand between two of its words."""
    holder = command.parent
    if holder is not None and holder.type == "redirected_statement":
        for redirect in (c for c in holder.named_children if c.type.endswith("redirect")):
            yield from (c for c in redirect.named_children if c.type != "heredoc_body")


def _of_word(
    word: Node, before: int, region: Region, regions: Sequence[Region], command: Node, depth: int
) -> Iterator[Token]:
    """The tokens one word makes: itself, the elements of its array, the pieces of its variable."""
    token = Token(
        literal(word), region.base + word.start_byte, region.base + word.end_byte, region.base + before,
        region.line_of(word), region, made_of=source_of(word),
    )  # fmt: skip
    inside = source_of(word).strip('"') if word.type == "string" else source_of(word)
    array, variable = _ARRAY.fullmatch(inside), _VARIABLE.fullmatch(source_of(word))
    if token.text is None and depth < _DEEPEST:
        found = array or variable
        definitions = _definitions(str(found[1]), region, regions) if found else []
        if definitions and all(_holds_words(node, array is not None) for node, _ in definitions):
            for node, home in definitions:
                yield from _defined(node, home, regions, command, depth + 1)
            return
    yield token


def _definitions(name: str, region: Region, regions: Sequence[Region]) -> list[tuple[Node, Region]]:
    """Assignments to a variable: in the same script, else in one around it."""
    for home in (region, *(r for r in regions if r is not region)):
        found = [n for n in walk(home.root) if n.type == "variable_assignment" and assigned(n) == name and has_value(n)]
        if found:
            return [(node, home) for node in found]
    return []


def assigned(node: Node) -> str:
    """The variable an assignment sets, "" for an element of an array."""
    target = node.named_children[0]
    return source_of(target) if target.type == "variable_name" else ""


def has_value(node: Node) -> bool:
    return len(node.named_children) > 1


def _value(node: Node) -> Node:
    return node.named_children[1]


def _holds_words(node: Node, is_array: bool) -> bool:
    """Whether an assignment's value is an array (for ``"${ARGS[@]}"``), or a text of options (for ``$COMMON``) and not
    the value of one."""
    value = _value(node)
    if is_array or value.type == "array":
        return is_array and value.type == "array"
    text = source_of(value).strip("\"'").strip()
    return not text or text.startswith(("-", "$"))


def _defined(node: Node, home: Region, regions: Sequence[Region], command: Node, depth: int) -> Iterator[Token]:
    """The tokens of one assignment's value, marked with the variable and the condition it stands under."""
    why = condition_of(node, command)
    value = _value(node)
    made = _of_array(value, home, regions, command, depth) if value.type == "array" else _of_text(value, home)
    for token in made:
        yield replace(token, holder=token.holder or assigned(node), why=token.why or why)


def _of_array(value: Node, home: Region, regions: Sequence[Region], command: Node, depth: int) -> Iterator[Token]:
    before = value.start_byte + 1
    for child in value.named_children:
        if child.type != "comment":
            yield from _of_word(child, before, home, regions, command, depth)
        before = child.end_byte


def _of_text(value: Node, home: Region) -> Iterator[Token]:
    """The pieces of a text that the shell splits; a piece with an expansion in it cannot be known."""
    quotes = 1 if value.type in ("string", "raw_string") else 0
    start, end = value.start_byte + quotes, value.end_byte - quotes
    unknown = [(n.start_byte, n.end_byte) for n in walk(value) if n.type in EXPANSIONS]
    masked = bytearray(home.raw[start:end])
    for at, until in unknown:
        masked[at - start : until - start] = b"\1" * (until - at)
    before = start
    for piece in _PIECE.finditer(bytes(masked)):
        first, last = start + piece.start(), start + piece.end()
        text = home.raw[first:last].decode("utf-8", "surrogateescape")
        line = home.line + home.raw.count(b"\n", 0, first)
        known = b"\1" not in piece[0] and not (set(text) & set("'\""))
        yield Token(
            text if known else None, home.base + first, home.base + last, home.base + before, line, home,
            is_split=True, made_of=text,
        )  # fmt: skip
        before = last
