"""How right is request-pinned? Hundreds of simulated windows with known truth, judged by pdctl and by rules in use.

usage: python tests/bench/bench_verdict.py [--small] [--cases N] [--first K] [--only K] [--jobs J] [--misses]

Prints precision, recall, share of "cannot tell" and time to the verdict. A case is made by its number alone:
--only NUMBER runs one and prints what was true and what was said.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from verdict_cases import BESIDE, Case, case_of, evidence, label, min_over, places, run_case, same_value, stages

from pdctl import facts
from pdctl.checks import judge
from pdctl.demo.core.release import release_of
from pdctl.demo.virtual import Recording
from pdctl.model.answer import Fact
from pdctl.model.finding import Report, Severity
from pdctl.model.window import Window

CHECKPOINTS = (6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case judged. ``pinned`` is the truth, None where it changed inside the window. ``at`` are seconds at which
    each rule fired, None when it did not; ``said`` is pdctl's word: pinned, unknown or nothing."""

    case: Case
    pinned: bool | None
    evident: bool
    said: str
    where: bool  # the instance it names held pinned requests
    sure: str
    at: dict[str, float | None]
    findings: tuple[str, ...]
    why: str


def window_of(made: Recording, until: float = float("inf")) -> Window:
    """The window up to an instant. Logs, which are read once at the end, count as read at that instant."""
    answers = [a for a in made.answers if a.t <= until or a.fact is Fact.LOG]
    seen = tuple(facts.read(a, made.cluster.instance(a.subject)) for a in answers)
    start = made.answers[0].at - timedelta(seconds=made.answers[0].t)
    end = max(a.at for a in answers if a.fact is not Fact.LOG)
    return Window(start, end, seen)


def prefix(whole: Window, until: float) -> Window:
    kept = tuple(o for o in whole.observations if o.t <= until or o.fact is Fact.LOG)
    return Window(whole.start, whole.start + timedelta(seconds=until), kept)


def said_of(report: Report) -> tuple[str, str, str, set[str]]:
    """pdctl's word on request-pinned, how sure, why it cannot tell, and where."""
    found = [f for f in report.findings if f.name == "request-pinned"]
    if found:
        return "pinned", str(found[0].confidence), "", {f.subject for f in found}
    open_ = [u for u in report.unchecked if u.what == "request-pinned"]
    unknown = [f for f in report.findings if f.severity is Severity.UNKNOWN]
    if open_ or unknown:
        return "unknown", "", open_[0].why if open_ else unknown[0].summary, set()
    return "nothing", "", "", set()


def judged(number: int) -> Outcome:
    case = case_of(number)
    made = run_case(case)
    whole = window_of(made)
    report = judge(whole, made.cluster)
    said, sure, why, where = said_of(report)
    at: dict[str, float | None] = {
        "same": same_value(made.answers), "floor": min_over(made.answers),
        "stages": stages(made.answers, old=release_of(case.release) < release_of("0.5.10")),
        "pdctl": first_time(whole, made) if said == "pinned" else None,
    }  # fmt: skip
    return Outcome(
        case, label(made, case), evidence(case, made), said, bool(where & places(made)), sure, at,
        tuple(f"{f.name}@{f.subject}({f.confidence})" for f in report.findings), why,
    )  # fmt: skip


def first_time(whole: Window, made: Recording) -> float:
    """The first of a few instants at which the verdict was there and stayed."""
    first = whole.seconds
    for until in sorted((c for c in CHECKPOINTS if c < whole.seconds), reverse=True):
        if said_of(judge(prefix(whole, until), made.cluster))[0] != "pinned":
            break
        first = until
    return first


# -- the table -------------------------------------------------------------------------------------------------
Fired = Callable[[Outcome], bool]
RULES: dict[str, Fired] = {
    "pdctl": lambda o: o.said == "pinned",
    "same value 8 times, 7 s apart": lambda o: o.at["same"] is not None,
    "minimum over 30 s above 0": lambda o: o.at["floor"] is not None,
    "(stage counters, 10 s)": lambda o: o.at["stages"] is not None,
}
KEYS = dict(zip(RULES, ("pdctl", "same", "floor", "stages"), strict=True))


