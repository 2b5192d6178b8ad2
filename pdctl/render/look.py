"""How output looks: decided once from values handed in, then carried as a frozen value.

Marks differ by shape and never stand alone: a word always says the same, so that a screen reader, a log file and a
terminal without colours lose nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pdctl.render.escape import mask, safe

DEFAULT_WIDTH = 80
NARROWEST = 20


class Mark(StrEnum):
    """What a line says of a thing at a glance. The four that must never be mixed up are OK, BAD, UNKNOWN, UNCHECKED."""

    OK = "ok"
    BAD = "bad"
    WARN = "warn"
    INFO = "info"
    UNKNOWN = "unknown"
    UNCHECKED = "unchecked"


_UNICODE = {Mark.OK: "✓", Mark.BAD: "✗", Mark.WARN: "!", Mark.INFO: "i", Mark.UNKNOWN: "?", Mark.UNCHECKED: "–"}
_ASCII = {**_UNICODE, Mark.OK: "+", Mark.BAD: "x", Mark.UNCHECKED: "-"}
_SGR = {
    Mark.OK: "32", Mark.BAD: "1;31", Mark.WARN: "33", Mark.INFO: "36", Mark.UNKNOWN: "1;35", Mark.UNCHECKED: "2",
    "bold": "1", "dim": "2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """Colours or not, ASCII alone or not, the width to wrap at in columns, and whether the screen may be repainted."""

    colour: bool = False
    ascii: bool = False
    width: int = DEFAULT_WIDTH
    live: bool = False

    def say(self, text: str) -> str:
        """Foreign text as it may be shown here: secrets masked, hostile characters escaped, one line."""
        return safe(mask(text), self.ascii)

    def mark(self, mark: Mark) -> str:
        """The mark's one character, coloured where colours are on."""
        return self.paint((_ASCII if self.ascii else _UNICODE)[mark], mark)

    def paint(self, text: str, style: str) -> str:
        """The text in a style (a Mark, "bold" or "dim"), plain where colours are off."""
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if self.colour else text


def choose_look(
    is_tty: bool, env: Mapping[str, str], columns: int | None = None, ascii: bool = False, encoding: str = "utf-8"
) -> Look:
    """The look for one output stream.

    NO_COLOR (any value but an empty one) wins over FORCE_COLOR (any but empty and 0), which wins over the terminal;
    a pipe and TERM=dumb have no colours. The width is COLUMNS if set, else the terminal's, else 80: cron and pipes
    get 80. ASCII where the encoding cannot hold the marks, the locale is C, or nobody named a locale and there is no
    terminal: cron mails say US-ASCII of themselves.
    """
    dumb = env.get("TERM", "") == "dumb"
    forced = env.get("FORCE_COLOR", "") not in ("", "0")
    colour = not env.get("NO_COLOR") and (forced or (is_tty and not dumb))
    width = _positive(env.get("COLUMNS")) or (columns if is_tty else None) or DEFAULT_WIDTH
    plain = ascii or not _holds_marks(encoding) or _locale_is_c(env, is_tty)
    return Look(colour, plain, max(width, NARROWEST), is_tty and not dumb)


def _positive(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and int(text) > 0 else None


def _locale_is_c(env: Mapping[str, str], is_tty: bool) -> bool:
    """Python itself sets LC_CTYPE to C.UTF-8 where it finds none, so that value says nothing."""
    ctype = env.get("LC_CTYPE", "")
    named = env.get("LC_ALL") or (ctype if ctype != "C.UTF-8" else "") or env.get("LANG", "")
    return named in ("C", "POSIX") or (not named and not is_tty)


def _holds_marks(encoding: str) -> bool:
    try:
        "✓✗–▁█".encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def look(ascii_only: bool = False) -> Look:
    """The look for this process's standard output, as it and the environment are now."""
    out = sys.stdout
    try:
        is_tty = out.isatty()
        columns = os.get_terminal_size(out.fileno()).columns if is_tty else None
    except (OSError, ValueError, AttributeError):
        is_tty, columns = False, None
    return choose_look(is_tty, os.environ, columns, ascii_only, getattr(out, "encoding", None) or "utf-8")
