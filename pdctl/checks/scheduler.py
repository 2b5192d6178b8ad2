"""A scheduler that no longer turns, and one that turns while requests run and no token comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.handoff import undrifted
from pdctl.checks.memory import token_progress_known, token_signs
from pdctl.checks.plateau import floor_of, series_text
from pdctl.checks.provenance import snapshot_ages, timed_out
from pdctl.checks.trust import Counts, Inflight
from pdctl.checks.view import EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.events import Kind
from pdctl.model.finding import Confidence, Evidence, RuledOut
from pdctl.model.fresh import FRESH_S
from pdctl.model.rank import WHOLE, Rank
from pdctl.model.window import At, Window

if TYPE_CHECKING:
    from pdctl.model.host import Process

FROZEN_S = 5.0  # a live snapshot this old: a hundred publications missed
LONG_FORWARD_S = 20.0  # a single forward pass can hold the loop; this long, it is no longer one
WEDGED_S = 20.0
IDLE_REPORT_S = 29.9  # an idle engine rewrites its gauges 30 s after its last report, which came before the window


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """For each engine: stopped, wedged, or seen to turn."""
    for engine in view_of(window, cluster).engines:
        stopped = tuple(judge_stopped(engine))
        yield from stopped
        if not stopped:
            yield from judge_wedged(engine)
            why = engine.alive()
            if why:
                yield RuledOut("scheduler-stopped", engine.name, why)


def judge_stopped(engine: EngineView) -> Iterator[Verdict]:
    """scheduler-stopped, per rank where live counts tell which."""
    signs = tuple(whole_signs(engine))
    frozen = [(dp, e) for dp in engine.dps for e in frozen_rows(engine, dp)]
    if frozen:
        evidence = (*(e for _, e in frozen), *signs)
        if len(evidence) == 1 and frozen_for(engine, frozen[0][0]) < LONG_FORWARD_S:
            return
        one = len(frozen) < len(engine.dps) and frozen[0][0] is not None
        yield stopped(engine, evidence, Rank(dp=frozen[0][0]) if one else WHOLE, len(signs) > 0)
        return
    if any(engine.fresh_rows(dp) for dp in engine.dps) and engine.traits.counts != Counts.ASKED:
        return
    if len(signs) >= 2 and not engine.alive(last_sign(engine)):
        yield stopped(engine, signs, WHOLE, True)


def stopped(engine: EngineView, evidence: tuple[Evidence, ...], rank: Rank, sure: bool) -> Verdict:
    """The finding."""
    where = f"{engine.name} {rank}" if rank != WHOLE else engine.name
    return found(
        "scheduler-stopped",
        engine.name,
        f"the scheduler of {where} does not turn, although its HTTP front end answers",
        confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
        evidence=evidence,
        rank=rank,
        since=evidence[0].at,
        limits=(
            "hung, frozen by a signal, paused or in one very long forward pass look alike here: the process state and "
            "its stack tell",
        ),
        next=(f"pdctl stacks {engine.name}", f"pdctl ps {engine.name}", "pdctl explain scheduler-stopped"),
    )


def frozen_for(engine: EngineView, dp: int | None) -> float:
    """For how many seconds of the window a rank's snapshot has not been renewed."""
    rows = tuple(engine.rows(dp))
    if not rows or rows[-1][1].timestamp is None:
        return 0.0
    last = rows[-1][1].timestamp
    same = [at for at, row in rows if row.timestamp == last]
    return max(same[-1].t - same[0].t, snapshot_ages(rows)[-1])


def frozen_rows(engine: EngineView, dp: int | None) -> Iterator[Evidence]:
    """The snapshot's own time stands still (0.5.19 and later; before, it also stands while something is pinned)."""
    if engine.traits.counts != Counts.LIVE:
        return
    rows = tuple(engine.rows(dp))
    seconds = frozen_for(engine, dp)
    answers = [at for at, row in rows if row.timestamp == rows[-1][1].timestamp] if rows else []
    if seconds >= FROZEN_S and len(answers) >= 2:
        text = f"the live counts' own time stands still for {seconds:.0f} s over {len(answers)} answers"
        yield saw(text, answers[0], timestamp=rows[-1][1].timestamp)


