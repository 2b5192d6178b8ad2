"""keepalive-stale: fresh connections work, reused ones fail once they sat idle for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.listings import by_subject, ports_of
from pdctl.checks.probe_paths import Path, named, paths_of
from pdctl.checks.probe_waits import explained
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.events import Kind, Log
from pdctl.model.finding import Confidence, Evidence, RuledOut
from pdctl.model.probe import Attempt
from pdctl.model.window import Window

# Idle timeouts as shipped, in seconds. uvicorn serves the engines: --timeout-keep-alive, SGLANG_TIMEOUT_KEEP_ALIVE.
DEFAULTS = (
    (2.0, "gunicorn's keepalive"),
    (5.0, "uvicorn's --timeout-keep-alive, and Node's keepAliveTimeout"),
    (60.0, "an AWS application load balancer's idle timeout"),
    (75.0, "nginx's keepalive_timeout"),
    (240.0, "an Azure load balancer's idle timeout"),
    (300.0, "Caddy's idle timeout"),
    (350.0, "an AWS network load balancer's idle timeout"),
    (600.0, "a Google Cloud load balancer's idle timeout"),
    (3600.0, "envoy's idle_timeout"),
    (7200.0, "Linux's tcp_keepalive_time"),
)
SEEN_LATE = 0.3  # seconds after which a closing is seen at the latest


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each path on which a connection was used again after an idle time."""
    for path in paths_of(window):
        idle = [a for a in path.reused if a.idle_s is not None]
        if not idle or not path.alone or not all(a.good for a in path.alone):
            continue
        held = explained(window, cluster, path)
        closed = [a for a in path.closed if a.idle_s is not None and a not in held]
        if not closed and held:
            continue
        if not closed:
            longest = max((a.idle_s or 0.0) for a in idle if a.good) if path.good else 0.0
            yield RuledOut("keepalive-stale", path.to, f"a reused connection works after up to {longest:g} s idle")
        else:
            yield borne(window, cluster, path, closed) or finding(window, cluster, path, closed)


def borne(window: Window, cluster: Cluster, path: Path, closed: list[Attempt]) -> RuledOut | None:
    """Why it hurts nobody that an engine closes idle connections by itself (each one does, by default): what reaches it
    through a router, its only client, was answered after longer gaps, and no other trace of failures was seen."""
    instance = cluster.instance(path.to)
    by_itself = all(a.closed_after_s is not None for a in closed)
    traces = (*half_closed(window, cluster, path.to), *upstream_errors(window, cluster))
    if instance is None or not instance.is_engine or not by_itself or traces:
        return None
    fails = min(a.idle_s or 0.0 for a in closed)
    routers = {router.name for router in cluster.routers}
    longest = [_longest(p) for p in paths_of(window) if p.to in routers and p.via == "direct" and p.alone]
    if not longest or min(longest) <= fails:
        return None
    after = median(a.closed_after_s or 0.0 for a in closed)
    known = [what for seconds, what in DEFAULTS if 0.95 * after - SEEN_LATE < seconds <= 1.05 * after]
    told = f" ({known[0]})" if known else ""
    return RuledOut(
        "keepalive-stale",
        path.to,
        f"it closes connections after {after:.1f} s without a request{told}; what came through every router after up "
        f"to {min(longest):g} s was answered all the same",
    )


def _longest(path: Path) -> float:
    """The longest gap up to which every request on a connection that sat idle was answered."""
    fails = min((a.idle_s for a in path.reused if not a.good and a.idle_s is not None), default=float("inf"))
    return max((a.idle_s for a in path.good if a.idle_s is not None and a.idle_s < fails), default=0.0)


def finding(window: Window, cluster: Cluster, path: Path, closed: list[Attempt]) -> Verdict:
    """The finding for one path."""
    fails = min(a.idle_s or 0.0 for a in closed)
    works = max((a.idle_s or 0.0 for a in path.good if (a.idle_s or 0.0) < fails), default=None)
    mixed = [a.idle_s for a in path.good if (a.idle_s or 0.0) > fails]
    seen_closing = tuple(announced(path, closed))
    support = [*seen_closing, *half_closed(window, cluster, path.to), *upstream_errors(window, cluster)]
    evidence = [
        saw(f"{sum(a.good for a in path.fresh)} fresh connections answered", path.seen),
        saw(f"reused connections by idle time: {shown(path.reused)}", path.seen, works_to=works, fails_from=fails),
        *support,
    ]
    sure = bool(support) and not mixed and (len(closed) > 1 or bool(seen_closing))
    return found(
        "keepalive-stale",
        path.to,
        summary(path, cluster, works, fails, seen_closing),
        confidence=Confidence.CERTAIN if sure else Confidence.POSSIBLE if mixed else Confidence.LIKELY,
        evidence=evidence,
        since=path.seen.seen.at,
        against=[f"a reused connection also worked after {max(m or 0.0 for m in mixed):g} s"] if mixed else (),
        limits=limits(bool(support), bool(seen_closing)),
        next=(f"pdctl probe {path.to}", f"pdctl sockets {path.to}", "pdctl explain keepalive-stale"),
    )