def share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def print_rules(outcomes: list[Outcome]) -> None:
    yes = [o for o in outcomes if o.pinned]
    no = [o for o in outcomes if o.pinned is False]
    evident = [o for o in yes if o.evident]
    print(f"{len(outcomes)} windows: {len(yes)} pinned ({len(evident)} of them evident), {len(no)} not, "
          f"{len(outcomes) - len(yes) - len(no)} changing or arguable, left out")  # fmt: skip
    print(f"{'rule':32}{'false':>7}{'precision':>11}{'recall':>8}{'evident':>9}{'median s':>10}")
    for name, fired in RULES.items():
        hits, wrong = [o for o in yes if fired(o)], [o for o in no if fired(o)]
        times = [at for o in hits if (at := o.at[KEYS[name]]) is not None]
        print(f"{name:32}{len(wrong):>7}{share(len(hits), len(hits) + len(wrong)):>11}"
              f"{share(len(hits), len(yes)):>8}{share(sum(fired(o) for o in evident), len(evident)):>9}"
              f"{statistics.median(times) if times else float('nan'):>10.0f}")  # fmt: skip


def print_groups(outcomes: list[Outcome], title: str, key: Callable[[Case], object]) -> None:
    print(f"\n{title:20}{'pinned':>8}{'evident':>9}{'found':>7}{'unknown':>9}{'missed':>8}{'not':>6}{'false':>7}"
          f"{'unknown':>9}{'median s':>10}")  # fmt: skip
    groups: dict[object, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome.case), []).append(outcome)
    for name, group in groups.items():
        yes, no = [o for o in group if o.pinned], [o for o in group if o.pinned is False]
        times = [at for o in yes if (at := o.at["pdctl"]) is not None]
        row = [
            len(yes), sum(o.evident for o in yes), count(yes, "pinned"), count(yes, "unknown"), count(yes, "nothing"),
            len(no), count(no, "pinned"), count(no, "unknown"),
        ]  # fmt: skip
        widths = (8, 9, 7, 9, 8, 6, 7, 9)
        cells = "".join(f"{value:>{width}}" for value, width in zip(row, widths, strict=True))
        print(f"{name!s:20}{cells}{statistics.median(times) if times else float('nan'):>10.0f}")


def count(outcomes: Iterable[Outcome], said: str) -> int:
    return sum(o.said == said for o in outcomes)


def print_misses(outcomes: list[Outcome]) -> None:
    beside = [o for o in outcomes if o.case.fault in BESIDE and o.said == "pinned"]
    for title, bad in (
        ("FALSE: nothing was pinned", [o for o in outcomes if o.pinned is False and o.said == "pinned"]),
        ("BESIDE ANOTHER FAULT that holds the requests", beside),
        ("WRONG PLACE", [o for o in outcomes if o.pinned and o.said == "pinned" and not o.where]),
        ("SILENT: pinned, and pdctl said nothing of it", [o for o in outcomes if o.pinned and o.said == "nothing"]),
        ("UNKNOWN although evident", [o for o in outcomes if o.pinned and o.evident and o.said == "unknown"]),
    ):
        print(f"\n{title}: {len(bad)}")
        for o in bad:
            print(f"  {o.case}\n      said {', '.join(o.findings) or 'ok'}{' | ' + o.why if o.why else ''}")


def print_one(number: int) -> None:
    made = run_case(case_of(number))
    report = judge(window_of(made), made.cluster)
    print(case_of(number), f"\npinned: {label(made, case_of(number))}, at {sorted(places(made))}")
    for stuck in made.truths[-1].stuck:
        print("  true:", stuck)
    for finding in report.findings:
        print(f"  said: {finding.name} at {finding.subject}, {finding.confidence}: {finding.summary}")
    for unchecked in report.unchecked:
        print(f"  not checked: {unchecked.what} at {unchecked.subject}: {unchecked.why}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a few cases, to see that it works")
    parser.add_argument("--cases", type=int, default=560)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--misses", action="store_true", help="list every miss with the case that repeats it")
    asked = parser.parse_args()
    if asked.only is not None:
        print_one(asked.only)
        return
    numbers = range(asked.first, asked.first + (28 if asked.small else asked.cases))
    if asked.jobs > 1:
        with ProcessPoolExecutor(asked.jobs) as pool:
            outcomes = list(pool.map(judged, numbers, chunksize=4))
    else:
        outcomes = [judged(number) for number in numbers]
    print_rules(outcomes)
    print_groups(outcomes, "release", lambda case: case.release)
    print_groups(outcomes, "fault", lambda case: case.fault)
    if asked.misses or asked.small:
        print_misses(outcomes)


if __name__ == "__main__":
    main()
