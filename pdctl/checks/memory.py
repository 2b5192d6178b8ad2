"""Whether a decode makes progress, and whether it waits for KV memory.

Admission blocks well before the pool is full, because room for the running requests' output is reserved: usages of
0.61 to 0.79 were seen on a starved 0.5.23. So starvation is told by turnover under a standing prealloc queue, not by a
threshold on usage.
"""

from __future__ import annotations

from pdctl.checks.handoff import STEPS, undrifted
from pdctl.checks.view import Count, EngineView
from pdctl.model.engine import Gauge
from pdctl.model.events import Kind

FREE_BELOW = 0.5  # usage under which memory is called free
FULL_FROM = 0.9
PROBE_TOKENS = 4  # a health probe's one-token request moves the scheduler's counters by at most this
Readings = tuple[Count, ...]


def usage(view: EngineView) -> tuple[float, Count] | None:
    """The newest KV usage (0..1) of the fullest rank, live where it can be."""
    found: tuple[float, Count] | None = None
    for dp in view.dps:
        for at, row in view.rows(dp):
            if row.token_usage is not None and (found is None or at.t > found[1].t or row.token_usage > found[0]):
                found = (row.token_usage, Count(at.t, row.token_usage, at))
    if found is not None:
        return found
    for dp in view.dps:
        readings = view.gauge(Gauge.TOKEN_USAGE, dp)
        if readings and (found is None or readings[-1].value > found[0]):
            found = (readings[-1].value, readings[-1])
    return found


def queue_readings(view: EngineView, queue: Gauge, dp: int | None, since: float = 0.0) -> tuple[Readings, bool]:
    """The best readings of a queue and whether they are of their instant: live counts, or stage counters that the front
    end bears out; else the gauge."""
    live = view.live(queue, dp, since) or (undrifted(view, queue, dp, since) if queue in STEPS else ())
    return (live, True) if live else (view.gauge(queue, dp, since), False)


def token_signs(view: EngineView, since: float = 0.0) -> tuple[str, ...]:
    """What shows that tokens came out of a decode after ``since``: each sign in a few words, () when none does."""
    signs = []
    for counter, words in ((Gauge.GENERATION_TOKENS, "generated tokens"), (Gauge.REALTIME_TOKENS, "scheduled tokens")):
        grown = view.growth(counter, since=since)
        if grown and grown > PROBE_TOKENS * (view.probes(since) or 0):
            signs.append(f"{words} grew by {grown:.0f}")
    lines = [e for e in view.batch_lines(since) if e.numbers.get("throughput", 0.0) > 0]
    if lines and not view.is_prefill:
        signs.append(f"{len(lines)} decode batches logged, the last at {lines[-1].numbers['throughput']:.0f} tokens/s")
    moved = _used_tokens_moved(view, since)
    if moved:
        signs.append(moved)
    return tuple(signs)


def _used_tokens_moved(view: EngineView, since: float) -> str | None:
    for dp in view.dps:
        used = [c.value for c in view.live(Gauge.USED_TOKENS, dp, since)]
        running = [c.value for c in view.live(Gauge.RUNNING, dp, since)]
        if len(set(used)) > 1 and any(running):
            return f"live used tokens went from {used[0]:.0f} to {used[-1]:.0f} with requests running"
    return None


def token_progress_known(view: EngineView) -> bool:
    """Whether anything could show progress at all: a scheduler-side counter, live rows, or batch lines. The counter of
    generated tokens moves only when a request finishes, so it alone can't tell a long generation from a standstill."""
    return bool(
        view.growth(Gauge.REALTIME_TOKENS) is not None
        or view.growth(Gauge.GRAPH_PASSES) is not None
        or any(view.fresh_rows(dp) for dp in view.dps)
        or any(e.kind == Kind.DECODE_BATCH for e in view.log)
    )


def starved(view: EngineView, since: float = 0.0) -> tuple[str, ...]:
    """Why a decode counts as waiting for KV memory after ``since``, () when it does not: requests stand in prealloc in
    every reading while tokens come out."""
    standing = []
    for dp in view.dps:
        readings, live = queue_readings(view, Gauge.PREALLOC, dp, since)
        if len(readings) >= 3 and min(r.value for r in readings) >= 1:
            standing.append(f"prealloc never below {min(r.value for r in readings):g}{' (live)' if live else ''}")
    if not standing:
        return ()
    signs = token_signs(view, since)
    return (standing[0], *signs) if signs else ()