def whole_signs(engine: EngineView) -> Iterator[Evidence]:
    """Signs that the loop does not turn which do not rest on the snapshot."""
    yield from still_counters(engine)
    for fact, words in ((Fact.SERVER_INFO, "/server_info, which asks the scheduler,"), (Fact.LOADS, "/v1/loads")):
        if fact == Fact.LOADS and engine.traits.counts != Counts.ASKED:
            continue
        missed = timed_out(engine.window.timeline(engine.name, fact))
        answered = engine.window.seen(engine.name, fact, object)
        if missed and not (answered and answered[-1].t > missed[-1].t) and engine.pages:
            yield Evidence(
                f"{words} did not answer in {missed[-1].took:.0f} s", missed[-1].at, engine.name, missed[-1].ask
            )
    yield from health_signs(engine)
    yield from stopped_processes(engine)


def still_counters(engine: EngineView) -> Iterator[Evidence]:
    """Neither idle nor CPU seconds advance (0.5.20 and later): each turn of the loop adds to one of them."""
    pages = engine.pages
    if len(pages) < 2:
        return
    tail = pages[-min(len(pages), 4) :]
    if tail[-1].t - tail[0].t < FROZEN_S:
        tail = pages
    idle = engine.growth(Gauge.IDLE_SECONDS, since=tail[0].t)
    cpu = engine.growth(Gauge.SCHEDULER_CPU_SECONDS, since=tail[0].t)
    seconds = tail[-1].t - tail[0].t
    if idle is not None and cpu is not None and seconds >= FROZEN_S and idle + cpu < 0.01 * seconds:
        yield saw(f"its idle and CPU seconds stood still for {seconds:.0f} s", tail[0], idle=idle, cpu=cpu)


def health_signs(engine: EngineView) -> Iterator[Evidence]:
    """The last health check failed or got no answer. Weak alone: a probe can queue behind requests (seen on 0.5.23)."""
    rows = engine.window.timeline(engine.name, Fact.HEALTH)
    if rows and (rows[-1].missed is not None or rows[-1].status == 503):
        yield Evidence("its health check, itself a request, did not pass", rows[-1].at, engine.name, rows[-1].ask)
    failed = [e for e in engine.log if e.kind == Kind.HEALTH_FAILED]
    if failed and not rows:
        yield Evidence("its log says that a health check failed", instance=engine.name)


def stopped_processes(engine: EngineView) -> Iterator[Evidence]:
    """Its scheduler process is stopped (T), or could not be dumped for that."""
    if not engine.window.asked(engine.name, Fact.PROCESSES):
        return
    from pdctl.model.host import Processes

    seen = engine.window.last(engine.name, Fact.PROCESSES, Processes)
    for process in seen.value.rows if seen else ():
        if is_scheduler(process) and (process.state or "").upper().startswith("T"):
            yield saw(f"its process {process.pid} is in state T (stopped)", seen)


def is_scheduler(process: Process) -> bool:
    return process.title.startswith("sglang::scheduler")


def last_sign(engine: EngineView) -> float:
    """When the newest timeout was seen: signs of life must be younger."""
    rows = [o for f in (Fact.SERVER_INFO, Fact.LOADS) for o in timed_out(engine.window.timeline(engine.name, f))]
    return max((o.t for o in rows), default=0.0)


def judge_wedged(engine: EngineView) -> Iterator[Verdict]:
    """engine-wedged when live counts say that requests run while nothing scheduled, generated or logged advances."""
    if engine.is_prefill or not token_progress_known(engine):
        return
    for dp in engine.dps:
        running = engine.live(Gauge.RUNNING, dp)
        if len(running) < 3 or floor_of(running) < 1 or running[-1].t - running[0].t < WEDGED_S:
            continue
        if not token_signs(engine, running[0].t):
            yield wedged(engine, dp, saw(f"live running: {series_text(running)}", running[-1].at), True)
            return
    yield from wedged_by_report(engine) if engine.traits.counts == Counts.LIVE else wedged_past_transfer(engine)


