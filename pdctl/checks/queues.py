"""Queues that stand although they should move: starvation, a wedged prealloc, leaked transfer slots, a blocked head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.handoff import STEPS, counted, undrifted
from pdctl.checks.memory import FREE_BELOW, FULL_FROM, queue_readings, starved, token_signs, usage
from pdctl.checks.plateau import floor_of, mean_of, plateau, series_text
from pdctl.checks.trust import Counts
from pdctl.checks.view import ClusterView, Count, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import Gauge
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked
from pdctl.model.window import Window

STANDING_S, LIVE_S = 20.0, 8.0
MANY_SLOTS = 8  # transfer slots held by one decode that make it a leak of slots rather than a stuck request
GROWTH_READINGS = 3


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each decode's memory and slots, each engine's waiting queue."""
    view = view_of(window, cluster)
    for decode in view.decodes:
        yield from judge_decode(view, decode)
    for engine in view.engines:
        yield from judge_head(engine)


def judge_decode(view: ClusterView, decode: EngineView) -> Iterator[Verdict]:
    """At most one of starved, wedged and slots stuck: they exclude one another."""
    stuck = tuple(judge_slots(view, decode))
    if stuck:
        yield from stuck
        return
    reasons = starved(decode)
    if reasons:
        yield from judge_starved(view, decode, reasons)
        return
    yield from judge_prealloc(decode)


def judge_starved(view: ClusterView, decode: EngineView, reasons: tuple[str, ...]) -> Iterator[Verdict]:
    """decode-starved when requests stand in prealloc while tokens come out, and more than one waits."""
    waiting, live = total_readings(decode, Gauge.PREALLOC)
    if mean_of(waiting) < 2 or waiting[-1].t - waiting[0].t < STANDING_S:
        return
    used = usage(decode)
    evidence = [
        saw(f"{'live ' if live else ''}prealloc: {series_text(waiting)}", waiting[-1].at, floor=floor_of(waiting))
    ]
    evidence += [
        saw(f"tokens come out: {reason}", decode.pages[-1] if decode.pages else None) for reason in reasons[1:]
    ]
    evidence += usage_evidence(decode, used)
    evidence += upstream(view)
    full = used is not None and used[0] >= FULL_FROM - 0.15
    yield found(
        "decode-starved",
        decode.name,
        f"{waiting[-1].value:g} request(s) wait for KV memory on {decode.name}, never fewer than {floor_of(waiting):g}"
        ", while it works: capacity, not a leak",
        confidence=Confidence.CERTAIN if full or live else Confidence.LIKELY,
        evidence=evidence,
        since=waiting[0].at.seen.at,
        against=()
        if full or used is None
        else (f"usage reads only {used[0]:.2f}: admission reserves room for output",),
        limits=("whether the load or the memory is out of the ordinary: compare with a capture of a good hour",),
        next=("pdctl sample --until draining", "pdctl explain decode-starved"),
    )
    yield RuledOut("prealloc-wedged", decode.name, "tokens come out, so prealloc moves")


def usage_evidence(engine: EngineView, used: tuple[float, Count] | None) -> list[Evidence]:
    return [saw(f"KV usage {used[0]:.2f}", used[1].at, token_usage=used[0])] if used else []


def upstream(view: ClusterView) -> Iterator[Evidence]:
    """What the prefills hold back meanwhile."""
    for prefill in view.prefills:
        readings, live = total_readings(prefill, Gauge.BOOTSTRAP)
        if live and readings and floor_of(readings) >= 1:
            yield saw(f"live bootstrap of {prefill.name}: {series_text(readings)}", readings[-1].at)


