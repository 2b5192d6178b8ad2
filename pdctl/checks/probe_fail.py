"""What a probe's requests tell that no other rule names: paths that can't be reached, routers that refuse or hold,
answers that broke off or are not those asked for. Nothing that failed stays without a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pdctl.checks import connection_hang, keepalive, router
from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.memory import token_signs
from pdctl.checks.probe_evidence import counted_meanwhile, silent_engines, what_to_do
from pdctl.checks.probe_lost import lost_on
from pdctl.checks.probe_matrix import attempts_of, echoes, fate_of, trial_of, wrong_word
from pdctl.checks.probe_parts import HUNG, parts_of
from pdctl.checks.probe_paths import Path, named, paths_of
from pdctl.checks.probe_waits import explained
from pdctl.checks.quiet import idle_engines
from pdctl.checks.router import idle_evidence
from pdctl.checks.view import view_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Role
from pdctl.model.finding import Confidence, Evidence, Finding, RuledOut, Unchecked
from pdctl.model.probe import Attempt, Fate, Told
from pdctl.model.window import Window

INSIDE_OUT = (Role.PREFILL, Role.DECODE, Role.ROUTER, Role.PROXY)
# Errors of a connection on which no request was ever answered.
UNREACHED = frozenset({"connect-refused", "connect-timeout", "tls", "ssh", "auth", "reset", "other"})
# How routers say that they have no worker to give a request to (0.3.2 and 0.2.4, smg 1.13).
REFUSES = ("circuits open", "server_selection_failed", "no_available_workers")
ECHO = "that answers are the right ones"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A path, everything tried on it, and the attempts that went wrong, each with what became of it."""

    path: Path
    made: tuple[Attempt, ...]
    bad: tuple[tuple[Attempt, Fate], ...]

    @property
    def what(self) -> str:
        """What went wrong, the most frequent first: the same words for the same trouble on another path."""
        words = Counter(wrong_word(a, fate) or "" for a, fate in self.bad)
        return ", ".join(word for word, _ in words.most_common())

    def without(self, told: Callable[[Attempt, Fate], bool]) -> Trouble:
        """The trouble less what another rule tells of."""
        return replace(self, bad=tuple((a, fate) for a, fate in self.bad if not told(a, fate)))


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Paths from the inside out; what an inner path shows is not said again of the proxies in front of it."""
    said: set[str] = set()
    for path in sorted(paths_of(window), key=lambda p: _depth(p, cluster)):
        whole = trouble_of(window, path)
        if not whole.bad:
            yield from _fine(whole, cluster)
            continue
        trouble = _untold(window, cluster, whole)
        if trouble.bad and not (path.via == "proxy" and whole.what in said):
            yield _by_router(window, cluster, trouble) or _unreached(trouble) or _failing(window, cluster, trouble)
        said.add(whole.what)


def _depth(path: Path, cluster: Cluster) -> tuple[int, bool]:
    return depth_of(path.to, cluster), path.via == "proxy"


def depth_of(subject: str, cluster: Cluster) -> int:
    """How far out something is: engines and pairs of them first, then routers, then proxies."""
    instance = cluster.instance(subject.partition("->")[0])
    return INSIDE_OUT.index(instance.role) if instance is not None else len(INSIDE_OUT)


def trouble_of(window: Window, path: Path) -> Trouble:
    """What went wrong on a path, idle connections found closed left out."""
    made = attempts_of(window).get((path.to, path.via), ())
    fates = ((a, fate_of(a, made)) for a in made if a.kind != "abort" or a.error)
    return Trouble(path, made, tuple((a, fate) for a, fate in fates if fate not in (Fate.GOOD, Fate.CLOSED)))


def _untold(window: Window, cluster: Cluster, trouble: Trouble) -> Trouble:
    """The trouble less lost answers, requests that the cluster held, hangs of one connection, idle connections that
    were forgotten, and what routers show of themselves, where rules of their own have found those."""
    path = trouble.path
    if any(v.subject == path.to for v in keepalive.judge(window, cluster) if isinstance(v, Finding)):
        trouble = trouble.without(lambda a, _: a.idle_s is not None and a in path.closed)
    elsewhere = (*lost_on(window, cluster, path), *explained(window, cluster, path))
    trouble = trouble.without(lambda a, _: a in elsewhere)
    hangs = {v.subject for v in connection_hang.judge(window, cluster) if isinstance(v, Finding)}
    behind = connection_hang.inside(path, tuple(paths_of(window)), cluster) and hangs
    if path.to in hangs or behind:
        hung = connection_hang.hung_attempts(path)
        trouble = trouble.without(lambda a, _: a in hung)
    shown = {v.name for v in router.judge(window, cluster) if isinstance(v, Finding) and v.subject == path.to}
    if "router-circuit-open" in shown:
        trouble = trouble.without(lambda a, _: refused(a))
    if "router-holds-requests" in shown:
        trouble = trouble.without(lambda a, _: a.error == HUNG)
    return trouble


def refused(attempt: Attempt) -> bool:
    """Whether a router answered that it has no worker for the request."""
    return attempt.status == 503 and any(word in (attempt.detail or "") for word in REFUSES)


# --- paths on which all is well ---------------------------------------------------------------------------------------


def _fine(trouble: Trouble, cluster: Cluster) -> Iterator[Verdict]:
    path = trouble.path
    instance = cluster.instance(path.to)
    generated = [a for a in trouble.made if a.kind == "generate"]
    if generated and instance is not None and instance.role is Role.ROUTER:
        yield RuledOut("router-circuit-open", path.to, f"{len(generated)} requests through it were answered")
    if any(a.told in (Told.OTHER, Told.EMPTY) for a in generated) and not echoes(trouble.made):
        yield Unchecked(ECHO, path.to, _not_said_back(generated))


def _not_said_back(generated: list[Attempt]) -> str:
    empty = sum(a.told == Told.EMPTY for a in generated)
    without = f", and {empty} of {len(generated)} answers hold no text at all" if empty else ""
    return f"the model does not say the word back that each request holds{without} (--expect tells what would be right)"


# --- paths on which it is not -----------------------------------------------------------------------------------------


def _by_router(window: Window, cluster: Cluster, trouble: Trouble) -> Verdict | None:
    instance = cluster.instance(trouble.path.to)
    if instance is None or instance.role is not Role.ROUTER:
        return None
    return _refuses(window, cluster, trouble) or _holds(window, cluster, trouble)


def _refuses(window: Window, cluster: Cluster, trouble: Trouble) -> Verdict | None:
    """router-circuit-open by the router's own words, where its metrics do not show its breakers."""
    no_worker = [a for a, _ in trouble.bad if refused(a)]
    engines = view_of(window, cluster).engines
    well = [(e, why) for e in engines if (why := e.alive()) and (idle_evidence(e) or token_signs(e))]
    if not no_worker or not well or len(well) < len(engines):
        return None
    path = trouble.path
    return found(
        "router-circuit-open",
        path.to,
        f"{path.to} refuses requests for want of workers although every engine is well",
        confidence=Confidence.LIKELY,
        evidence=(
            saw(f"{len(no_worker)} of {len(trouble.made)} requests answered 503: {no_worker[0].detail}", path.seen),
            *(Evidence(f"{e.name} is well: {why}", instance=e.name) for e, why in well),
        ),
        since=path.seen.seen.at,
        limits=("the router's metrics, which show its breakers, did not confirm it",),
        next=(f"pdctl logs {path.to}", "pdctl explain router-circuit-open"),
    )


