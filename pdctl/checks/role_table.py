"""Each setting that prefill and decode must share, with what both say of it and why it must be the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdctl.checks.role_mismatch import COMMAND, RESOLVED, SCRIPT, Known, both_values, compared, known_of, rules_for
from pdctl.checks.role_rules import Rule
from pdctl.model.cluster import Cluster
from pdctl.model.window import Window


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a pair. ``agrees`` is None where one side's value is not known; ``source`` is where both were
    read: resolved by the engines, their command lines, or their scripts."""

    flag: str
    why: str
    prefill: str | None
    decode: str | None
    agrees: bool | None
    source: str | None = None


def settings_of(window: Window, cluster: Cluster, prefill: str, decode: str) -> tuple[Setting, ...]:
    """What runs counts before what scripts say; a difference between the scripts is a row of its own, since the next
    restart makes it real. Settings that neither side names are left out."""
    sides = known_of(window, cluster, prefill), known_of(window, cluster, decode)
    return tuple(row for rule in rules_for(*sides) for row in _rows(rule, *sides))


def _rows(rule: Rule, prefill: Known, decode: Known) -> Iterator[Setting]:
    told: tuple[str, str] | None = None
    for sources in ((RESOLVED, COMMAND), (SCRIPT,)):
        source = next((s for s in sources if both_values(rule, s, prefill, decode)), None)
        values = both_values(rule, source, prefill, decode) if source else None
        if source is None or values is None or not _named(rule.flag, source, prefill, decode):
            continue
        agrees = compared(rule, source, prefill, decode) is None
        if told is None or (not agrees and values != told):
            yield Setting(rule.flag, rule.why, *values, agrees, source)
        told = values
    mine, other = _value(rule.flag, prefill), _value(rule.flag, decode)
    if told is None and (mine is not None or other is not None):
        yield Setting(rule.flag, rule.why, mine, other, None)


def _named(flag: str, source: str, *sides: Known) -> bool:
    return any(flag in side.by_source[source][0] for side in sides)


def _value(flag: str, side: Known) -> str | None:
    return next((values[flag] for values, _ in side.by_source.values() if flag in values), None)
