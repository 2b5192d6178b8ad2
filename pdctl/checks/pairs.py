"""transfer-pair-broken and heartbeat-starved: what fails between one prefill and one decode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from urllib.parse import urlsplit

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.view import ClusterView, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.events import Event, Kind
from pdctl.model.finding import Confidence, Evidence, Unchecked
from pdctl.model.window import Window

FAILURES = (Kind.TRANSFER_FAILED, Kind.DECODE_TRANSFER_FAILED, Kind.HANDSHAKE_FAILED, Kind.BOOTSTRAP_FAILED)
LEAST_ROOMS = 3
RECENT_S = 60.0  # log lines this much older than the window's start still speak of now
SLOW_S = 2.0  # decode's heartbeat waits (2, 3) s for the bootstrap server's /health
ABORT_WORDS = ("abort", "disconnect", "cancel")


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each pair of a prefill and a decode, each decode that lost a prefill."""
    view = view_of(window, cluster)
    for prefill in view.prefills:
        for decode in view.decodes:
            yield from judge_pair(view, prefill, decode)
    for decode in view.decodes:
        yield from judge_heartbeat(view, decode)


def judge_pair(view: ClusterView, prefill: EngineView, decode: EngineView) -> Iterator[Verdict]:
    """transfer-pair-broken when this pair's transfers fail and none of them succeeds."""
    rooms = pair_failures(view, prefill, decode)
    counted = 0.0 if len(view.prefills) * len(view.decodes) > 1 else counted_failures(prefill, decode)
    if len(rooms) < LEAST_ROOMS and counted < LEAST_ROOMS:
        return
    if succeeded(prefill, decode):
        return
    pair = f"{prefill.name}->{decode.name}"
    others = [d.name for d in view.decodes if d is not decode and works(d)]
    evidence = [*room_evidence(rooms, prefill, decode), *counter_evidence(prefill, decode)]
    evidence += [Evidence(f"{name} finishes requests meanwhile", instance=name) for name in others]
    now = counted > 0 or any(e.when is None or e.when >= view.window.start for e in rooms.values())
    word = "fail and none succeeds" if now else "failed just before this window, and none was tried since"
    sure = Confidence.CERTAIN if len(evidence) >= 2 and others else Confidence.LIKELY
    yield found(
        "transfer-pair-broken",
        pair,
        f"KV transfers {prefill.name} to {decode.name} {word}" + (f"; {', '.join(others)} work(s)" if others else ""),
        confidence=sure if now else Confidence.POSSIBLE,
        evidence=evidence,
        limits=() if others else ("no other pair is there, or works, to compare with",),
        next=(f"pdctl logs {prefill.name} {decode.name} --failures", "pdctl explain transfer-pair-broken"),
    )


def pair_failures(view: ClusterView, prefill: EngineView, decode: EngineView) -> dict[str, Event]:
    """Failed rooms of the pair that no client gave up, newest lines of both logs; several ranks' lines are one room."""
    rooms: dict[str, Event] = {}
    several = len(view.prefills) * len(view.decodes) > 1
    for engine, peer in ((prefill, decode), (decode, prefill)):
        for event in recent(engine):
            if event.kind in FAILURES and not aborted(event) and (not several or names_peer(event, peer)):
                rooms.setdefault(event.words.get("room") or f"line {event.line}", event)
    return rooms


def recent(engine: EngineView) -> tuple[Event, ...]:
    """Events of the window, with a margin before it."""
    start = engine.window.start - timedelta(seconds=RECENT_S)
    return tuple(e for e in engine.log if e.when is None or e.when >= start)


def aborted(event: Event) -> bool:
    """Whether the failure is a client's or the other side's abort: no fault of the transfer."""
    reason = (event.words.get("reason") or event.text).lower()
    return any(word in reason for word in ABORT_WORDS)