def _holds(window: Window, cluster: Cluster, trouble: Trouble) -> Verdict | None:
    """router-holds-requests by difference: fresh requests through it hang, and meanwhile every engine is idle."""
    path = trouble.path
    hung = [a for a in path.alone if a.error == HUNG and not a.first_byte_s]
    idle = _idle_meanwhile(window, cluster, path, hung)
    if not hung or not idle:
        return None
    return found(
        "router-holds-requests",
        path.to,
        f"fresh requests through {path.to} get no answer while every engine is idle",
        confidence=Confidence.LIKELY,
        evidence=(
            saw(
                f"{len(hung)} of {len(path.alone)} fresh requests got no answer in {hung[0].took or 0:.3g} s", path.seen
            ),
            *idle,
        ),
        since=path.seen.seen.at,
        limits=(
            "whether the router never sent them or waits for answers that were lost: its sockets to the engines tell",
        ),
        next=(f"pdctl sockets {path.to}", f"pdctl logs {path.to} --slow 10", "pdctl explain router-holds-requests"),
    )


def _idle_meanwhile(window: Window, cluster: Cluster, path: Path, hung: list[Attempt]) -> list[Evidence]:
    """Evidence that every engine was idle each time requests waited; empty where one was not, or was not seen."""
    idle: list[Evidence] = []
    for _, part in parts_of(window, path, hung):
        idle, others = idle_engines(part, cluster)
        if others or not idle:
            return []
    return idle


