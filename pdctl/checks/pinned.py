"""request-pinned: is something stuck between prefill and decode?

Sources by what the release can prove, best first: live queue counts; the counters of request stages, exact on 0.5.3 and
later but for drift; the count of HTTP requests an engine still owes an answer; a gauge that would have been rewritten
had the engine been idle; the router's own count. Each rule needs a second signal for "certain". Where requests flow, a
floor under the readings is turnover until shown otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from pdctl.checks.base import Check, Verdict
from pdctl.checks.pinned_flow import judge_under_flow
from pdctl.checks.pinned_gauge import judge_by_gauge
from pdctl.checks.pinned_http import judge_by_http
from pdctl.checks.pinned_live import judge_live_decode, judge_live_prefill
from pdctl.checks.pinned_stage import judge_by_stages, judge_stage_decode
from pdctl.checks.pinned_sums import judge_by_sums, judge_sums_decode
from pdctl.checks.view import ClusterView, EngineView, view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Finding, RuledOut, Unchecked
from pdctl.model.window import Window

RULES = (judge_live_prefill, judge_under_flow, judge_by_stages, judge_by_http, judge_by_sums, judge_by_gauge)


@lru_cache(maxsize=4)
def judge(window: Window, cluster: Cluster) -> tuple[Verdict, ...]:
    """One verdict an engine: pinned, ruled out, or why it can't be told; what was found comes first. Remembered for the
    last few windows, as their views are: the checks of timeouts and gauges and the end of a look ask for it too."""
    view = view_of(window, cluster)
    told = [verdict for prefill in view.prefills for verdict in first_verdict(view, prefill)]
    for decode in view.decodes:
        told += judge_decode(view, decode, tuple(v for v in told if isinstance(v, Finding)))
    return tuple(sorted(told, key=lambda verdict: not isinstance(verdict, Finding)))


def judge_decode(view: ClusterView, decode: EngineView, known: tuple[Finding, ...]) -> Iterator[Verdict]:
    """A decode that waits for what no prefill has; where a prefill holds something, that is the one to name."""
    yield from judge_live_decode(view, decode, known)
    if not known:
        by_stage = tuple(judge_stage_decode(view, decode))
        yield from by_stage or judge_sums_decode(view, decode)


def first_verdict(view: ClusterView, prefill: EngineView) -> Iterator[Verdict]:
    """The verdicts of the first rule that can tell; a rule that can't yields nothing, or why (kept for last)."""
    reasons: list[Verdict] = []
    for rule in RULES:
        verdicts = tuple(rule(view, prefill))
        reasons.extend(v for v in verdicts if isinstance(v, Unchecked))
        told = tuple(v for v in verdicts if isinstance(v, Finding) or (isinstance(v, RuledOut) and not reasons))
        if told:
            yield from told
            return
    if not prefill.pages and not prefill.loads:
        yield Unchecked("request-pinned", prefill.name, "neither its metrics nor its live queue counts could be read")
        return
    yield reasons[0] if reasons else Unchecked("request-pinned", prefill.name, why_not(prefill))


def why_not(prefill: EngineView) -> str:
    """Why no rule could tell, and what would settle it."""
    seconds = prefill.pages[-1].t - prefill.pages[0].t if len(prefill.pages) > 1 else 0.0
    if seconds < 35.0:
        return f"{seconds:.0f} s of samples are too few for what this release can prove; sample for 60 s"
    return "nothing this release reports can prove or exclude it; its stacks would (pdctl stacks)"


CHECKS = (
    Check(
        "pinned",
        "requests that sit between prefill and decode and will not leave by themselves",
        ("request-pinned",),
        (Fact.METRICS, Fact.LOADS),
        judge,
    ),
)
