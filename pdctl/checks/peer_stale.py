"""peer-stale: one role restarted, its peer still holds the old process's state, and nothing passes between them since.

That one started later than the other proves nothing: every ordered start does so, and on 0.5.23 a decode that was
killed and started alone worked with its old prefill again within 5 s. What counts is a peer that goes on naming what is
gone, after the start, while nothing finishes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.live_drift import main_process
from pdctl.checks.provenance import utc
from pdctl.checks.view import ClusterView, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.events import Event, Kind, Log
from pdctl.model.finding import Confidence, Evidence, RuledOut
from pdctl.model.host import Processes, Unit
from pdctl.model.window import At, Window

YOUNGER = timedelta(seconds=20)  # starts nearer than this are one start
SETTLED = timedelta(seconds=10)  # what fails in the first seconds after a start heals by itself
RECENT_S = 600.0  # records this much older than the window still speak of now
QUIET_S = 3600.0  # where nothing was ever done since the start, and maybe nobody tries any more
LEAST = 2
# What a peer says that still deals with a process that is gone.
NAMES_OLD = (Kind.SESSION_FAILED, Kind.LOST_PREFILL, Kind.PREFILL_INFO_FAILED)
FAILED = (
    Kind.TRANSFER_FAILED, Kind.DECODE_TRANSFER_FAILED, Kind.HANDSHAKE_FAILED, Kind.BOOTSTRAP_FAILED,
    Kind.REGISTER_FAILED,
)  # fmt: skip
GONE = ("not alive", "could be dead", "lost connection", "is dead", "session mismatch", "peer has restarted")
ABORTED = ("abort", "disconnect", "cancel")


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """When an engine's process started, and what says so."""

    when: datetime
    says: Evidence


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each pair of a prefill and a decode of which one started after the other."""
    view = view_of(window, cluster)
    for prefill in view.prefills:
        for decode in view.decodes:
            yield from judge_pair(view, prefill, decode)


def judge_pair(view: ClusterView, prefill: EngineView, decode: EngineView) -> Iterator[Verdict]:
    starts = {e.name: start_of(e) for e in (prefill, decode)}
    young = younger(prefill, decode, starts)
    if young is None:
        return
    old, started = (decode if young is prefill else prefill), starts[young.name]
    pair = f"{prefill.name}->{decode.name}"
    if started is None:
        return
    named = list(old_state(old, young, max(started.when, view.window.start - horizon(decode))))
    if not named:
        return
    alive = progress(view, prefill, decode)
    if alive is not None:
        yield RuledOut("peer-stale", pair, f"{young.name} restarted, and since then {alive}")
        return
    failures = list(failures_since(prefill, decode, started.when))
    nothing = list(nothing_done(prefill, decode))
    if failures or nothing:
        yield finding(pair, young, old, starts, (*named, *failures, *nothing), bool(failures) and bool(nothing))


def horizon(decode: EngineView) -> timedelta:
    """How far before the window a record still counts."""
    never = bool(decode.pages) and decode.pages[-1].value.total(Gauge.GENERATION_TOKENS) == 0
    return timedelta(seconds=QUIET_S if never else RECENT_S)


def younger(prefill: EngineView, decode: EngineView, starts: dict[str, Start | None]) -> EngineView | None:
    """The engine that started after the other; where one start alone is known, its engine."""
    mine, other = starts[prefill.name], starts[decode.name]
    if mine is None and other is None:
        return None
    if mine is None or (other is not None and other.when - mine.when > YOUNGER):
        return decode
    if other is None or mine.when - other.when > YOUNGER:
        return prefill
    return None


def start_of(engine: EngineView) -> Start | None:
    """The start of the engine's main process: by the process itself, its counters, its unit, its log."""
    processes = engine.window.last(engine.name, Fact.PROCESSES, Processes)
    main = main_process(processes.value if processes else None)
    if processes is not None and main is not None and main.started is not None:
        return Start(main.started, saw(f"{engine.name} started at {main.started}", processes, pid=main.pid))
    seconds = engine.pages[-1].value.total(Gauge.START_TIME) if engine.pages else None
    if seconds:
        when = datetime.fromtimestamp(seconds, UTC)
        return Start(when, saw(f"{engine.name} started at {when}", engine.pages[-1]))
    unit = engine.window.last(engine.name, Fact.UNIT, Unit)
    if unit is not None and unit.value.since is not None:
        return Start(unit.value.since, saw(f"the unit of {engine.name} runs since {unit.value.since}", unit))
    if engine.restarted is not None:
        text = f"{engine.name} started inside the window: its counters began anew"
        return Start(engine.restarted.seen.at, saw(text, engine.restarted))
    return start_in_log(engine)


def start_in_log(engine: EngineView) -> Start | None:
    for seen in engine.window.seen(engine.name, Fact.LOG, Log)[-1:]:
        ready = [w for e in seen.value.of(Kind.READY) if (w := moment(seen, e)) is not None]
        if ready:
            return Start(ready[-1], saw(f"{engine.name} was ready at {ready[-1]}", seen))
    return None


