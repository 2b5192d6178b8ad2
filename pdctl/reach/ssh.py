"""Commands on a host over SSH, under the contract of ``command.CommandReach``. One connection carries them all."""

from __future__ import annotations

import threading

from pdctl.model.answer import Answer, Why
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Host
from pdctl.reach.clock import Clock, SystemClock
from pdctl.reach.command import Collector, Outcome, Sink, answer_of, wants_sudo, words_of
from pdctl.reach.ssh_config import SshFailure
from pdctl.reach.ssh_link import Link
from pdctl.reach.ssh_live import Connection, Lost, Refused
from pdctl.reach.ssh_session import Job, Session

LATE = 0.2  # seconds beyond its deadline at which a command is given up whatever holds it


class SshReach:
    """Runs commands on the host at the other end of a link."""

    def __init__(self, host: Host, link: Link, clock: Clock | None = None) -> None:
        self._host = host
        self._link = link
        self._clock = clock or SystemClock()

    def run(self, ask: CommandAsk, *, started: float, deadline: float) -> Answer:
        return self._run(ask, Collector(ask.cap), started, deadline)

    def follow(self, ask: CommandAsk, sink: Sink, *, started: float, deadline: float) -> Answer:
        return self._run(ask, Collector(ask.cap, sink), started, deadline)

    def close(self) -> None:
        self._link.close()

    def _run(self, ask: CommandAsk, into: Collector, started: float, deadline: float) -> Answer:
        begun = self._clock.now()
        until = min(deadline, begun + ask.timeout)
        try:
            words = words_of(ask, self._host.become)
            connection, asked = self._link.get(until)
            job = Job(words, ask.stdin, wants_sudo(ask, self._host.become), begun + asked, until + asked)
            outcome = _bounded(self._link, connection, job, into)
        except ValueError as error:
            outcome = Outcome(error=Why.OTHER, detail=str(error))
        except SshFailure as failure:
            outcome = Outcome(error=Why.SSH, detail=failure.message)
        return answer_of(ask, outcome, clock=self._clock, started=started, begun=begun)


def _bounded(link: Link, connection: Connection, job: Job, into: Collector) -> Outcome:
    """The outcome of ``_carry_out``, and a late one where paramiko blocks beyond the deadline (it waits for some of the
    server's replies without a limit)."""
    done: list[Outcome] = []

    def work() -> None:
        done.append(_carry_out(link, connection, job, into))

    thread = threading.Thread(target=work, name=f"pdctl-run-{connection.name}", daemon=True)
    thread.start()
    thread.join(max(0.0, job.until - SystemClock().now()) + LATE)
    return done[0] if done else Outcome(error=Why.SSH, detail=f"{connection.name} did not answer in time")


def _carry_out(link: Link, connection: Connection, job: Job, into: Collector) -> Outcome:
    """Runs the job; over a new connection where the one at hand turned out to be dead before the job began."""
    try:
        return _attempt(connection, job, into)
    except Lost as lost:
        first = str(lost)
    link.drop(connection)
    try:
        connection, _ = link.get(job.until)
        return _attempt(connection, job, into)
    except (Lost, SshFailure) as again:
        return Outcome(error=Why.SSH, detail=f"{first}; then: {again}")


def _attempt(connection: Connection, job: Job, into: Collector) -> Outcome:
    try:
        return Session(connection, job, into).run()
    except Refused as refused:
        return Outcome(error=Why.SSH, detail=str(refused))
