"""Words of a shell script with what they stand for: quotes taken off, known variables put in.

What cannot be known without running the script (``$1``, ``$(...)``, a default ``${X:-y}`` of a variable the caller may
set) stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from pdctl.facts.shell_scope import Held, Scope, Word

_ESCAPE = re.compile(r"\\(\n|.)", re.S)
_QUOTED_ESCAPE = re.compile(r'\\([\\"$`]|\n)')
_BRACES = re.compile(r"\$\{([A-Za-z_]\w*|\d+)(\[[^\]]*\])?(:?[-=+?])?", re.S)
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "e": "\x1b", "a": "\a", "0": "\0"}
_NAME = re.compile(r"[A-Za-z_]\w*|\d|@")


class Piece(NamedTuple):
    """Part of a word: text, or the words of an array (``"${ARGS[@]}"``); ``splits`` where the shell splits it."""

    text: str
    splits: bool = False
    words: tuple[Word, ...] | None = None


def source_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def words_after_redirects(command: Node) -> list[Node]:
    """Words of a command that stand after a redirection (``run --a 1 2>log --b``): the grammar hangs them there."""
    holder = command.parent
    if holder is None or holder.type != "redirected_statement":
        return []
    out: list[Node] = []
    for redirect in (c for c in holder.named_children if c.type == "file_redirect"):
        out += [c for c in redirect.named_children if c.type != "file_descriptor"][1:]
    return out


def words_of(node: Node, scope: Scope) -> list[Word]:
    """The words one node of a command makes: one, several (an array, a split variable) or none (an empty variable)."""
    fragments = _flag_fragments(node, scope)
    if fragments is not None:
        return fragments
    out: list[Word] = []
    current: str | None = None
    for piece in pieces_of(node, scope):
        if piece.words is not None:
            out += [*([Word(current)] if current else []), *piece.words]
            current = None
        elif piece.splits:
            parts = piece.text.split()
            for index, part in enumerate(parts):
                if index or (current is not None and piece.text[:1].isspace()):
                    out += [Word(current)] if current is not None else []
                    current = part
                else:
                    current = (current or "") + part
        else:
            current = (current or "") + piece.text
    return out if current is None else [*out, Word(current)]


def text_of(node: Node, scope: Scope) -> str:
    """A value that is not split (the right side of an assignment, a quoted string)."""
    return "".join(p.text if p.words is None else " ".join(w.text for w in p.words) for p in pieces_of(node, scope))


def pieces_of(node: Node, scope: Scope, quoted: bool = False) -> Iterator[Piece]:
    kind, text = node.type, source_of(node)
    if kind == "raw_string":
        yield Piece(text[1:-1])
    elif kind == "ansi_c_string":
        yield Piece(_ESCAPE.sub(lambda m: _ANSI.get(m[1], m[0]), text[2:-1]))
    elif kind in ("string", "translated_string"):
        yield from _string(node, scope)
    elif kind in ("concatenation", "command_name"):
        for child in node.children:
            yield from pieces_of(child, scope, quoted)
    elif kind == "simple_expansion":
        yield _variable(text[1:], text, scope, quoted)
    elif kind == "expansion":
        yield _braces(node, text, scope, quoted)
    elif kind in ("command_substitution", "arithmetic_expansion", "process_substitution"):
        yield Piece(_ESCAPE.sub(lambda m: " " if m[1] == "\n" else m[0], text))
    else:
        yield Piece(_ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], text))


def _string(node: Node, scope: Scope) -> Iterator[Piece]:
    """A double-quoted string: its parts, and the text between them that the grammar gives no node."""
    if node.type == "translated_string":
        node = node.children[-1]
    raw = node.text or b""
    at, end = node.start_byte + 1, node.end_byte - 1
    parts = [c for c in node.children if c.type not in ('"', "string_content")]
    for part in parts:
        if part.start_byte > at:
            yield Piece(_unquoted(raw[at - node.start_byte : part.start_byte - node.start_byte]))
        yield from pieces_of(part, scope, quoted=True)
        at = part.end_byte
    if end > at or not parts:  # "" is a word, what stands around "${ARGS[@]}" is none
        yield Piece(_unquoted(raw[at - node.start_byte : end - node.start_byte]))


def _unquoted(raw: bytes) -> str:
    return _QUOTED_ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], raw.decode("utf-8", "replace"))


def _variable(name: str, written: str, scope: Scope, quoted: bool) -> Piece:
    held = scope.held.get(name) if _NAME.fullmatch(name) else None
    if name == "@" and held is not None and isinstance(held.value, tuple):
        return Piece("", words=held.value)
    if held is None or held.text is None:
        return Piece(written)
    return Piece(held.text, splits=not quoted)


def _braces(node: Node, written: str, scope: Scope, quoted: bool) -> Piece:
    found = _BRACES.match(written)
    if found is None:
        return Piece(written)
    name, index, operator = found[1], found[2], found[3]
    held = scope.held.get(name)
    if index is not None:
        return _element(held, index[1:-1], written, quoted)
    if operator is None:
        plain = written == f"${{{name}}}"
        return _variable(name, written, scope, quoted) if plain else Piece(written)
    return _defaulted(node, written, operator, held, scope, quoted)


def _element(held: Held | None, index: str, written: str, quoted: bool) -> Piece:
    """``${ARGS[@]}``, ``${ARGS[*]}``, ``${ARGS[0]}`` without a further operator."""
    if held is None or not written.endswith("]}"):
        return Piece(written)
    words = (held.value if isinstance(held.value, tuple) else (Word(held.value),) if held.value else ()) or ()
    if index == "@" or (index == "*" and not quoted):
        return Piece("", words=(*words, *_maybe_words(held)))
    if index == "*":
        return Piece(" ".join(w.text for w in words)) if not held.maybe else Piece(written)
    if index.isdigit() and int(index) < len(words) and not held.maybe:
        return Piece(words[int(index)].text)
    return Piece(written)


def _defaulted(node: Node, written: str, operator: str, held: Held | None, scope: Scope, quoted: bool) -> Piece:
    """``${X:-y}``, ``${X:=y}``, ``${X:+y}``, ``${X:?y}``: decided where X is known, as written where it is not."""
    if held is None or held.text is None:
        return Piece(written)
    filled = held.text != "" or not operator.startswith(":")
    operand = "".join(text_of(c, scope) for c in node.named_children[1:])
    if operator.endswith("+"):
        return Piece(operand if filled else "", splits=not quoted)
    return Piece(held.text if filled or operator.endswith("?") else operand, splits=not quoted)


def _flag_fragments(node: Node, scope: Scope) -> list[Word] | None:
    """The words of an unquoted variable that holds flags under some condition (``$EXTRA``): each with its condition.
    None for any other word."""
    if node.type not in ("simple_expansion", "expansion"):
        return None
    found = re.fullmatch(r"\$\{?([A-Za-z_]\w*)\}?", source_of(node))
    held = scope.held.get(found[1]) if found else None
    if held is None or not held.maybe or isinstance(held.value, tuple):
        return None
    texts = [held.value or "", *(m.value for m in held.maybe if isinstance(m.value, str))]
    if not all(t.strip() == "" or t.lstrip().startswith("-") for t in texts):
        return None
    replaced = next((m.why for m in held.maybe if not m.added), None)
    base = [Word(part, f"unless {replaced}" if replaced else None) for part in (held.value or "").split()]
    return [*base, *_maybe_words(held)]


def _maybe_words(held: Held) -> list[Word]:
    out: list[Word] = []
    for maybe in held.maybe:
        words = [Word(p) for p in maybe.value.split()] if isinstance(maybe.value, str) else list(maybe.value)
        out += [Word(word.text, word.why or maybe.why) for word in words]
    return out