def _unreached(trouble: Trouble) -> Verdict | None:
    """A path on which no request was ever answered, and why."""
    path = trouble.path
    words = {a.error for a in trouble.made}
    if any(a.status is not None for a in trouble.made) or not words <= UNREACHED:
        return None
    first = trouble.made[0]
    return found(
        "endpoint-unreadable",
        path.to,
        f"no request reaches {path.to}: {first.error}, {first.detail or 'no more is known'}",
        confidence=Confidence.CERTAIN,
        evidence=(saw(f"{len(trouble.made)} of {len(trouble.made)} requests: {trouble.what}", path.seen),),
        since=path.seen.seen.at,
        limits=("from where pdctl stands: clients elsewhere may reach it",),
        next=(*what_to_do(trouble.made), "pdctl explain endpoint-unreadable"),
    )


def _failing(window: Window, cluster: Cluster, trouble: Trouble) -> Verdict:
    """Requests that fail in a way no rule names, with where the others differ."""
    path, bad = trouble.path, trouble.bad
    wrong = all(fate is Fate.WRONG for _, fate in bad)
    said = "bring answers that are not those asked for" if wrong else "fail"
    return found(
        "endpoint-unreadable",
        path.to,
        f"{len(bad)} of {len(trouble.made)} requests to {named(path, cluster)} {said}: {trouble.what}",
        confidence=Confidence.CERTAIN,
        evidence=(
            Evidence(f"in all: {trouble.what}", values={"what": sorted({wrong_word(a, f) or "" for a, f in bad})}),
            *_by_kind(trouble),
            *counted_meanwhile(window, cluster, path),
            *silent_engines(window, cluster),
        ),
        since=path.seen.seen.at,
        limits=("what makes them fail: their pattern fits none of the faults that are known by name",),
        next=(
            *what_to_do(a for a, _ in bad),
            f"pdctl logs {path.to} --failures",
            "pdctl triage",
            "pdctl explain endpoint-unreadable",
        ),
    )


def is_of_probe(finding: Finding) -> bool:
    """Whether a finding is this rule's own about requests that fail."""
    return finding.name == "endpoint-unreadable" and any("what" in e.values for e in finding.evidence)


def is_of_server(finding: Finding) -> bool:
    """Whether all of those requests hang or are answered with an error of the server's: what a cluster that can't serve
    them does, whatever the reason."""
    words = next((e.values["what"] for e in finding.evidence if "what" in e.values), ())
    return isinstance(words, list) and all(word == HUNG or str(word).startswith("HTTP 5") for word in words)


def _by_kind(trouble: Trouble) -> Iterator[Evidence]:
    """Kind by kind, how many fail and how one of them did: what differs between kinds that fail and kinds that don't
    is where to look."""
    fates = dict(trouble.bad)
    for trial in dict.fromkeys(trial_of(a) for a in trouble.made):
        rows = [a for a in trouble.made if trial_of(a) is trial]
        bad = [a for a in rows if a in fates]
        example = next((a for a in bad if a.detail), bad[0] if bad else None)
        text = (
            f"{trial.value}: {len(bad)} of {len(rows)} fail"
            if bad
            else f"{trial.value}: {len(rows)} of {len(rows)} work"
        )
        if example is not None:
            text += f", as: {wrong_word(example, fates[example])}{', ' + example.detail if example.detail else ''}"
        yield saw(text, trouble.path.seen, failed=len(bad), tried=len(rows))


CHECKS = (
    Check(
        "probe-fail",
        "requests of a probe that fail, or bring what was not asked for",
        ("endpoint-unreadable", "router-circuit-open", "router-holds-requests"),
        (Fact.PROBE,),
        judge,
    ),
)
