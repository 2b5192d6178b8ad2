"""The matrix of a probe: what became of each kind of request on each path, and what the paths tell by difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from statistics import median

from pdctl.checks.probe_courses import courses_of
from pdctl.checks.probe_parts import HUNG
from pdctl.checks.router import OPEN, same_url
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Role
from pdctl.model.probe import Attempt, Attempts, Cell, Fate, Matrix, Row, Spread, Told, Trial
from pdctl.model.router import RouterMetrics
from pdctl.model.window import Window

INSIDE_OUT = (Role.PREFILL, Role.DECODE, Role.ROUTER, Role.PROXY)
# How a connection that the other end closed, or forgot, ends for the one that uses it again.
CLOSED = frozenset({"reset", "truncated", "other"})
WORST_FIRST = (Fate.HUNG, Fate.CUT, Fate.FAILED, Fate.WRONG, Fate.CLOSED)
# (outside, inside): shares of a stream's whole time before its first token, above and below which it came at once
# there and piece by piece here. Where answers are short, or their first token takes long, it must be all of the time.
HELD_BACK = ((0.8, 0.5), (0.98, 0.9))
ADDS_S = 0.05  # seconds, and
ADDS = 1.5  # times: what a path adds to the one inside it, worth saying
TRIED_OUT = (
    "open when the probe began and is not any more: its requests, or another client's, were what the router tried it "
    "out with"
)
OPENED = (
    "not open when the probe began and is now: its requests that failed count for that as any client's do, and the "
    "router tries each several times"
)


def attempts_of(window: Window) -> dict[tuple[str, str], tuple[Attempt, ...]]:
    """All attempts in the window by path (to whom, by which way), in the order they were made."""
    paths: dict[tuple[str, str], list[Attempt]] = {}
    for subject in window.subjects(Fact.PROBE):
        for seen in window.seen(subject, Fact.PROBE, Attempts):
            for attempt in seen.value.rows:
                paths.setdefault((attempt.to, attempt.via), []).append(attempt)
    return {key: tuple(sorted(rows, key=lambda a: a.begun_s or 0.0)) for key, rows in paths.items()}


def trial_of(attempt: Attempt) -> Trial:
    """The kind an attempt belongs to; told from the rest where it does not say."""
    if attempt.trial in tuple(Trial):
        return Trial(attempt.trial)
    if attempt.kind == "health":
        return Trial.HEALTH
    if attempt.kind == "abort":
        return Trial.ABORTS
    if attempt.idle_s is not None:
        return Trial.IDLE
    if attempt.round is not None:
        return Trial.ROUNDS
    return Trial.MANY if (attempt.concurrency or 1) > 1 else Trial.ONE


def matrix_of(window: Window, cluster: Cluster, left_out: Iterable[tuple[str, Trial, str]] = ()) -> Matrix:
    """The matrix of every path probed in the window. ``left_out`` says why a path was not asked a kind."""
    paths = attempts_of(window)
    why = {(to, trial): text for to, trial, text in left_out}
    for to in dict.fromkeys(to for to, _ in why):
        if not any(key[0] == to for key in paths):
            instance = cluster.instance(to)
            paths[(to, "proxy" if instance is not None and instance.role is Role.PROXY else "direct")] = ()
    rows = [_row(key, rows, cluster, why) for key, rows in paths.items()]
    rows.sort(key=lambda row: (_depth(row), row.via == "proxy"))
    trials = tuple(t for t in Trial if any(row.cells[t].fate is not Fate.NOT_RUN for row in rows))
    remarks = (*_remarks(rows, paths), *_breakers(window, cluster, rows))
    return Matrix(tuple(rows), trials, remarks, tuple(courses_of(window, cluster)))


def _depth(row: Row) -> int:
    return INSIDE_OUT.index(Role(row.role)) if row.role is not None else len(INSIDE_OUT)


def _row(key: tuple[str, str], made: tuple[Attempt, ...], cluster: Cluster, why: dict[tuple[str, Trial], str]) -> Row:
    to, via = key
    instance = cluster.instance(to)
    cells = {trial: _cell(made, trial, why.get((to, trial))) for trial in Trial}
    lines = {a.line for a in made if a.line is not None}
    opened = len(lines) if lines else sum(1 for a in made if a.connection == "fresh")
    reused = sum(1 for a in made if a.connection == "reused")
    return Row(to, via, instance.role.value if instance is not None else None, cells, opened, reused)


# --- a cell -----------------------------------------------------------------------------------------------------------


def _cell(made: tuple[Attempt, ...], trial: Trial, why: str | None) -> Cell:
    rows = [a for a in made if trial_of(a) is trial and (trial is Trial.ABORTS or not a.control)]
    if not rows:
        return Cell(Fate.NOT_RUN, why=why or "not tried")
    if trial is Trial.IDLE:
        return _idle_cell(rows, made)
    fates = [fate_of(a, made) for a in rows]
    good = [a for a in rows if a.good]
    return Cell(
        worst(fates),
        len(rows),
        sum(1 for fate in fates if fate is Fate.GOOD),
        dict(Counter(word for a, fate in zip(rows, fates, strict=True) if (word := wrong_word(a, fate)))),
        spread(a.first_s for a in good),
        spread(a.between_s for a in good),
        spread(a.took for a in good),
        hung_at=tuple(sorted({a.nth for a in rows if a.error == HUNG and a.nth is not None})),
    )


def _idle_cell(rows: list[Attempt], made: tuple[Attempt, ...]) -> Cell:
    """Requests on connections that sat idle; the first ones on them count where they fail."""
    reused = [a for a in rows if a.connection == "reused"]
    fates = [fate_of(a, made) for a in rows]
    bad = [a.idle_s for a in reused if not a.good and a.idle_s is not None]
    fails = min(bad, default=None)
    works = [a.idle_s for a in reused if a.good and a.idle_s is not None and (fails is None or a.idle_s < fails)]
    if not reused and worst(fates) is Fate.GOOD:
        return Cell(Fate.NOT_RUN, len(rows), why="it closes the connection after each answer")
    told = dict(zip(rows, fates, strict=True))
    openers_well = all(told[a] is Fate.GOOD for a in rows if a.connection != "reused")
    counted = reused if reused and openers_well else rows
    return Cell(
        worst(fates),
        len(counted),
        sum(1 for a in counted if told[a] is Fate.GOOD),
        dict(Counter(word for a, fate in zip(rows, fates, strict=True) if (word := wrong_word(a, fate)))),
        took=spread(a.took for a in reused if a.good),
        idle_ok_s=max(works, default=None),
        idle_fails_s=fails,
        closed_after_s=_middle([a.closed_after_s for a in reused if a.closed_after_s is not None]),
    )


def worst(fates: Iterable[Fate]) -> Fate:
    """The worst of several fates, good where all are."""
    seen = set(fates)
    return next((fate for fate in WORST_FIRST if fate in seen), Fate.GOOD)


def fate_of(attempt: Attempt, made: Sequence[Attempt]) -> Fate:
    """What became of one attempt, among all of its path."""
    if attempt.kind == "abort" and attempt.error is None:
        return Fate.GOOD
    if attempt.error == HUNG:
        return Fate.HUNG
    if attempt.error in CLOSED and not attempt.first_byte_s and attempt.idle_s is not None:
        return Fate.CLOSED
    if attempt.error in ("truncated", "reset") and (attempt.first_byte_s or attempt.tokens):
        return Fate.CUT
    if not attempt.good:
        return Fate.FAILED
    return Fate.WRONG if is_wrong(attempt, made) else Fate.GOOD


def is_wrong(attempt: Attempt, made: Sequence[Attempt]) -> bool:
    """Whether the answer is not the one that was asked for. That the nonce is missing counts only where every request
    asked alone had its own back, and only for the same short question: in a conversation a model may wander. An answer
    without text may be a model's that had no more to say: it counts where the server says that no token was made, where
    the nonce would have come back, and where no answer of the path has any text."""
    if attempt.told in (Told.CROSSED, Told.UNEXPECTED):
        return True
    if attempt.told == Told.EMPTY:
        return attempt.tokens == 0 or echoes(made) or all(a.told == Told.EMPTY for a in made if a.told)
    return attempt.told == Told.OTHER and trial_of(attempt) in (Trial.MANY, Trial.IDLE) and echoes(made)


def echoes(made: Sequence[Attempt]) -> bool:
    """Whether the path is known to say a nonce back: each of at least two requests asked alone had its own."""
    alone = [a for a in made if a.good and a.connection == "fresh" and (a.concurrency or 1) == 1]
    alone = [a for a in alone if a.told not in (None, Told.EMPTY)]
    return len(alone) >= 2 and all(a.told == Told.ECHOED for a in alone)


def wrong_word(attempt: Attempt, fate: Fate) -> str | None:
    """One word for what went wrong with an attempt, None where nothing did."""
    if fate is Fate.GOOD:
        return None
    if fate is Fate.WRONG:
        return {Told.CROSSED: "another's answer", Told.EMPTY: "empty"}.get(
            Told(attempt.told or "other"), "wrong answer"
        )
    return attempt.error or f"HTTP {attempt.status}"


def spread(values: Iterable[float | None]) -> Spread | None:
    """How values spread; None where there are none."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return None
    p95 = known[-1] if len(known) < 20 else known[ceil(0.95 * len(known)) - 1]
    return Spread(len(known), median(known), p95, known[-1])


