"""Simulated windows for the benchmark of the verdict: one whole number makes one case, so any can be run again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from pdctl.demo.core.cluster import ClusterSpec, SimCluster
from pdctl.demo.core.release import RELEASES, release_of
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


def evidence(case: Case, answers: tuple[Answer, ...]) -> bool:
    """Whether a release's gauges, live counts and active HTTP requests can show the fault (parts A1 to A3 of what is
    known of the releases), leaving the counters of request stages aside. They cannot where turnover alone keeps
    something in flight at so many of the readings that it explains them all, nor where the window is no longer than a
    slow transfer of that engine may take."""
    release = release_of(case.release)
    if not room_for_evidence(case, answers):
        return False
    if case.seconds < 30 or release < release_of("0.5.3"):
        return False
    if case.fault == "pinned-under-load" and case.speed in ("slow-wire", "long-steps"):
        return False
    if release >= release_of("0.5.8"):
        return True
    flows = case.fault in ("pinned-under-load", "one-rank", "transfer-leak") or case.clients or case.probed
    inflight = case.fault not in ("pinned-bootstrap", "pinned-transfer")
    return bool(inflight and (flows or case.fault == "pinned-probed"))


# -- the rules in use today ------------------------------------------------------------------------------------
INFLIGHT = re.compile(rb"^sglang:num_prefill_in(?:f)?li?ght_queue_reqs(?:\{[^}]*\})? (\S+)$", re.M)
STAGE = re.compile(rb'^sglang:per_stage_req_latency_seconds_(count|sum)\{[^}]*stage="(\w+)"[^}]*\} (\S+)$', re.M)
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


ODDS, SLOW = math.log(1e-6), 20.0


def room_for_evidence(case: Case, answers: tuple[Answer, ...]) -> bool:
    """Whether what finished transfers took leaves room for a verdict: none finished, or they explain a floor as seen
    with odds below one in a million (Markov's inequality, for independent readings) and a mean one lasts less than a
    twentieth of the window."""
    rows = [in_flight(body, release_of(case.release) < release_of("0.5.10")) for _, body in pages(answers, "prefill-0")]
    if len(rows) < 3 or rows[-1].done <= rows[0].done:
        return True
    spent, done = rows[-1].spent - rows[0].spent, rows[-1].done - rows[0].done
    if SLOW * spent / done > case.seconds:
        return False
    share = min(1.0, spent / case.seconds / max(1.0, min(row.left for row in rows)))
    return len(rows) * math.log(max(share, 1e-9)) < ODDS


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


def in_flight(body: bytes, old: bool) -> Flight:
    """What a page's stage counters say."""
    totals: dict[tuple[bytes, bytes], float] = {}
    for kind, stage, value in STAGE.findall(body):
        totals[kind, stage] = totals.get((kind, stage), 0.0) + float(value)
    failed = 0.0 if old else sum(float(value) for value in FAILED.findall(body))
    over = totals.get((b"count", b"prefill_transfer_kv_cache"), 0.0)
    spent = totals.get((b"sum", b"prefill_transfer_kv_cache"), 0.0)
    return Flight(totals.get((b"count", b"prefill_forward"), 0.0) - over - failed, spent, over)