def names_peer(event: Event, peer: EngineView) -> bool:
    """Whether a record names the peer's address."""
    host = urlsplit(peer.instance.url or "").hostname
    said = event.words.get("peer") or event.words.get("addr") or event.text
    return bool(host) and str(host) in said


def counted_failures(prefill: EngineView, decode: EngineView) -> float:
    """Failed transfers in the window by the engines' counters, less those that aborts explain."""
    failed = max(
        prefill.growth(Gauge.TRANSFER_FAILED) or 0.0,
        decode.growth(Gauge.TRANSFER_FAILED) or 0.0,
    )
    gone = max(prefill.growth(Gauge.ABORTED) or 0.0, decode.growth(Gauge.ABORTED) or 0.0)
    return max(0.0, failed - gone)


def succeeded(prefill: EngineView, decode: EngineView) -> bool:
    """Whether a request got through the pair in the window."""
    done = [prefill.growth(Gauge.TRANSFERS_DONE), decode.growth(Gauge.GENERATION_TOKENS), decode.growth(Gauge.REQUESTS)]
    return any(d for d in done)


def works(decode: EngineView) -> bool:
    return bool(decode.growth(Gauge.GENERATION_TOKENS) or decode.growth(Gauge.REQUESTS))


def room_evidence(rooms: dict[str, Event], prefill: EngineView, decode: EngineView) -> Iterator[Evidence]:
    if not rooms:
        return
    reasons = Counter(e.words.get("reason") or e.kind for e in rooms.values())
    reason, most = reasons.most_common(1)[0]
    last = next(reversed(rooms.values()))
    yield Evidence(
        f"{len(rooms)} rooms failed by the logs, {most} with: {reason}",
        last.when,
        prefill.name,
    )


def counter_evidence(prefill: EngineView, decode: EngineView) -> Iterator[Evidence]:
    for engine in (prefill, decode):
        grown = engine.growth(Gauge.TRANSFER_FAILED)
        if grown and engine.pages:
            yield saw(
                f"{grown:g} failed transfers counted in the window, none finished", engine.pages[-1], failed=grown
            )


def judge_heartbeat(view: ClusterView, decode: EngineView) -> Iterator[Verdict]:
    """heartbeat-starved when a decode lost a prefill that was alive all along and slow to answer."""
    lost = [e for e in recent(decode) if e.kind == Kind.LOST_PREFILL]
    if not lost:
        return
    for prefill in view.prefills:
        if (len(view.prefills) > 1 and not any(names_peer(e, prefill) for e in lost)) or prefill.restarted:
            continue
        pages = view.window.seen(prefill.name, Fact.METRICS, EngineMetrics)
        slow = [p for p in pages if p.seen.took >= SLOW_S]
        if not pages or len(pages) < 2:
            yield Unchecked("heartbeat-starved", decode.name, f"{prefill.name} was not seen alive around the loss")
            continue
        if slow:
            yield starved_finding(decode, prefill, lost, slow[-1].seen.took)


def starved_finding(decode: EngineView, prefill: EngineView, lost: list[Event], took: float) -> Verdict:
    last = lost[-1]
    return found(
        "heartbeat-starved",
        f"{prefill.name}->{decode.name}",
        f"{decode.name} declared {prefill.name} lost while it was alive: its HTTP loop answers slowly ({took:.1f} s)",
        confidence=Confidence.LIKELY,
        evidence=(
            Evidence(f"{len(lost)} time(s) in its log: {last.text[:120]}", last.when, decode.name),
            saw(f"{prefill.name} answered all the while, without a restart", prefill.pages[-1]),
        ),
        limits=("what starves the loop (scraping, tokenisation, logging) is not shown here",),
        next=(f"pdctl stacks {prefill.name}", f"pdctl sockets {prefill.name}", "pdctl explain heartbeat-starved"),
    )


CHECKS = (
    Check(
        "pairs",
        "transfers and heartbeats between one prefill and one decode",
        ("transfer-pair-broken", "heartbeat-starved"),
        (Fact.METRICS, Fact.LOG),
        judge,
    ),
)