def moment(seen: At[Log], event: Event) -> datetime | None:
    return seen.value.utc(event) or (utc(event.when) if event.when else None)


def old_state(old: EngineView, young: EngineView, since: datetime) -> Iterator[Evidence]:
    """Records of the older engine, from after the younger one's start, that speak of a peer that is gone."""
    host = urlsplit(young.instance.url or "").hostname
    for seen in old.window.seen(old.name, Fact.LOG, Log):
        named = [e for e in seen.value.events if names_old(e) and is_after(seen, e, since) and is_about(e, host)]
        if named:
            peers = ", ".join(dict.fromkeys(e.words["peer"] for e in named if "peer" in e.words))
            about = f" ({peers})" if peers else ""
            yield saw(f"{old.name} goes on about a peer that is gone{about}: {len(named)} records", seen)


def names_old(event: Event) -> bool:
    reason = event.words.get("reason", "").lower()
    return event.kind in NAMES_OLD or (event.kind in FAILED and any(word in reason for word in GONE))


def is_about(event: Event, host: str | None) -> bool:
    """Whether the record's peer is on the younger engine's host, as far as both are given as addresses."""
    peer = event.words.get("peer", "").rpartition(":")[0].strip("[]")
    comparable = bool(peer) and host is not None and host[0].isdigit() and peer[0].isdigit()
    return not comparable or peer == host or host == "127.0.0.1"


def is_after(seen: At[Log], event: Event, since: datetime) -> bool:
    when = moment(seen, event)
    return when is not None and when > since + SETTLED


def failures_since(prefill: EngineView, decode: EngineView, since: datetime) -> Iterator[Evidence]:
    """Requests that failed between the two after the start; aborts of clients are none."""
    for engine in (prefill, decode):
        for seen in engine.window.seen(engine.name, Fact.LOG, Log):
            failed = [e for e in seen.value.of(*FAILED) if is_after(seen, e, since) and not is_abort(e)]
            if len(failed) >= LEAST:
                yield saw(f"{len(failed)} requests failed on {engine.name} since", seen, failed=len(failed))
        for counter in (Gauge.TRANSFER_FAILED, Gauge.BOOTSTRAP_FAILED):
            grown = engine.growth(counter)
            if grown:
                yield saw(f"{counter} of {engine.name} grew by {grown:.0f}", engine.pages[-1], grown=grown)


def is_abort(event: Event) -> bool:
    return any(word in event.words.get("reason", "").lower() for word in ABORTED)


def nothing_done(prefill: EngineView, decode: EngineView) -> Iterator[Evidence]:
    """Decode generated nothing in the window, or ever since its start."""
    if not decode.pages:
        return
    total = decode.pages[-1].value.total(Gauge.GENERATION_TOKENS)
    if total == 0:
        yield saw(f"{decode.name} has not generated a token since it started", decode.pages[-1])
    elif total is not None and decode.growth(Gauge.GENERATION_TOKENS) == 0:
        yield saw(f"{decode.name} generated nothing in the window", decode.pages[-1])


def progress(view: ClusterView, prefill: EngineView, decode: EngineView) -> str | None:
    """What shows that requests pass between the two; None where nothing does. Where the younger or the older one has
    other partners, its own counters cannot tell whose requests they were."""
    if len(view.prefills) == 1 and (decode.growth(Gauge.GENERATION_TOKENS) or 0) > 0:
        return f"{decode.name} generates"
    if len(view.decodes) == 1 and len(view.prefills) == 1 and (prefill.growth(Gauge.TRANSFERS_DONE) or 0) > 0:
        return f"{prefill.name} ends transfers"
    if len(view.prefills) > 1 and (decode.growth(Gauge.GENERATION_TOKENS) or 0) > 0:
        failed = (prefill.growth(Gauge.TRANSFER_FAILED) or 0) + (decode.growth(Gauge.TRANSFER_FAILED) or 0)
        return None if failed else f"{decode.name} generates and no transfer fails"
    return None


def finding(
    pair: str,
    young: EngineView,
    old: EngineView,
    starts: dict[str, Start | None],
    signs: tuple[Evidence, ...],
    sure: bool,
) -> Verdict:
    """The finding for one pair."""
    started, before = starts[young.name], starts[old.name]
    assert started is not None
    ages = f" at {started.when:%Y-%m-%d %H:%M:%S} UTC" + (
        f", {old.name} runs since {before.when:%Y-%m-%d %H:%M:%S}" if before else ""
    )
    evidence = (started.says, *((before.says,) if before else ()), *signs)
    return found(
        "peer-stale",
        pair,
        f"{young.name} restarted{ages}; {old.name} still holds the old process's state and nothing passes between them",
        confidence=Confidence.CERTAIN if sure and before else Confidence.LIKELY,
        evidence=evidence,
        since=started.when,
        limits=() if before else (f"when {old.name} started is not known",),
        next=("pdctl restart --plan", f"pdctl logs {old.name} {young.name}", "pdctl explain peer-stale"),
    )


CHECKS = (
    Check(
        "peer-stale",
        "peers that hold state of a process that is gone",
        ("peer-stale",),
        (Fact.LOG,),
        judge,
    ),
)
