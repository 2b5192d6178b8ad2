"""ranks-diverged: the ranks of an engine wait in different collectives, so that none of them can complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.dumps import Place, RankDumps, Wait, groups_of, ranks_of
from pdctl.checks.turning import engine_of, signs_of_life, signs_of_no_work, signs_of_standstill
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked
from pdctl.model.rank import WHOLE
from pdctl.model.window import Window

ENOUGH = 4  # ranks of which it is no chance that one stands apart in two dumps


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Every instance of which stacks were dumped."""
    for subject in window.subjects(Fact.STACKS):
        for group in groups_of(ranks_of(window, subject)):
            if len(group) > 1:
                yield from judge_group(window, cluster, subject, group)


def judge_group(window: Window, cluster: Cluster, subject: str, group: tuple[RankDumps, ...]) -> Iterator[Verdict]:
    """One set of ranks that take part in the same collectives."""
    odd = odd_ranks(group)
    if odd is None:
        return
    rest = tuple(r for r in group if r not in odd)
    if not odd:
        yield RuledOut("ranks-diverged", subject, f"all {len(group)} ranks are at {group[0].last.words}")
        return
    engine, since = engine_of(window, cluster, subject), min(r.seen[0][0].t for r in group)
    life = list(signs_of_life(engine, since)) if engine else []
    if life:
        yield RuledOut("ranks-diverged", subject, f"the loop turned since the first dump: {life[-1].saw}")
        return
    still = list(signs_of_standstill(engine, since)) if engine else []
    weak = list(signs_of_no_work(engine, since)) if engine else []
    stuck = all(r.settled for r in group)
    confidence = confidence_of(group, odd, stuck, still, weak)
    if confidence is None:
        why = "one dump of ranks that may only be a few steps apart: a second one tells" if not stuck else (
            "ranks at different points in both dumps, and nothing says whether the engine went on meanwhile"
        )  # fmt: skip
        yield Unchecked("ranks in different collectives", subject, why)
        return
    yield finding(subject, odd, rest, confidence, stuck, [*still, *weak])


def odd_ranks(group: tuple[RankDumps, ...]) -> tuple[RankDumps, ...] | None:
    """The ranks that wait elsewhere than most; () where all agree, None where most do not wait in a collective: then
    they are simply at work. Of two halves the one that waits for requests is taken as the rule: it is where a rank goes
    that has nothing to do."""
    keys = Counter(r.last.path for r in group)
    if len(keys) == 1:
        return ()
    common = max(keys, key=lambda path: (keys[path], "recv_requests" in path, path))
    most = [r for r in group if r.last.path == common]
    if most[0].last.wait != Wait.COLLECTIVE or len(most) * 2 < len(group):
        return None
    return tuple(r for r in group if r.last.path != common)


def confidence_of(
    group: tuple[RankDumps, ...], odd: tuple[RankDumps, ...], stuck: bool, still: list[Evidence], weak: list[Evidence]
) -> Confidence | None:
    """None where a healthy engine could look so. Certain: unmoved over two dumps, each rank in a collective, and
    something else than the stacks says that the engine stands."""
    collective = all(r.last.wait == Wait.COLLECTIVE for r in odd)
    many = len(group) >= ENOUGH and len(odd) * 2 < len(group)
    unmoved = all(r.unmoved for r in group)
    if not stuck:
        return Confidence.POSSIBLE if collective and (still or (weak and many)) else None
    if not collective:
        on_device = all(r.last.wait == Wait.DEVICE for r in odd)
        return Confidence.LIKELY if still or (weak and many and on_device) else None
    if still or (weak and many):
        return Confidence.CERTAIN
    if many or (weak and unmoved):
        return Confidence.LIKELY
    return Confidence.POSSIBLE if unmoved and all(r.idle for r in group) else None


def finding(
    subject: str,
    odd: tuple[RankDumps, ...],
    rest: tuple[RankDumps, ...],
    confidence: Confidence,
    stuck: bool,
    still: list[Evidence],
) -> Verdict:
    """The finding, which names the odd rank; of several the first is its rank and the summary has all."""
    names = ", ".join(r.name for r in odd)
    tie = len(odd) == len(rest)
    where = "another collective" if odd[0].last.wait == Wait.COLLECTIVE else "another place"
    dumps, apart = len(odd[0].seen), odd[0].apart
    over = f" in {dumps} dumps over {apart:.0f} s" if stuck else " in one dump"
    evidence = [
        saw(f"{names} at {odd[0].last.words}{over}", odd[0].seen[-1][0], pid=odd[0].pid),
        saw(f"{len(rest)} other rank(s) at {rest[0].last.words}{over}", rest[0].seen[-1][0]),
        *still,
    ]
    verb = "waits" if len(odd) == 1 else "wait"
    return found(
        "ranks-diverged",
        subject,
        f"{names} {verb} in {where} ({odd[0].last.at}, from {caller(odd[0].last)}) than the other {len(rest)} rank(s) "
        f"({rest[0].last.at}, from {caller(rest[0].last)})",
        confidence=confidence,
        evidence=evidence,
        rank=WHOLE if tie and len(odd) > 1 else odd[0].rank,
        since=odd[0].seen[0][0].seen.at,
        against=("as many ranks are on one side as on the other: which side is wrong is not told",) if tie else (),
        limits=limits(stuck, still),
        next=(f"pdctl stacks {subject}", f"pdctl logs {subject}", "pdctl explain ranks-diverged"),
    )


def caller(place: Place) -> str:
    """The engine's function that entered the wait: past torch's own of the same kind."""
    outer = [n for n in place.path[1:] if not n.startswith(("broadcast", "all_", "_all_", "reduce_", "barrier"))]
    return outer[0] if outer else place.at


def limits(stuck: bool, still: list[Evidence]) -> tuple[str, ...]:
    told = ["main threads' Python frames are compared; ranks that could not be dumped may be the odd ones"]
    if not still:
        told.append("nothing but the stacks says that the engine stands: no counter, log line or answer of that time")
    if not stuck:
        told.append("one dump: a rank may merely be late")
    return tuple(told)


CHECKS = (
    Check(
        "ranks-diverged",
        "ranks that wait in different collectives",
        ("ranks-diverged",),
        (Fact.STACKS,),
        judge,
    ),
)
