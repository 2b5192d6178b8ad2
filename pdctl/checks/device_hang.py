"""device-hang: every rank of an engine sits in the same device wait, dump after dump, and nothing goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.dumps import HIDDEN, RankDumps, Wait, groups_of, ranks_of
from pdctl.checks.turning import engine_of, signs_of_life, signs_of_no_work, signs_of_standstill
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked
from pdctl.model.host import Gpus
from pdctl.model.window import Window

APART_S = 8.0  # dumps this far apart that agree to the line, where nothing else is known
BUSY = 95.0  # percent
DARK = 5.0


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Every instance of which stacks were dumped. Pipeline stages and replicas are judged each for itself."""
    for subject in window.subjects(Fact.STACKS):
        for group in groups_of(ranks_of(window, subject)):
            yield from judge_group(window, cluster, subject, group)


def judge_group(window: Window, cluster: Cluster, subject: str, group: tuple[RankDumps, ...]) -> Iterator[Verdict]:
    """One set of ranks. A healthy engine waits for its device most of the time, so what went on meanwhile decides."""
    if not all(r.settled for r in group) or len({r.last.path for r in group}) != 1:
        return
    place = group[0].last
    if place.wait == Wait.OTHER:
        return
    engine, since = engine_of(window, cluster, subject), min(r.seen[0][0].t for r in group)
    life = list(signs_of_life(engine, since)) if engine else []
    if life:
        yield RuledOut("device-hang", subject, f"the loop turned since the first dump: {life[-1].saw}")
        return
    still = list(signs_of_standstill(engine, since)) if engine else []
    weak = list(signs_of_no_work(engine, since)) if engine else []
    gpus = list(gpu_signs(window, cluster, subject))
    confidence = confidence_of(group, still, weak, gpus)
    if confidence is None:
        if place.wait == Wait.DEVICE:
            text = "its ranks wait for the device in every dump, as busy ones do: nothing says whether it went on"
            yield Unchecked("a hung device", subject, text)
        return
    yield finding(subject, group, confidence, [*still, *weak], gpus)


def confidence_of(
    group: tuple[RankDumps, ...], still: list[Evidence], weak: list[Evidence], gpus: list[Evidence]
) -> Confidence | None:
    """None where a healthy engine could look so. A wait in a collective counts only where the loop is known to stand:
    an idle or pinned engine polls in one; a device call without a frame only with another sign."""
    place, several = group[0].last, len(group) > 1
    explicit = place.wait == Wait.DEVICE and place.at not in HIDDEN
    if place.wait == Wait.COLLECTIVE:
        return Confidence.LIKELY if still and several else None
    if still or weak:
        return Confidence.CERTAIN if explicit and several else Confidence.LIKELY
    if not explicit or not all(r.unmoved and r.apart >= APART_S for r in group):
        return None
    if gpus:
        return Confidence.LIKELY if several else Confidence.POSSIBLE
    return Confidence.POSSIBLE if several else None


def gpu_signs(window: Window, cluster: Cluster, subject: str) -> Iterator[Evidence]:
    """GPUs that are all at full utilisation with power that does not vary, or all at none while the host waits."""
    instance = cluster.instance(subject)
    host = f"host:{instance.host}" if instance and instance.host else ""
    for name in (subject, host):
        looks = window.seen(name, Fact.GPU, Gpus)
        for seen in looks[-1:]:
            used = [g.utilization for g in seen.value.rows if g.utilization is not None]
            power = [g.power_w for g in seen.value.rows if g.power_w is not None]
            watts = f" at {min(power):.0f} to {max(power):.0f} W" if power else ""
            if used and len(looks) > 1 and min(used) >= BUSY:
                yield saw(f"all {len(used)} GPUs at {min(used):.0f} % utilisation{watts}", seen)
            elif used and max(used) <= DARK:
                yield saw(f"all {len(used)} GPUs idle{watts} while every rank waits for them", seen)


def finding(
    subject: str,
    group: tuple[RankDumps, ...],
    confidence: Confidence,
    still: list[Evidence],
    gpus: list[Evidence],
) -> Verdict:
    """The finding for one set of ranks."""
    place, first = group[0].last, group[0]
    over = f"in {len(first.seen)} dumps over {first.apart:.0f} s"
    who = f"all {len(group)} readable ranks" if len(group) > 1 else f"its one rank ({first.name})"
    kind = "device wait" if place.wait == Wait.DEVICE else "collective"
    return found(
        "device-hang",
        subject,
        f"{who} of {subject} sit in the same {kind} ({place.words}) {over}",
        confidence=confidence,
        evidence=(saw(f"{who} at {place.words} {over}", first.seen[-1][0], ranks=len(group)), *still, *gpus),
        since=first.seen[0][0].seen.at,
        limits=limits(place.wait, still),
        next=(f"pdctl stacks {subject} --native", f"pdctl logs {subject}", "pdctl explain device-hang"),
    )


def limits(wait: Wait, still: list[Evidence]) -> tuple[str, ...]:
    told = ["Python frames end where the driver begins: which kernel or partner hangs is not shown"]
    if wait == Wait.COLLECTIVE:
        told.append("a rank that was not dumped, or one on another node, may be the one that is not in the collective")
    if not still:
        told.append("nothing but the stacks says that the engine stands: a busy one spends its time in the same wait")
    return tuple(told)


CHECKS = (
    Check(
        "device-hang",
        "ranks that all hang in the same device wait",
        ("device-hang",),
        (Fact.STACKS,),
        judge,
    ),
)
