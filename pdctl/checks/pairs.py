"""transfer-pair-broken and heartbeat-starved: what fails between one prefill and one decode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from urllib.parse import urlsplit

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.memory import token_signs
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
    counted = counted_failures(view, prefill, decode)
    if (len(rooms) < LEAST_ROOMS and counted < LEAST_ROOMS) or works(decode):
        return
    pair = f"{prefill.name}->{decode.name}"
    others = [d.name for d in view.decodes if d is not decode and works(d)]
    evidence = [*room_evidence(rooms, prefill, decode), *counter_evidence(view, prefill, decode)]
    evidence += [Evidence(f"{name} generates meanwhile", instance=name) for name in others]
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
    """The pair's failed rooms that no client gave up; several ranks' lines are one room. A room belongs to the pair
    whose two logs both name it, else to the peer whose address the line names, else to the only one there is."""
    ours = {(e.words.get("room") or f"{prefill.name} line {e.line}"): e for e in failures(prefill)}
    theirs = {(e.words.get("room") or f"{decode.name} line {e.line}"): e for e in failures(decode)}
    rooms = {room: event for room, event in ours.items() if room in theirs}
    rooms |= {r: e for r, e in ours.items() if belongs(e, decode, view.decodes)}
    rooms |= {r: e for r, e in theirs.items() if belongs(e, prefill, view.prefills)}
    return rooms


def failures(engine: EngineView) -> list[Event]:
    return [event for event in recent(engine) if event.kind in FAILURES and not aborted(event)]


def belongs(event: Event, peer: EngineView, peers: tuple[EngineView, ...]) -> bool:
    """Whether a failure is one with this peer, going by the line alone: there is no other, or its address is named and
    no other's is the same."""
    if len(peers) == 1:
        return True
    return names_peer(event, peer) and sum(names_peer(event, other) for other in peers) == 1


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


def counted_failures(view: ClusterView, prefill: EngineView, decode: EngineView) -> float:
    """The pair's failed transfers in the window by counters, less those that aborts explain: each side's own count
    where the other side is the only one of its role."""
    sides = [e for e, peers in ((prefill, view.decodes), (decode, view.prefills)) if len(peers) == 1]
    return max((net_failures(e) for e in sides), default=0.0)


def net_failures(engine: EngineView) -> float:
    failed, gone = engine.growth(Gauge.TRANSFER_FAILED) or 0.0, engine.growth(Gauge.ABORTED) or 0.0
    return max(0.0, failed - gone)


def works(decode: EngineView) -> bool:
    """Whether a request got through to this decode in the window: it generated. (Its count of requests includes failed
    ones.)"""
    return bool(token_signs(decode))


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


def counter_evidence(view: ClusterView, prefill: EngineView, decode: EngineView) -> Iterator[Evidence]:
    for engine, peers in ((prefill, view.decodes), (decode, view.prefills)):
        grown = engine.growth(Gauge.TRANSFER_FAILED) if len(peers) == 1 else None
        if grown and engine.pages:
            text = f"{grown:g} failed transfers counted in the window, no token generated"
            yield saw(text, engine.pages[-1], failed=grown)


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