def judge_prealloc(decode: EngineView) -> Iterator[Verdict]:
    """prealloc-wedged when requests stand in prealloc, nothing runs, no token comes out and memory is free."""
    waiting, live = total_readings(decode, Gauge.PREALLOC)
    owed = () if live else all_in_prealloc(decode)
    flat = plateau(owed or waiting)
    if flat is None or flat.seconds < STANDING_S or len(flat.readings) < GROWTH_READINGS:
        return
    start = flat.readings[0].t
    if not live and not owed and not (flat.last > flat.stayed or written_since(decode, start)):
        return  # a gauge that nobody rewrote may be any age
    running, _ = total_readings(decode, Gauge.RUNNING, start)
    transfers, _ = total_readings(decode, Gauge.TRANSFER, start)
    used = usage(decode)
    runs = not owed and running and running[-1].value > 0
    if runs or token_signs(decode, start) or (transfers and transfers[-1].value > 0):
        return
    if used is None:
        yield Unchecked("prealloc-wedged", decode.name, "its KV usage could not be read")
        return
    if used[0] >= FREE_BELOW:
        return
    evidence = [saw(f"{'live ' if live else ''}prealloc: {series_text(flat.readings)}", flat.readings[-1].at)]
    if owed:
        counts = counted(decode, Gauge.PREALLOC, None, start)
        text = "all that its front end owes; no token came out, no batch ran"
        evidence.append(saw(f"prealloc by the stage counters: {series_text(counts)}, {text}", counts[-1].at))
    evidence += [saw(f"running: {series_text(running)}", running[-1].at)] if running and not owed else []
    evidence += usage_evidence(decode, used)
    yield found(
        "prealloc-wedged",
        decode.name,
        f"{flat.stayed:g} request(s) stand in {decode.name}'s prealloc queue for {flat.seconds:.0f} s although memory "
        f"is free (usage {used[0]:.2f}) and nothing runs",
        confidence=Confidence.CERTAIN if live or owed else Confidence.LIKELY,
        evidence=evidence,
        since=flat.readings[0].at.seen.at,
        limits=(
            "whether the handshake with the prefill's bootstrap server or the admission is stuck: decode's log tells",
        ),
        next=(f"pdctl logs {decode.name} --failures", f"pdctl stacks {decode.name}", "pdctl explain prealloc-wedged"),
    )


def all_in_prealloc(decode: EngineView) -> tuple[Count, ...]:
    """How many answers a decode owes, where its stage counters leave no fewer than these in prealloc on every page: of
    0.5.10 to 0.5.18, whose live counts stand while something is stuck. There may be more of them in prealloc, as health
    checks queue there that are owed to nobody. () where some may be elsewhere."""
    if not decode.traits.http_active_streams or decode.traits.counts == Counts.LIVE:
        return ()
    owed = {count.t: count.value for count in decode.http_active()}
    held = counted(decode, Gauge.PREALLOC, None)
    if any(not 1 <= owed.get(count.t, 0.0) <= count.value for count in held):
        return ()
    return tuple(Count(count.t, owed[count.t], count.at) for count in held)


def judge_slots(view: ClusterView, decode: EngineView) -> Iterator[Verdict]:
    """transfer-stuck when many transfer slots of every rank stand still while memory is free."""
    per_rank = [queue_readings(decode, Gauge.TRANSFER, dp) for dp in decode.dps]
    if not per_rank or any(len(r) < GROWTH_READINGS or floor_of(r) < 1 for r, _ in per_rank):
        return
    flats = [plateau(r) for r, _ in per_rank]
    held = sum(f.stayed for f in flats if f)
    seconds = min((f.seconds for f in flats if f), default=0.0)
    start = max((f.readings[0].t for f in flats if f), default=0.0)
    live = all(is_live for _, is_live in per_rank)
    quick = live and decode.still_since() == 0.0  # live counts that stand while nothing at all finishes
    if any(f is None for f in flats) or held < MANY_SLOTS or seconds < (LIVE_S if quick else 2 * STANDING_S):
        return
    if not live and not written_since(decode, start):
        yield Unchecked(
            "transfer-stuck", decode.name, "its transfer gauge stands, but nothing shows that it is rewritten"
        )
        return
    used = usage(decode)
    if used is None or used[0] >= FREE_BELOW:
        return
    if why := held_up_before(view, held, start):
        yield Unchecked("transfer-stuck", decode.name, f"{held:g} transfer slots stand, {why}")
        return
    first = flats[0]
    assert first is not None
    evidence = [
        saw(f"transfer of {rank}: {series_text(r)}", r[-1].at)
        for rank, (r, _) in zip(names(decode), per_rank, strict=True)
    ]
    yield found(
        "transfer-stuck",
        decode.name,
        f"{held:g} transfer slots of {decode.name} are held without progress for {seconds:.0f} s while memory is free "
        f"(usage {used[0]:.2f})",
        confidence=Confidence.CERTAIN if live or len(per_rank) > 1 else Confidence.LIKELY,
        evidence=(*evidence, *usage_evidence(decode, used), *written_evidence(decode, start)),
        since=first.readings[0].at.seen.at,
        limits=(
            "whether slots leaked or the transfer backend is dead: failures in both logs and prefill's stacks tell",
        ),
        next=(f"pdctl logs {decode.name} --failures", f"pdctl stacks {decode.name}", "pdctl explain transfer-stuck"),
    )


