"""Simulated windows for the benchmark of the verdict: one whole number makes one case, so any can be run again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from pdctl.demo.core.cluster import ClusterSpec, SimCluster
from pdctl.demo.core.release import RELEASES, Release, release_of
from pdctl.demo.core.spec import Speed
from pdctl.demo.core.traffic import Clients, Probes, Shape
from pdctl.demo.core.truth import Truth
from pdctl.demo.faults import FAULTS
from pdctl.demo.scenes import Plan
from pdctl.demo.virtual import Recording, recording
from pdctl.model.answer import Answer, Fact

PINNED = (
    "pinned", "pinned-under-load", "pinned-probed", "pinned-bootstrap", "pinned-transfer", "one-rank", "transfer-leak",
)  # fmt: skip
OTHERS = (
    "healthy", "load", "load", "burst-then-idle", "storm", "drain", "decode-full", "stale", "probed",
    "hung-scheduler", "engine-wedged", "prealloc-wedged", "queue-head-blocked", "router-holds", "breaker", "restart",
    "peer-stale", "metrics-off",
)  # fmt: skip
SPEEDS = {
    "fast": Speed(),
    "cpu": Speed(
        prefill_base=0.02, prefill_tokens=9_000, decode_step=0.006, transfer_base=0.03, transfer_tokens=40_000
    ),
    # Transfers so slow that something is in flight at almost any moment, and every one of them ends.
    "slow-wire": Speed(transfer_base=0.7, transfer_tokens=8_000),
    "long-steps": Speed(prefill_base=0.4, prefill_tokens=2_500, decode_step=0.09),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One window to be: everything follows from its number."""

    number: int
    fault: str
    release: str
    speed: str
    router: str | None
    dp: int
    lockstep: bool
    rate: float
    count: int
    age: float
    seconds: float
    interval: float
    clients: int  # a closed loop of that many as well, 0 for none
    probed: bool  # somebody checks health every ten seconds as well
    prober: float | None  # the router's own checks

    def __str__(self) -> str:
        more = f" dp {self.dp}{' lockstep' if self.lockstep else ''}" if self.dp > 1 else ""
        more += f" clients {self.clients}" if self.clients else ""
        more += " probed" if self.probed else ""
        return (
            f"#{self.number} {self.fault} {self.release} {self.speed} router {self.router}{more} rate {self.rate:g} "
            f"count {self.count} age {self.age:g} window {self.seconds:g} s every {self.interval:g} s"
        )


