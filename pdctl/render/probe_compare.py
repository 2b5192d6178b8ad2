"""Two probes side by side: what differs beyond noise, and what is said where nothing does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pdctl.model.probe_compare import Compared, Comparison, Measure, Saved, Verdict
from pdctl.render.look import Look, Mark
from pdctl.render.probe import seconds
from pdctl.render.text import counted, listed, moment, rfc3339, wrap
from pdctl.render.wire import plain, text

MARK_OF = {
    Verdict.SAME: Mark.OK,
    Verdict.WORSE: Mark.BAD,
    Verdict.BETTER: Mark.INFO,
    Verdict.FEW: Mark.UNKNOWN,
}
MORE = "--repeat 6, or more rounds"
TIMES = "two runs at two times: whatever else changed between them is in the difference too"


def compare_lines(compared: Compared, a: Saved, b: Saved, look: Look) -> Iterator[str]:
    """The verdict in a sentence, then each comparison."""
    yield from wrap(look.say(sentence(compared)), look.width, f"{look.mark(MARK_OF[overall(compared)])} ", "  ")
    yield ""
    for name, saved in (("A", a), ("B", b)):
        yield from wrap(look.say(f"{name}: {described(saved)}"), look.width, "", "   ")
    for place in dict.fromkeys((row.to, row.trial) for row in compared.rows):
        yield ""
        yield f"{look.say(place[0])}, {place[1]}"
        for row in compared.rows:
            if (row.to, row.trial) == place:
                yield from wrap(words(row, compared.level), look.width, f"  {look.mark(MARK_OF[row.verdict])} ", "    ")
    for name, only in (("A", compared.only_a), ("B", compared.only_b)):
        if only:
            yield ""
            yield from wrap(look.say(f"In {name} alone: {listed(only)}"), look.width, "", "  ")
    yield ""
    yield from wrap(f"Not shown by this: {TIMES}.", look.width, "", "  ")


def described(saved: Saved) -> str:
    """A saved probe in one line."""
    when = f", {moment(saved.started)}" if saved.started else ""
    note = f", {saved.note}" if saved.note else ""
    return f"{saved.cluster}{when}, {counted(len(saved.attempts), 'request')}{note}"


def overall(compared: Compared) -> Verdict:
    """The worst of all comparisons; FEW where nothing could be compared."""
    seen = {row.verdict for row in compared.rows}
    if Verdict.WORSE in seen:
        return Verdict.WORSE
    if not seen - {Verdict.FEW}:
        return Verdict.FEW
    return Verdict.BETTER if Verdict.BETTER in seen else Verdict.SAME


def sentence(compared: Compared) -> str:
    """What the comparison says, no more than it can."""
    worse = [row for row in compared.rows if row.verdict is Verdict.WORSE]
    better = [row for row in compared.rows if row.verdict is Verdict.BETTER]
    told = [row for row in compared.rows if row.verdict is not Verdict.FEW]
    if not told:
        return "A and B cannot be compared: too few attempts of the same kind on the same path"
    if not worse and not better:
        return f"A and B cannot be told apart: none of {counted(len(told), 'difference')} is more than noise" + _spare(
            compared
        )
    parts = [f"B is worse in {_places(worse)}"] if worse else []
    parts += [f"B is better in {_places(better)}"] if better else []
    rest = len(told) - len(worse) - len(better)
    return "; ".join(parts) + (f"; {counted(rest, 'other difference')} within noise" if rest else "")


def _spare(compared: Compared) -> str:
    few = sum(row.verdict is Verdict.FEW for row in compared.rows)
    return f" ({few} more had too few attempts)" if few else ""


def _places(rows: Iterable[Comparison]) -> str:
    return listed([f"{row.measure.value} at {row.to} ({row.trial})" for row in rows], 4)


def words(row: Comparison, level: float) -> str:
    """One comparison in words."""
    if row.measure is Measure.FAILURES:
        head = f"failed: {row.a.value:.0f} of {row.a.count} against {row.b.value:.0f} of {row.b.count}"
        if row.verdict is Verdict.FEW:
            return f"{head}: too few to compare"
        return head if row.verdict is not Verdict.SAME or not (row.a.value or row.b.value) else f"{head}: may be chance"
    head = f"{row.measure.value}: {seconds(row.a.value)} against {seconds(row.b.value)}"
    if row.low is None or row.high is None:
        fewer = min(row.a.count, row.b.count)
        return f"{head}: {counted(fewer, 'moment')} looked at, too few to tell from the moment's weather ({MORE})"
    change = f"{row.b.value - row.a.value:+.3f} s, {level:.1%} interval {row.low:+.3f} to {row.high:+.3f} s"
    if row.verdict is Verdict.SAME:
        small = not row.low <= 0.0 <= row.high
        return f"{head} ({change}): {'a difference too small to matter' if small else 'within noise'}"
    return f"{head} ({change}): B {'takes longer' if row.verdict is Verdict.WORSE else 'is faster'}"


def compare_value(compared: Compared, a: Saved, b: Saved) -> dict[str, Any]:
    """The comparison as JSON says it; seconds throughout."""
    return {
        "schema": "pdctl.probe-compare/1",
        "verdict": overall(compared).value,
        "sentence": text(sentence(compared)),
        "level": compared.level,
        "a": _saved_value(a),
        "b": _saved_value(b),
        "rows": [_row_value(row) for row in compared.rows],
        "only_a": [text(name) for name in compared.only_a],
        "only_b": [text(name) for name in compared.only_b],
        "limits": [TIMES],
    }


def _saved_value(saved: Saved) -> dict[str, Any]:
    return {
        "cluster": text(saved.cluster), "started": rfc3339(saved.started) if saved.started else None,
        "attempts": len(saved.attempts), "note": text(saved.note) if saved.note else None,
    }  # fmt: skip


def _row_value(row: Comparison) -> dict[str, Any]:
    return {
        "to": text(row.to), "via": row.via, "trial": row.trial, "measure": row.measure.value,
        "a": {"count": row.a.count, "value": plain(row.a.value)},
        "b": {"count": row.b.count, "value": plain(row.b.value)},
        "low": plain(row.low), "high": plain(row.high), "chance": plain(row.chance), "verdict": row.verdict.value,
    }  # fmt: skip
