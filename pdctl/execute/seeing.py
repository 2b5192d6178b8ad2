"""One look at instances that are being restarted: their process, their unit, their job, what they answer, their log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pdctl.execute.world import World
from pdctl.facts import asks_host, read
from pdctl.facts.asks import asks_for
from pdctl.facts.asks_ground import last_line, last_log_ask, listeners_ask
from pdctl.facts.base import Unreadable
from pdctl.facts.kin import Kin, kin_of
from pdctl.facts.proc_listing import Listed, read_listing
from pdctl.facts.sockets import read as read_sockets
from pdctl.model.answer import Answer, Fact, Missed, Observation, Seen
from pdctl.model.ask import Ask, CommandAsk
from pdctl.model.cluster import Host, Instance
from pdctl.model.host import Unit
from pdctl.model.plan import Identity
from pdctl.plans.waiting import Sight
from pdctl.reach.act import mark_ask, read_mark

LOOK_TIMEOUT = 12.0  # seconds
HTTP_TIMEOUT = 10.0  # seconds: a health check of an engine takes one when all is well


@dataclass(frozen=True, slots=True)
class Looked:
    """An instance to look at: what to ask it over HTTP this time, the mark of its restart command if it has one."""

    instance: Instance
    host: Host
    fact: Fact | None = None
    mark: str | None = None
    log: bool = True


@dataclass(slots=True)
class _Asked:
    """What was asked of one instance, by what for."""

    looked: Looked
    asks: dict[str, Ask] = field(default_factory=dict)


def look_at(world: World, wanted: Sequence[Looked]) -> dict[str, Sight]:
    """A sight of each, all asked at once."""
    asked = [_asks_of(looked) for looked in wanted]
    listings = _listing_asks(wanted)
    flat: list[Ask] = [*(ask for a in asked for ask in a.asks.values()), *listings.values()]
    answers = dict(zip((id(ask) for ask in flat), world.look(flat, LOOK_TIMEOUT), strict=True))
    listed = {host: _Listing.of([answers[id(a)] for a in _both(listings, host)]) for host, _ in listings}
    at = world.clock.now()
    return {a.looked.instance.name: _sight(a, answers, listed, at) for a in asked}


def _asks_of(looked: Looked) -> _Asked:
    instance, host, asked = looked.instance, looked.host, _Asked(looked)
    if instance.unit:
        asked.asks["unit"] = asks_host.unit_ask(instance, host)
    if looked.mark is not None:
        asked.asks["mark"] = mark_ask(host, looked.mark, instance.name)
    if looked.fact is not None:
        via = host.name if host.ssh is not None else None
        for ask in asks_for(instance, (looked.fact,), via=via):
            asked.asks["http"] = replace(ask, timeout=min(ask.timeout, HTTP_TIMEOUT))
    if looked.log and (log := last_log_ask(instance, host)) is not None:
        asked.asks["log"] = log
    return asked


def _listing_asks(wanted: Sequence[Looked]) -> dict[tuple[str, str], CommandAsk]:
    """For instances without a unit: one listing of the processes and one of the sockets for each of their hosts."""
    hosts = {looked.host.name: looked.host for looked in wanted if not looked.instance.unit}
    out: dict[tuple[str, str], CommandAsk] = {}
    for name, host in hosts.items():
        out[name, "processes"] = asks_host.processes_ask(host)
        out[name, "sockets"] = listeners_ask(host)
    return out


def _both(listings: dict[tuple[str, str], CommandAsk], host: str) -> Iterator[CommandAsk]:
    yield listings[host, "processes"]
    yield listings[host, "sockets"]


def _sight(
    asked: _Asked, answers: dict[int, Answer | None], listed: dict[str, _Listing], at: float
) -> Sight:  # fmt: skip
    instance, host = asked.looked.instance, asked.looked.host
    came = {what: answers[id(ask)] for what, ask in asked.asks.items()}
    unit = _read(came.get("unit"), instance)
    present: tuple[Identity, ...] | None
    if instance.unit:
        present, why = present_of_unit(unit)
    else:
        present, why = listed[host.name].present(instance)
    mark_answer = came.get("mark")
    mark = read_mark(mark_answer) if mark_answer is not None else None
    http = _read(came.get("http"), instance)
    log = came.get("log")
    return Sight(
        at,
        present,
        why,
        unit.got.value
        if unit is not None and isinstance(unit.got, Seen) and isinstance(unit.got.value, Unit)
        else None,
        mark is not None and mark.runs,
        mark.status if mark is not None else None,
        mark.said if mark is not None else "",
        {http.fact: http} if http is not None else {},
        last_line(log) if log is not None else None,
    )


def _read(answer: Answer | None, instance: Instance) -> Observation[object] | None:
    return read(answer, instance) if answer is not None else None


def present_of_unit(seen: Observation[object] | None) -> tuple[tuple[Identity, ...] | None, str | None]:
    """The unit's main process, or none; None and why where it could not be seen."""
    if seen is None:
        return None, "what systemd says of its unit was not asked"
    if isinstance(seen.got, Missed):
        return None, seen.got.detail or str(seen.got.why)
    unit = seen.got.value
    assert isinstance(unit, Unit)
    return identity_of_unit(unit), None


def identity_of_unit(unit: Unit) -> tuple[Identity, ...]:
    """The run of the unit that is there. A unit that is active without a main process (RemainAfterExit) is one, too."""
    invocation = unit.properties.get("InvocationID") or None
    if unit.main_pid:
        return (Identity(unit.main_pid, unit.since, invocation),)
    if unit.active == "active" and invocation:
        return (Identity(0, unit.since, invocation),)
    return ()


@dataclass(frozen=True, slots=True)
class _Listing:
    """The processes of a host and who listens on which port; ``why`` where they could not be listed."""

    rows: tuple[Listed, ...] = ()
    ports: dict[int, frozenset[int]] = field(default_factory=dict)
    why: str | None = None

    @classmethod
    def of(cls, answers: Sequence[Answer | None]) -> _Listing:
        processes, sockets = answers
        if processes is None or processes.error is not None or processes.body is None:
            detail = (processes.detail or str(processes.error)) if processes is not None else "not asked"
            return cls(why=f"its processes could not be listed: {detail}")
        try:
            return cls(read_listing(processes.body), listening(sockets))
        except Unreadable as error:
            return cls(why=error.detail)

    def present(self, instance: Instance) -> tuple[tuple[Identity, ...] | None, str | None]:
        if self.why is not None:
            return None, self.why
        return identities_of_kin(kin_of(instance, self.rows, self.ports)), None


def listening(answer: Answer | None) -> dict[int, frozenset[int]]:
    """Which processes listen on which port, as far as the listing tells."""
    if answer is None or answer.error is not None or answer.body is None:
        return {}
    try:
        rows = read_sockets(answer, None).rows
    except Unreadable:
        return {}
    ports: dict[int, set[int]] = {}
    for row in rows:
        if row.state == "LISTEN" and row.pid is not None:
            ports.setdefault(row.local_port, set()).add(row.pid)
    return {port: frozenset(pids) for port, pids in ports.items()}


def identities_of_kin(kin: Kin) -> tuple[Identity, ...]:
    """The main processes: those whose parent is none of the instance's own. Dead ones that wait to be reaped are not
    there any more."""
    alive = [row for row in kin.rows if row.state not in ("Z", "X")]
    pids = {row.pid for row in alive}
    tops = [row for row in alive if row.ppid not in pids]
    return tuple(Identity(row.pid, datetime.fromtimestamp(row.started, UTC)) for row in tops)
