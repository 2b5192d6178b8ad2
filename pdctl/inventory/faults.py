"""One fault of an inventory, and its wording: file, line, key, what is wrong, what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdctl.errors import InventoryError
from pdctl.inventory.lines import Place, line_of


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at ``place``; ``right`` says what would be right; ``who`` names the table's row for people."""

    place: Place
    wrong: str
    right: str
    who: str = ""


def error_of(fault: Fault, text: str, source: str) -> InventoryError:
    """The error for people: ``pdctl.toml:7: instance prefill-0: bootstrap_port: must be ...``."""
    line = line_of(text, fault.place)
    where = f"{source}:{line}" if line else source
    parts = (where, fault.who, fault.place.key or "", fault.wrong)
    return InventoryError(": ".join(part for part in parts if part), fault.right)


def closest(word: str, known: Iterable[str]) -> str:
    """`` Did you mean ...?`` with a space before, or nothing where no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"? ' if near else ""


def listed(words: Iterable[str]) -> str:
    return ", ".join(words)