def case_of(number: int) -> Case:
    rng = Random(number)
    fault = rng.choice(PINNED if number % 2 else OTHERS)
    dp = rng.choice((1, 1, 1, 2, 4))
    busy = fault in ("load", "pinned-under-load", "probed")
    return Case(
        number, fault, RELEASES[number // 2 % len(RELEASES)], rng.choice((*SPEEDS, "fast")),
        rng.choice(("0.3.2", "0.3.2", "smg", None)), dp, dp > 1 and rng.random() < 0.5,
        rng.choice((0.2, 0.8, 2.0, 6.0, 12.0)), rng.choice((1, 1, 2, 5)), rng.choice((15.0, 60.0, 180.0, 270.0)),
        rng.choice((30.0, 60.0, 60.0, 90.0)), rng.choice((1.0, 2.0, 5.0, 7.0)),
        rng.choice((0, 4, 8)) if busy else 0, rng.random() < 0.25, rng.choice((60.0, 60.0, 10.0)),
    )  # fmt: skip


def run_case(case: Case) -> Recording:
    rate = case.rate if case.speed not in ("slow-wire", "long-steps") else min(case.rate, 0.8)
    usual = FAULTS[case.fault].plan
    own_age = case.fault in ("router-holds", "peer-stale", "breaker")
    plan = Plan(300.0 + usual.age * own_age, usual.age if own_age else case.age, max(case.count, usual.count), rate)
    plan = replace(plan, count=case.count) if case.fault.startswith("pinned") else plan
    spec = ClusterSpec(
        case.release, dp=case.dp, tp=max(case.dp, 1), lockstep=case.lockstep, seed=case.number, router=case.router,
        health_interval=case.prober, speed=SPEEDS[case.speed],
    )  # fmt: skip

    def also(cluster: SimCluster, plan: Plan) -> None:
        if case.clients:
            shape = Shape((380, 420), (50, 90), 0.5)
            Clients(cluster.tl, cluster.rng, cluster.submit, shape, case.clients, plan.onset - 30.0)
        if case.probed:
            for n, engine in enumerate(cluster.engines):
                Probes(cluster.tl, engine, 10.0, plan.onset + 2.0 + 0.7 * n)

    return recording(case.fault, spec, plan, seconds=case.seconds, interval=case.interval, also=also)


# -- what was so -----------------------------------------------------------------------------------------------
BESIDE = frozenset({"hung-scheduler", "hung-prefill", "engine-wedged", "prealloc-wedged", "queue-head-blocked"})


def pinned_at(truth: Truth) -> set[str]:
    """Instances that held pinned requests."""
    return {s.instance for s in truth.pinned}


def label(made: Recording, case: Case) -> bool | None:
    """True when something was pinned at every sample, False when nothing ever was. None when it changed inside the
    window, or when another fault holds requests between prefill and decode, so that either word is right."""
    seen = [pinned_at(truth) for truth in made.truths]
    if case.fault in BESIDE:
        return None
    if all(seen):
        return True
    return False if not any(seen) else None


def places(made: Recording) -> set[str]:
    return set().union(*(pinned_at(truth) for truth in made.truths))


# -- what could be known ---------------------------------------------------------------------------------------
SURE = math.log(1e6)
SLOW = 20.0  # times its mean stay in a queue: what stays as long is out of the ordinary
QUIET_S = 28.0
STAKES = [n / 50 for n in range(1, 51)]
STAGES = {
    "inflight": ("prefill_forward", "prefill_transfer_kv_cache"),
    "transfer": ("decode_bootstrap", "decode_transferred"),
}


def evidence(case: Case, made: Recording) -> bool:
    """Whether what the release exports holds evidence of what was stuck at every sample, whoever reads it and how.

    Where nothing finishes on the engine for half a minute, the length of the queue is exported by every release from
    0.4.9 on: as a live count (0.5.8 and later, frozen from 0.5.13 to 0.5.18), by the counters of request stages
    (0.5.3 and later), or in the sums and the used tokens of /get_load (0.4.9 to 0.5.20). It stands while the engine
    says that nothing ends: evidence, unless a transfer of that engine may take as long.

    Behind traffic a reading does not say whether it counts the stuck request or those that pass. What the releases
    from 0.5.3 on export of those is how many passed and the seconds they stayed, so how many were there on average
    (Little's law), and nothing of when. Any traffic that makes the same average is as good an explanation. The best
    that can be done against all of them at once is to bet on more than the average, at the stake that gains most (the
    growth rate of such a bet is the least divergence of the readings from any traffic with that average; no test that
    errs as seldom can tell more). Readings are evidence when that gains a million, of those readings that lie farther
    apart than a request stays. Releases before 0.5.3 export no such average: none.

    This is worked out from the true state (who is stuck where, at every sample) and the engine's own pages, and knows
    nothing of the rules that are measured by it. It says too little where a source counts between the samples (batch
    lines in the log)."""
    always = set.intersection(*({(s.instance, s.queue, s.dp) for s in truth.pinned} for truth in made.truths))
    return any(shows(release_of(case.release), made, *place) for place in always)


def shows(release: Release, made: Recording, instance: str, queue: str, dp: int) -> bool:
    """Whether the pages of an instance show what is stuck in one rank's queue."""
    told = list(pages(made.answers, instance))
    if len(told) < 3 or release < release_of("0.4.9"):
        return False
    names, apart = STAGES.get(queue), release >= release_of("0.5.10")
    rows = [(t, flight(body, names, dp, apart)) for t, body in told] if names and release >= release_of("0.5.3") else []
    stay = rows[0][1].spent / rows[0][1].done if rows and rows[0][1].done else 0.0
    calm = quiet_s(told)
    if calm >= max(QUIET_S, SLOW * stay):
        return True
    return behind_traffic(rows) if rows else False


def quiet_s(told: list[tuple[float, bytes]]) -> float:
    """Seconds at the end of the window in which no request finished by the front end's counters."""
    ended = [(t, sum(float(value) for value in ENDED.findall(body))) for t, body in told]
    since = next((before for before, after in reversed(list(pairwise(ended))) if after[1] > before[1]), None)
    return ended[-1][0] - (ended[0][0] if since is None else ended[ended.index(since) + 1][0])


def behind_traffic(rows: list[tuple[float, Flight]]) -> bool:
    """Whether betting on more than the average of what passed gains a million."""
    (start, first), (end, last) = rows[0], rows[-1]
    spent, done, seconds = last.spent - first.spent, last.done - first.done, end - start
    lengths = [row.left for _, row in rows]
    if done <= 0 or min(lengths) < 1 or SLOW * spent / done > seconds:
        return done <= 0 and min(lengths) >= 1 and seconds >= QUIET_S
    average = max(spent / seconds, 1e-9)
    apart = min(1.0, (1.0 + seconds / (spent / done)) / len(rows)) if spent else 1.0
    return apart * max(sum(math.log(1 + b * (n / average - 1)) for n in lengths) for b in STAKES) >= SURE


# -- the rules in use today ------------------------------------------------------------------------------------
INFLIGHT = re.compile(rb"^sglang:num_prefill_in(?:f)?li?ght_queue_reqs(?:\{[^}]*\})? (\S+)$", re.M)
STAGE = re.compile(rb'^sglang:per_stage_req_latency_seconds_(count|sum)\{[^}]*stage="(\w+)"[^}]*\} (\S+)$', re.M)
ENDED = re.compile(rb"^sglang:(?:num_requests|prompt_tokens|generation_tokens)_total(?:\{[^}]*\})? (\S+)$", re.M)
DP = re.compile(rb'dp_rank="(\d+)"')
FAILED = re.compile(rb"^sglang:num_transfer_failed_reqs_total(?:\{[^}]*\})? (\S+)$", re.M)


def pages(answers: tuple[Answer, ...], subject: str) -> Iterator[tuple[float, bytes]]:
    for answer in answers:
        if answer.subject == subject and answer.fact is Fact.METRICS and answer.status == 200 and answer.body:
            yield answer.t, answer.body


def gauge_series(answers: tuple[Answer, ...]) -> list[tuple[float, float]]:
    """The in-flight gauge of the first prefill, summed over its ranks, as a query over a page sees it."""
    rows = ((t, [float(value) for value in INFLIGHT.findall(body)]) for t, body in pages(answers, "prefill-0"))
    return [(t, sum(values)) for t, values in rows if values]


def same_value(answers: tuple[Answer, ...], times: int = 8, apart: float = 7.0) -> float | None:
    """When the first rule in use fires: the gauge above 0 and the same ``times`` times, ``apart`` seconds apart."""
    run: list[float] = []
    last = -apart
    for t, value in gauge_series(answers):
        if t - last < apart - 0.5:
            continue
        last = t
        run = [*run, value] if value > 0 and (not run or run[-1] == value) else [value] if value > 0 else []
        if len(run) >= times:
            return t
    return None


def min_over(answers: tuple[Answer, ...], seconds: float = 30.0) -> float | None:
    """When the second rule in use fires: the gauge's minimum over ``seconds`` is above 0."""
    since: float | None = None
    for t, value in gauge_series(answers):
        since = None if value <= 0 else t if since is None else since
        if since is not None and t - since >= seconds - 0.5:
            return t
    return None


def stages(answers: tuple[Answer, ...], old: bool, seconds: float = 10.0) -> float | None:
    """When the counters of request stages show it. Forwards less transfers (less failed ones, which releases before
    0.5.10 count as transfers) are what is in flight at that very moment; the seconds that finished transfers took,
    by second, are what turnover alone would hold in flight on average. Pinned is a floor well above that which does
    not sink. Not a rule in use, and blind to bootstrap and decode: it says what the pages hold besides the gauge."""
    rows: list[tuple[float, Flight]] = []
    for t, body in pages(answers, "prefill-0"):
        now = in_flight(body, old)
        rows.append((t, now))
        slow = SLOW * now.spent / now.done if now.done else 0.0  # a span shorter than that proves nothing
        first = next((row for row in reversed(rows) if t - row[0] >= max(seconds, slow)), None)
        if first is None:
            continue
        turnover = (now.spent - first[1].spent) / (t - first[0])
        lefts = [row[1].left for row in rows if row[0] >= first[0]]
        drains = min(lefts[len(lefts) // 2 :]) < min(lefts[: len(lefts) // 2])
        if min(lefts) > 2.0 * turnover + 0.5 and not drains:
            return t
    return None


@dataclass(frozen=True, slots=True)
class Flight:
    """Requests in flight by a page's stage counters, the seconds all finished transfers took so far, and their
    number."""

    left: float
    spent: float
    done: float


def flight(body: bytes, names: tuple[str, str], dp: int, apart: bool) -> Flight:
    """What the counters of two stages say of one data-parallel rank, or of the engine where the page names none.
    ``apart``: failed transfers are counted by a counter of their own, and not as having left."""
    totals: dict[tuple[bytes, bytes], float] = {}
    for line in STAGE.finditer(body):
        if of_rank(line[0], dp):
            totals[line[1], line[2]] = totals.get((line[1], line[2]), 0.0) + float(line[3])
    failed = sum(float(line[1]) for line in FAILED.finditer(body) if of_rank(line[0], dp)) if apart else 0.0
    entered, left = (name.encode() for name in names)
    over = totals.get((b"count", left), 0.0)
    return Flight(totals.get((b"count", entered), 0.0) - over - failed, totals.get((b"sum", left), 0.0), over)


def of_rank(line: bytes, dp: int) -> bool:
    rank = DP.search(line)
    return rank is None or int(rank[1]) == dp


def in_flight(body: bytes, old: bool) -> Flight:
    """What a page's stage counters say."""
    totals: dict[tuple[bytes, bytes], float] = {}
    for kind, stage, value in STAGE.findall(body):
        totals[kind, stage] = totals.get((kind, stage), 0.0) + float(value)
    failed = 0.0 if old else sum(float(value) for value in FAILED.findall(body))
    over = totals.get((b"count", b"prefill_transfer_kv_cache"), 0.0)
    spent = totals.get((b"sum", b"prefill_transfer_kv_cache"), 0.0)
    return Flight(totals.get((b"count", b"prefill_forward"), 0.0) - over - failed, spent, over)