def held_up_before(view: ClusterView, held: float, since: float) -> str | None:
    """Why transfers stand that have not begun: a room is in decode's transfer queue from its handshake on, while the
    request still waits in prefill for its forward pass."""
    for prefill in view.prefills:
        waiting = sum(
            r[-1].value for q in (Gauge.QUEUE, Gauge.BOOTSTRAP) if (r := total_readings(prefill, q, since)[0])
        )
        if waiting >= held / 2:
            return f"as {waiting:g} requests still wait in {prefill.name} before their forward pass"
        if prefill.pages and prefill.traits.known and prefill.alive(since) is None:
            return f"and nothing shows that the scheduler of {prefill.name} turns"
    return None


def names(engine: EngineView) -> list[str]:
    return [engine.name if dp is None else f"{engine.name} dp{dp}" for dp in engine.dps]


def written_since(engine: EngineView, since: float) -> bool:
    """Whether the gauges were rewritten after ``since``: batches ran, by line or counter."""
    return bool(engine.batches_since(since)) or bool(engine.growth(Gauge.GENERATION_TOKENS, since=since))


def written_evidence(engine: EngineView, since: float) -> Iterator[Evidence]:
    lines = engine.batch_lines(since)
    if lines:
        yield saw(f"{len(lines)} batch lines were logged meanwhile, so the gauges are of now")


def judge_head(engine: EngineView) -> Iterator[Verdict]:
    """queue-head-blocked when the waiting queue grows, or stands, in an engine that runs nothing."""
    for dp in engine.dps:
        waiting, live = queue_readings(engine, Gauge.QUEUE, dp)
        flat = plateau(waiting)
        if flat is None or flat.seconds < STANDING_S or len(flat.readings) < GROWTH_READINGS:
            continue
        grew = flat.last > flat.stayed
        if not live and not grew:
            continue
        start = flat.readings[0].t
        running, _ = queue_readings(engine, Gauge.RUNNING, dp, start)
        if not running or any(r.value > 0 for r in running) or token_signs(engine, start):
            continue
        held = [queue_readings(engine, q, dp, start)[0] for q in (Gauge.INFLIGHT, Gauge.TRANSFER)]
        if any(r and r[-1].value > 0 for r in held) or (engine.batches_since(start, dp) and not grew):
            continue
        yield head_finding(engine, dp, flat.readings, running, live)


def head_finding(
    engine: EngineView, dp: int | None, waiting: tuple[Count, ...], running: tuple[Count, ...], live: bool
) -> Verdict:
    """The finding for one rank's waiting queue."""
    used = usage(engine)
    return found(
        "queue-head-blocked",
        engine.name,
        f"{waiting[-1].value:g} request(s) wait in {engine.name} while nothing runs there: the first can't be admitted",
        confidence=Confidence.CERTAIN if live and len(waiting) >= 5 else Confidence.LIKELY,
        evidence=(
            saw(f"{'live ' if live else ''}waiting: {series_text(waiting)}", waiting[-1].at),
            saw(f"running: {series_text(running)}", running[-1].at),
            *usage_evidence(engine, used),
        ),
        rank=engine.rank_to_name(dp),
        since=waiting[0].at.seen.at,
        limits=("why the head is not admitted (longer than the pool, grammar, LoRA, a lock) is not reported",),
        next=(f"pdctl logs {engine.name}", f"pdctl stacks {engine.name}", "pdctl explain queue-head-blocked"),
    )


def total_readings(engine: EngineView, queue: Gauge, since: float = 0.0) -> tuple[tuple[Count, ...], bool]:
    """The whole engine's readings of a queue and whether they are live."""
    live = engine.live_total(queue, since) or (undrifted(engine, queue, None, since) if queue in STEPS else ())
    if live:
        return live, True
    rows = [Count(p.t, v, p) for p in engine.pages if (v := p.value.total(queue)) is not None and p.t >= since]
    return tuple(rows), False


CHECKS = (
    Check(
        "queues",
        "queues that stand although they should move",
        ("decode-starved", "prealloc-wedged", "transfer-stuck", "queue-head-blocked"),
        (Fact.METRICS, Fact.LOADS),
        judge,
    ),
)