def _middle(values: list[float]) -> float | None:
    return median(values) if values else None


# --- what the paths tell by difference --------------------------------------------------------------------------------


def _remarks(rows: list[Row], paths: dict[tuple[str, str], tuple[Attempt, ...]]) -> Iterator[str]:
    for row in rows:
        if row.cells[Trial.IDLE].why == "it closes the connection after each answer":
            yield f"{row.to} keeps no connection open: it closes each one after an answer"
    for outer in (r for r in rows if r.role in (Role.ROUTER, Role.PROXY)):
        inner = next((r for r in rows if r.role == Role.ROUTER and outer.role == Role.PROXY), None)
        if inner is not None:
            yield from _held_back(outer, inner, paths)
            yield from _slower(outer, inner)


def _held_back(outer: Row, inner: Row, paths: dict[tuple[str, str], tuple[Attempt, ...]]) -> Iterator[str]:
    """Whether a proxy holds streams back until they are complete."""
    outside, inside = (_first_share(paths[(r.to, r.via)]) for r in (outer, inner))
    if outside is None or inside is None:
        return
    if any(outside > most and inside < least for most, least in HELD_BACK):
        yield (
            f"{outer.to} holds streams back: their first token comes after {outside:.0%} of the whole time, at "
            f"{inner.to} after {inside:.0%}"
        )


