"""watchdog-silent: a timeout that bounds a pinned request has long passed, and nothing fired.

Which timeouts there are: SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT on prefill, only while Bootstrapping (120 s in 0.4.9,
300 s from 0.5.3; nixl from 0.5.19); SGLANG_DISAGGREGATION_WAITING_TIMEOUT on decode, only while WaitingForInput (300 s
from 0.5.3; nixl from 0.5.6). No release has one for a prefill sender that transfers, and the scheduler watchdog needs a
current batch, so it never sees a pinned request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.pinned import judge as judge_pinned
from pdctl.checks.pinned_evidence import oldest
from pdctl.checks.view import ClusterView, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import ServerInfo
from pdctl.model.events import Kind
from pdctl.model.finding import Confidence, Evidence, Finding, Unchecked
from pdctl.model.router import RouterMetrics
from pdctl.model.window import Window

MARGIN = 1.2  # a timer is checked once a turn of a loop, and the router starts its own clock earlier
BOOTSTRAP = "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT"
WAITING = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT"
FIRED = (Kind.BOOTSTRAP_FAILED, Kind.TRANSFER_FAILED, Kind.DECODE_TRANSFER_FAILED, Kind.HANDSHAKE_FAILED)


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """For each pinned finding: the timeout that bounds it, and whether it should have fired by now."""
    view = view_of(window, cluster)
    for pinned in judge_pinned(window, cluster):
        if isinstance(pinned, Finding):
            yield from judge_one(view, pinned)


def judge_one(view: ClusterView, pinned: Finding) -> Iterator[Verdict]:
    engine = next((e for e in view.engines if e.name == pinned.subject), None)
    if engine is None:
        return
    for holder, name in bounding(view, engine, pinned):
        limit, source = timeout_of(holder, name)
        if limit is None:
            continue
        age, how = age_of(view, pinned)
        if age < limit * MARGIN:
            text = f"{name} ({limit:.0f} s, {source}) need not have fired: it is pinned for at least {age:.0f} s"
            yield Unchecked("watchdog-silent", holder.name, text)
            continue
        if not fired(holder, pinned):
            yield silent(holder, name, limit, source, age, how)


def bounding(view: ClusterView, engine: EngineView, pinned: Finding) -> Iterator[tuple[EngineView, str]]:
    """Who holds the timer that bounds this request: prefill for one in bootstrap, decode for one in transfer."""
    if engine.is_prefill and "bootstrap" in pinned.summary:
        yield engine, BOOTSTRAP
    elif engine.is_prefill:
        yield from ((decode, WAITING) for decode in view.decodes[:1])
    else:
        yield engine, WAITING


def timeout_of(engine: EngineView, name: str) -> tuple[float | None, str]:
    """The configured timeout in seconds and where it was read: the process's environment, the engine's own answer, its
    script, else the release's default."""
    from pdctl.model.host import Environ, ScriptFile

    window, who = engine.window, engine.name
    environ = window.last(who, Fact.ENVIRON, Environ)
    info = window.last(who, Fact.SERVER_INFO, ServerInfo)
    script = window.last(who, Fact.SCRIPT, ScriptFile)
    for values, source in (
        (environ.value.values if environ else {}, "its environment"),
        (info.value.env if info else {}, "/server_info"),
        (script.value.variables if script else {}, "its script"),
    ):
        seconds = _seconds(values.get(name))
        if seconds is not None:
            return seconds, source
    default = engine.traits.bootstrap_timeout_s if name == BOOTSTRAP else engine.traits.waiting_timeout_s
    return default, f"default of {engine.release}"


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def age_of(view: ClusterView, pinned: Finding) -> tuple[float, str]:
    """For how long at least it has been pinned, in seconds, and by what: this window, or the router's ages."""
    best = ((view.window.end - pinned.since).total_seconds() if pinned.since else 0.0, "this window")
    for router in view.cluster.routers:
        page = view.window.last(router.name, Fact.METRICS, RouterMetrics)
        if page is None or not oldest(page.value):
            continue
        age = max(bucket.gt for bucket in page.value.ages if bucket.count > 0)
        if age > best[0]:
            best = (age, f"the ages {router.name} reports")
    return best


def fired(engine: EngineView, pinned: Finding) -> bool:
    """Whether the log shows a failure after the request was pinned."""
    since = pinned.since
    return any(e.kind in FIRED and (e.when is None or since is None or e.when >= since) for e in engine.log)


def silent(engine: EngineView, name: str, limit: float, source: str, age: float, how: str) -> Verdict:
    evidence = [Evidence(f"pinned for at least {age:.0f} s by {how}", engine.window.end, engine.name)]
    logs = engine.window.timeline(engine.name, Fact.LOG)
    if engine.log_seen and logs:
        evidence.append(
            Evidence("its log holds no failure of a transfer since", logs[-1].at, engine.name, logs[-1].ask)
        )
    info = engine.window.last(engine.name, Fact.SERVER_INFO, ServerInfo)
    if info is not None:
        evidence.append(saw(f"it runs release {engine.version}", info))
    return found(
        "watchdog-silent",
        engine.name,
        f"{name} is {limit:.0f} s ({source}), a request is pinned for at least {age:.0f} s, and nothing fired",
        confidence=Confidence.LIKELY if engine.log_seen else Confidence.POSSIBLE,
        evidence=evidence,
        limits=(
            "a request that is retried starts its timer anew, so the pinned one may be younger than its client",
            *(() if engine.log_seen else ("its log was not read, so a timeout may have fired unseen",)),
        ),
        next=(f"pdctl logs {engine.name} --failures", "pdctl explain watchdog-silent"),
    )


CHECKS = (
    Check(
        "watchdog",
        "timeouts that should have fired",
        ("watchdog-silent",),
        (Fact.METRICS, Fact.LOADS),
        judge,
    ),
)
