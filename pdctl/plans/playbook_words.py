"""Words and times as people write them in a playbook, and what is wrong with them as people read it."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|)\Z")
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_S = 86_400.0
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "array": "a list",
    "object": "keys with values",
    "bool": "true or false",
    "null": "nothing",
}


def seconds_of(text: str) -> float | None:
    """Seconds of "30", "30s", "500ms", "5m" or "1h"; None for anything else, for 0 and for more than a day.

    >>> seconds_of("1.5m"), seconds_of("soon")
    (90.0, None)
    """
    match = _TIME.match(text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    return seconds if 0 < seconds <= LONGEST_S else None


def telling(wrong: str) -> str:
    """A validator's complaint in the words of the file: ``Expected `array`, got `str``` -> must be a list, not text."""
    if match := re.match(r"Expected `([^`]+)`, got `([^`]+)`", wrong):
        kinds = [_KINDS.get(kind, kind) for kind in match[1].split(" | ") if kind != "null"]
        return f"must be {' or '.join(kinds)}, not {_KINDS.get(match[2], match[2])}"
    if match := re.match(r"Expected `([^`]+)`(.*)", wrong):
        return f"must be {_KINDS.get(match[1], match[1])}{match[2]}"
    if match := re.match(r"Invalid enum value '(.*)'", wrong, re.S):
        return f'there is no "{match[1]}"'
    return wrong[:1].lower() + wrong[1:]


def closest(word: str, known: Iterable[str]) -> str:
    """`` Did you mean ...?`` with a space after it, or nothing where no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"? ' if near else ""


def listed(words: Iterable[str]) -> str:
    return ", ".join(words)
