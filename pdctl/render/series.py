"""Observations over time as rows of numbers: what each instance showed in each sample.

``step(tally, observations) -> (tally, sample)`` holds no more than the last page of each instance, so a day of samples
takes no more memory than two. A number that is not there says why: missed, not asked, absent from the page, the first
of its kind, or beyond a restart. A counter's rate is never taken across a restart, so it is never negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from pdctl.model.answer import Fact, Missed, Observation, Seen
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import Loads
from pdctl.model.window import Window
from pdctl.render.columns import COLUMNS, Column, Kind
from pdctl.render.counts import Counted, dps_of, is_old, live_count, read_gauge, started_anew, totals

APART_S = 0.25  # seconds between the last answer of a round and the first ask of the next, where rounds are told apart

OLD = "old"


class Gone(StrEnum):
    """Why a cell holds no number."""

    MISSED = "missed"  # asked, and no readable answer came
    NOT_ASKED = "not asked"  # this sample did not ask it
    ABSENT = "absent"  # the page does not hold it
    FIRST = "first"  # a rate needs two samples
    RESTART = "restart"  # the counter began anew since the sample before


@dataclass(frozen=True, slots=True)
class Cell:
    """A number, or why there is none. ``live``: the count the engine gave when it was asked (None where it gave none
    or an old one), beside ``value``, its gauge's last report."""

    value: float | None = None
    gone: Gone | None = None
    live: float | None = None

    @property
    def best(self) -> float | None:
        """The live count where there is one, else the value."""
        return self.value if self.live is None else self.live

    @property
    def asked(self) -> bool:
        """Whether this sample asked for it."""
        return self.best is not None or self.gone is not Gone.NOT_ASKED

    @property
    def is_absent(self) -> bool:
        """Whether there is no such number, or not yet, though the page was read."""
        return self.best is None and self.gone in (Gone.ABSENT, Gone.FIRST)


@dataclass(frozen=True, slots=True)
class Row:
    """What one instance (``dp`` None) or one of its data-parallel ranks showed in one sample, at ``t`` seconds.
    ``missed`` maps a fact to why its answer gives nothing (a reason, or ``OLD`` for counts from before);
    ``restarted`` says that a counter began anew."""

    t: float
    instance: str
    role: Role
    dp: int | None
    cells: Mapping[str, Cell]
    missed: Mapping[Fact, str] = field(default_factory=dict)
    restarted: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of answers. ``number`` counts from 1; ``t`` and ``at`` are those of the round's last answer."""

    number: int
    t: float
    at: datetime
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """What the next sample is compared with: the last page read of each instance, and when."""

    number: int = 0
    pages: Mapping[str, Counted] = field(default_factory=dict)


Round = Mapping[tuple[str, Fact], Observation[Any]]


def step(tally: Tally, seen: Iterable[Observation[Any]], cluster: Cluster, ranks: bool = False) -> tuple[Tally, Sample]:
    """The sample that one round of observations makes, and the tally for the next one. Every engine and router of the
    cluster has a row, answered or not. Raises ValueError for a round without observations."""
    answers = {(o.subject, o.fact): o for o in seen}
    last = max(answers.values(), key=lambda o: o.t)
    pages = dict(tally.pages)
    rows: list[Row] = []
    for instance in cluster.instances:
        if instance.is_engine or instance.role == Role.ROUTER:
            now = totals(answers.get((instance.name, Fact.METRICS)))
            rows.extend(_rows(last.t, instance, answers, pages.get(instance.name), now, ranks))
            if now is not None:
                pages[instance.name] = now
    number = tally.number + 1
    return Tally(number, pages), Sample(number, last.t, last.at, tuple(rows))


def rounds(observations: Iterable[Observation[Any]]) -> Iterator[list[Observation[Any]]]:
    """Observations in order of completion, cut into rounds: a new one begins with something that the round holds
    already, or that was asked well after the round was answered. Facts that a sample does not show are left out."""
    held: dict[tuple[str, Fact], Observation[Any]] = {}
    done = 0.0
    for seen in observations:
        if seen.fact not in (Fact.METRICS, Fact.LOADS):
            continue
        if held and ((seen.subject, seen.fact) in held or seen.t - seen.took > done + APART_S):
            yield list(held.values())
            held = {}
        held[seen.subject, seen.fact] = seen
        done = seen.t
    if held:
        yield list(held.values())


def samples(window: Window, cluster: Cluster, ranks: bool = False) -> Iterator[Sample]:
    """Every sample of a window."""
    tally = Tally()
    for seen in rounds(window.observations):
        tally, sample = step(tally, seen, cluster, ranks)
        yield sample


def _rows(
    t: float, instance: Instance, answers: Round, before: Counted | None, now: Counted | None, ranks: bool
) -> Iterator[Row]:
    page, loads = (answers.get((instance.name, fact)) for fact in (Fact.METRICS, Fact.LOADS))
    missed = {
        o.fact: str(o.got.why)
        for o in (page, loads)
        if o is not None and isinstance(o.got, Missed) and (instance.is_engine or o.fact == Fact.METRICS)
    }
    if is_old(_value(loads)):
        missed[Fact.LOADS] = OLD
    anew = started_anew(before, now)
    for dp in (None, *(dps_of(now, _value(loads)) if ranks else ())):
        cells = {
            column.key: _cell(column, dp, _Moment(page, _value(loads), before, now, anew))
            for column in COLUMNS
            if instance.role in column.roles
        }
        yield Row(t, instance.name, instance.role, dp, cells, missed, anew)


@dataclass(frozen=True, slots=True)
class _Moment:
    """One instance in one sample: its page, its live counts, and its page before."""

    page: Observation[Any] | None
    loads: Loads | None
    before: Counted | None
    now: Counted | None
    anew: bool


def _value(seen: Observation[Any] | None) -> Loads | None:
    got = seen.got if seen is not None else None
    return got.value if isinstance(got, Seen) and isinstance(got.value, Loads) else None


def _cell(column: Column, dp: int | None, moment: _Moment) -> Cell:
    live = live_count(column, dp, moment.loads)
    if moment.now is None:
        return Cell(None, Gone.MISSED if moment.page is not None else Gone.NOT_ASKED, live)
    if column.kind in (Kind.RATE, Kind.NEW):
        return _growth(column, dp, moment)
    value = read_gauge(column, dp, moment.now.page)
    return Cell(value, Gone.ABSENT if value is None else None, live)


def _growth(column: Column, dp: int | None, moment: _Moment) -> Cell:
    """A counter's rate a second, or how much it grew, since the page before."""
    now, before = moment.now, moment.before
    assert now is not None
    count = now.count(column, dp)
    if moment.anew:
        return Cell(None, Gone.RESTART if count is not None else Gone.ABSENT)
    if before is None:
        return Cell(None, Gone.FIRST if count is not None else Gone.ABSENT)
    earlier = before.count(column, dp)
    if count is not None and earlier is None and column.born_late:
        earlier = 0.0  # such a counter is absent before its first increment: its appearance is one
    if count is None or earlier is None:
        return Cell(None, Gone.ABSENT if count is None else Gone.FIRST)
    if count < earlier:
        return Cell(None, Gone.RESTART)
    seconds = now.t - before.t
    if column.kind is Kind.NEW:
        return Cell(count - earlier)
    return Cell((count - earlier) / seconds) if seconds > 0 else Cell(None, Gone.FIRST)