def wedged_past_transfer(engine: EngineView) -> Iterator[Verdict]:
    """As above where live counts stand while something is stuck (0.5.10 to 0.5.18): answers are owed, their requests
    are past prealloc and transfer by the stage counters, the idle report that would have zeroed the running gauge is
    overdue, and no token comes out. A client that does not read on is owed an answer too, but its engine is idle."""
    told = tuple(wedged_by_report(engine))
    if told or not engine.traits.http_active_streams:
        yield from told
        return
    owed, running = engine.http_active(), engine.gauge(Gauge.RUNNING, engine.dps[0])
    queues = [undrifted(engine, queue, None) for queue in (Gauge.PREALLOC, Gauge.TRANSFER)]
    if len(owed) < 3 or min(floor_of(owed), floor_of(running)) < 1 or any(not q or q[-1].value > 0 for q in queues):
        return
    since = max(engine.still_since() or 0.0, owed[0].t)
    needed = WEDGED_S if engine.traits.inflight == Inflight.OWN_AT_ONCE else IDLE_REPORT_S
    if owed[-1].t - since < needed or token_signs(engine, since) or engine.batches_since(since) is not False:
        return
    if engine.alive(since) is None:
        return  # a scheduler that does not turn looks the same
    text = f"{owed[-1].value:g} answers owed, none of their requests in prealloc or transfer by the stage counters"
    more = f"running gauge {series_text(running)}: its idle report is overdue"
    yield wedged(engine, None, saw(f"{text}; {more}", owed[-1].at, owed=owed[-1].value), True)


def wedged_by_report(engine: EngineView) -> Iterator[Verdict]:
    """As above on gauges: running above 0 beside a throughput of 0, which no leftover of a busy batch shows."""
    pages = [p for p in engine.pages if (p.value.total(Gauge.RUNNING) or 0) >= 1]
    if len(pages) < 3 or len(pages) != len(engine.pages) or pages[-1].t - pages[0].t < WEDGED_S:
        return
    if any(engine.fresh_rows(dp) for dp in engine.dps) or token_signs(engine):
        return
    rates = [p.value.total(Gauge.GEN_THROUGHPUT) for p in pages]
    if any(rate is None or rate > 0.01 for rate in rates):
        return
    still = engine.still_since()
    if still is None or pages[-1].t - still < WEDGED_S:
        return
    text = f"running {pages[-1].value.total(Gauge.RUNNING):g} with 0 tokens/s in {len(pages)} samples, no counter moved"
    yield wedged(engine, None, saw(text, pages[-1]), bool(engine.http_active() and floor_of(engine.http_active()) >= 1))


def wedged(engine: EngineView, dp: int | None, evidence: Evidence, sure: bool) -> Verdict:
    """The finding."""
    more = tuple(hung_stacks(engine))
    return found(
        "engine-wedged",
        engine.name,
        f"requests run on {engine.name} but no token comes out",
        confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
        evidence=(evidence, Evidence("no scheduled or generated token, batch line or KV growth meanwhile"), *more),
        rank=engine.rank_to_name(dp),
        limits=("where the batch hangs is not reported: two stack dumps some seconds apart tell",),
        next=(f"pdctl stacks {engine.name}", "pdctl explain engine-wedged"),
    )


def hung_stacks(engine: EngineView) -> Iterator[Evidence]:
    if not engine.window.asked(engine.name, Fact.STACKS):
        return
    from pdctl.model.host import Stacks

    dumps: tuple[At[Stacks], ...] = engine.window.seen(engine.name, Fact.STACKS, Stacks)
    if len(dumps) >= 2:
        yield saw(f"{len(dumps)} stack dumps are at hand", dumps[-1])


assert FROZEN_S > FRESH_S

CHECKS = (
    Check(
        "scheduler",
        "schedulers that do not turn, engines that run without producing",
        ("scheduler-stopped", "engine-wedged"),
        (Fact.METRICS, Fact.LOADS),
        judge,
    ),
)