def summary(
    path: Path, cluster: Cluster, works: float | None, fails: float, seen_closing: tuple[Evidence, ...] = ()
) -> str:
    """Up to where it works, from where it fails, and which known timeout lies between, or was seen."""
    way = named(path, cluster)
    if works is None:
        return (
            f"{way}: fresh connections work, reused ones fail after {fails:g} s idle and more (none was seen to work)"
        )
    between = f"the keep-alive timeout lies between {works:g} and {fails:g} s"
    low, high = works, fails
    if seen_closing:
        after = float(str(seen_closing[0].values["closed_after"]))
        between = f"it closes them after {after:.1f} s"
        low, high = 0.95 * after - SEEN_LATE, 1.05 * after
    known = [f"{seconds:g} s is {what}" for seconds, what in DEFAULTS if low < seconds <= high]
    hint = f" ({'; '.join(known)})" if known else ""
    return f"{way}: reused connections work up to {works:g} s idle and fail from {fails:g} s on: {between}{hint}"


def announced(path: Path, closed: list[Attempt]) -> Iterator[Evidence]:
    """The other end was seen to close idle connections, and after how long."""
    after = sorted(a.closed_after_s for a in closed if a.closed_after_s is not None)
    if after:
        times = f"{after[0]:.1f}" if after[-1] - after[0] < 0.5 else f"{after[0]:.1f} to {after[-1]:.1f}"
        text = f"it closed {len(after)} of {len(closed)} connections by itself, after {times} s without a request"
        yield saw(text, path.seen, closed_after=median(after))


def limits(supported: bool, announced: bool) -> tuple[str, ...]:
    if announced:
        return (
            "who looks at a connection before using it again sees that it was closed: whether the clients here do is "
            "not shown",
        )
    if supported:
        return ()
    return ("the probe alone: neither sockets in CLOSE-WAIT nor errors in the router's log were seen",)


def shown(attempts: tuple[Attempt, ...]) -> str:
    ordered = sorted((a for a in attempts if a.idle_s is not None), key=lambda a: a.idle_s or 0.0)
    return ", ".join(f"{a.idle_s:g} s {'ok' if a.good else a.error or a.status}" for a in ordered)


def half_closed(window: Window, cluster: Cluster, name: str) -> Iterator[Evidence]:
    """Connections to the instance that it has closed and the other side still keeps."""
    instance = cluster.instance(name)
    ports = ports_of(instance) if instance else ()
    for listings in by_subject(window).values():
        kept = [r for r in listings[-1].rows if r.state == "CLOSE-WAIT" and r.peer_port in ports]
        left = [r for r in listings[-1].rows if r.state == "FIN-WAIT-2" and r.local_port in ports]
        if kept:
            yield saw(f"{len(kept)} connections to it sit in CLOSE-WAIT: closed there, kept here", listings[-1].at)
        if left:
            yield saw(f"{len(left)} of its connections sit in FIN-WAIT-2: it closed, the other side did not",
                      listings[-1].at)  # fmt: skip


def upstream_errors(window: Window, cluster: Cluster) -> Iterator[Evidence]:
    """A router's log says that it could not send a request to a worker."""
    for router in cluster.routers:
        for seen in window.seen(router.name, Fact.LOG, Log):
            failed = [
                e for e in seen.value.of(Kind.ROUTER_WORKER_ERROR, Kind.ROUTER_ERROR) if "sending request" in e.text
            ]
            if failed:
                yield saw(f"{router.name} logged {len(failed)} failures to send a request to a worker", seen)


CHECKS = (
    Check(
        "keepalive",
        "reused connections that fail after an idle time",
        ("keepalive-stale",),
        (Fact.PROBE,),
        judge,
    ),
)