def _first_share(made: Sequence[Attempt]) -> float | None:
    """The share of a stream's time that passes before its first token (median of at least three)."""
    shares = [
        a.first_token_s / a.took
        for a in made
        if a.good and a.stream and a.first_token_s and a.took and (a.tokens or 0) > 1
    ]
    return median(shares) if len(shares) >= 3 else None


def _slower(outer: Row, inner: Row) -> Iterator[str]:
    for trial in (Trial.ONE, Trial.MANY):
        out, in_ = outer.cells[trial].first, inner.cells[trial].first
        if out is None or in_ is None or min(out.count, in_.count) < 3:
            continue
        if out.median > ADDS * in_.median and out.median - in_.median > ADDS_S:
            yield (
                f"{outer.to} adds {out.median - in_.median:.2f} s before the first token ({trial.value}: "
                f"{out.median:.2f} s against {in_.median:.2f} s at {inner.to}, medians of {out.count} and {in_.count})"
            )


def _breakers(window: Window, cluster: Cluster, rows: list[Row]) -> Iterator[str]:
    """Breakers that are not as they were when the probe began: a router tries a worker out with the next request once
    its breaker has been open for long enough, and counts requests of the probe that fail as any client's."""
    probed = {row.to for row in rows if row.opened}
    for router in (r for r in cluster.routers if r.name in probed or any(row.via == "proxy" for row in rows)):
        pages = window.seen(router.name, Fact.METRICS, RouterMetrics)
        for worker in dict.fromkeys(w for page in (pages[0], pages[-1]) for w in page.value.breaker) if pages else ():
            before, after = (page.value.breaker.get(worker) == OPEN for page in (pages[0], pages[-1]))
            if before != after:
                name = next((i.name for i in cluster.engines if same_url(i.url, worker)), worker)
                yield f"{router.name}'s breaker of {name} was {OPENED if after else TRIED_OUT}"
