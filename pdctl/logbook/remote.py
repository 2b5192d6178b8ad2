"""Logs on hosts: what there is of them, what they grow by, and how far each host's clock is from this machine's.

with LogHosts(cluster, clock) as hosts:
    sources = hosts.sources(instances, since)
    ... hosts.fresh() ...
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from pdctl.facts.asks_files import read_times, times_ask
from pdctl.facts.asks_logs import Kept, again_ask, follow_ask, history_ask, read_history
from pdctl.facts.log import HEAD, journal_denial
from pdctl.logbook.following import Lines, follow
from pdctl.logbook.sources import END, Source, clock_of
from pdctl.model.answer import Answer
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import LOCAL, Cluster, Host, Instance
from pdctl.model.log_filter import Moment, in_clock
from pdctl.reach.clock import Clock
from pdctl.reach.hosts import Hosts

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PARALLEL = 16
SAID_FROM = 1.0  # seconds of skew from which on it is said
ENDING = 8.0  # seconds that closing waits for commands to be ended on their hosts


@dataclass(frozen=True, slots=True)
class HostClock:
    """A host's clock: how far it is ahead of UTC by its zone, and of this machine's give or take ``within_s``."""

    offset: timedelta
    ahead_s: float
    within_s: float


@dataclass(frozen=True, slots=True)
class _Said:
    """What is to be said of a log that is followed; ``is_end``: why it is so no longer."""

    name: str
    text: str
    is_end: bool = False


class LogHosts:
    """Reads and follows logs on hosts. ``unknown``: what could not be read, and why; ``notes``: what else is to be
    said. Use it as a context manager: leaving it ends what still runs on the hosts."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster.with_local()
        self._clock = clock
        self._hosts = Hosts(self._cluster, clock=clock)
        self._clocks: dict[str, HostClock] = {}
        self._came: SimpleQueue[tuple[str, list[bytes]] | _Said] = SimpleQueue()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._going = 0
        self.unknown: dict[str, str] = {}
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(ENDING)
        self._hosts.close()

    def is_here(self, instance: Instance) -> bool:
        """Whether an instance's log is a file of this machine."""
        host = self._host(instance)
        return instance.log is not None and (instance.host is None or host is None or host.ssh is None)

    def _host(self, instance: Instance) -> Host | None:
        """Its host; this machine for one that names none and is not at another address."""
        if instance.host is None and (urlsplit(instance.url or "").hostname or LOOPBACK[0]) not in LOOPBACK:
            return None
        return next((h for h in self._cluster.hosts if h.name == (instance.host or LOCAL)), None)

    # --- what there is ---

    def sources(self, instances: Sequence[Instance], since: Moment | None = None) -> list[Source]:
        """The logs of instances on hosts, all read at once. ``since`` bounds how much of a journal is read."""
        placed = [(i, host) for i in instances if (host := self._host(i)) is not None and (i.log or i.unit)]
        for instance in instances:
            if not any(i is instance for i, _ in placed):
                missing = "host" if instance.log or instance.unit else "log file and no unit"
                self.unknown[instance.name] = f"the inventory names no {missing} of it"
        with ThreadPoolExecutor(PARALLEL) as pool:
            self._measure(list(dict.fromkeys(host for _, host in placed)), pool)
            asked = [history_ask(i, host, self._from(host, since)) for i, host in placed]
            answers = list(pool.map(self._run, asked))
        made = [self._source(i, host, answer) for (i, host), answer in zip(placed, answers, strict=True)]
        return [source for source in made if source is not None]

    def _run(self, ask: CommandAsk) -> Answer:
        now = self._clock.now()
        return self._hosts.run(ask, started=now, deadline=now + ask.timeout)

    def _measure(self, hosts: Sequence[Host], pool: ThreadPoolExecutor) -> None:
        """Asks each host for its clock and zone, twice: the first answer has waited for the connection."""
        for host, clock in zip(hosts, pool.map(self._clock_on, hosts), strict=True):
            if clock is None:
                continue
            self._clocks[host.name] = clock
            if abs(clock.ahead_s) > max(SAID_FROM, 2 * clock.within_s):
                side = "ahead of" if clock.ahead_s > 0 else "behind"
                self.notes.append(
                    f"the clock of {host.name} is {abs(clock.ahead_s):.1f} s {side} this machine's "
                    f"(give or take {clock.within_s:.2f} s): its lines are shown as written, and placed by that"
                )

    def _clock_on(self, host: Host) -> HostClock | None:
        ask = times_ask(f"host:{host.name}", host)
        if self._run(ask).error is not None:
            return None
        answer = self._run(ask)
        told = read_times(answer)
        if told is None:
            return None
        middle = answer.at.timestamp() - answer.took / 2
        return HostClock(timedelta(minutes=told.offset), told.epoch - middle, answer.took / 2)

    def _from(self, host: Host, since: Moment | None) -> datetime | None:
        """The moment on the host's clock from which on its journal is read; None for a time of day, which means the
        last one that the log lived through."""
        clock = self._clocks.get(host.name)
        if clock is None or not isinstance(since, timedelta | datetime):
            return None
        now = self._now(clock, self._clock.wall())
        return (in_clock(since, now, None, clock.offset) - clock.offset).replace(tzinfo=UTC)

    @staticmethod
    def _now(clock: HostClock, wall: datetime) -> datetime:
        """The host's own time, naive."""
        return wall.astimezone(UTC).replace(tzinfo=None) + clock.offset + timedelta(seconds=clock.ahead_s)

    def _source(self, instance: Instance, host: Host, answer: Answer) -> Source | None:
        kept = read_history(instance, answer) if answer.error is None else None
        denied = journal_denial(answer) if instance.log is None else None
        if kept is None or (denied is not None and not kept.text):
            why = answer.detail or (str(answer.error) if answer.error else None)
            self.unknown[instance.name] = f"its log on {host.name} could not be read: {why or denied or 'no answer'}"
            if answer.error is None and denied is None and answer.more.get("stderr"):
                self.unknown[instance.name] += f" ({answer.more['stderr']})"
            return None
        if denied is not None:
            self.notes.append(f"{instance.name}: part of its log may be missing: {denied}")
        if kept.is_cut:
            self.notes.append(f"{instance.name}: only the newest part of its log was read from {host.name}")
        if not kept.text:
            self.notes.append(f"{instance.name}: its log on {host.name} is empty")
        return self._made(instance, host, answer, kept)

    def _made(self, instance: Instance, host: Host, answer: Answer, kept: Kept) -> Source:
        clock = self._clocks.get(host.name)
        head = kept.text[:HEAD]
        now, last, offset = clock_of(instance.role, head, kept.text[-END:], kept.written, answer.at)
        if clock is not None and (instance.log is None or offset is None):
            last = last + clock.offset if last is not None and instance.log is None else last
            now, offset = self._now(clock, answer.at), clock.offset
        return Source(
            instance.name, instance.role, lambda: BytesIO(kept.text), head, answer.at, now, last, offset,
            ahead=timedelta(seconds=clock.ahead_s) if clock is not None else timedelta(),
            follow_by=(follow_ask(instance, host, kept.goes_on), again_ask(instance, host)),
        )  # fmt: skip

    # --- what comes ---

    def follow(self, sources: Iterable[Source]) -> None:
        """Begins to follow those that are on hosts."""
        for source in sources:
            if source.follow_by is not None:
                self._going += 1
                thread = threading.Thread(target=self._follow, args=(source,), name=f"pdctl-log-{source.name}")
                thread.daemon = True
                self._threads.append(thread)
                thread.start()

    def _follow(self, source: Source) -> None:
        assert source.follow_by is not None
        name = source.name
        lines = Lines(lambda fresh: self._came.put((name, fresh)))
        lines.seen(source.lines())
        first, again = source.follow_by
        why = follow(
            self._hosts, self._clock, first, again, lines, self._over, lambda said: self._came.put(_Said(name, said))
        )  # fmt: skip
        self._came.put(_Said(name, why, is_end=True))

    def fresh(self) -> dict[str, list[bytes]] | None:
        """The lines that came since the last call, by source; None once no log is followed any more."""
        out: dict[str, list[bytes]] = {}
        while True:
            try:
                came = self._came.get_nowait()
            except Empty:
                break
            if isinstance(came, _Said):
                self._going -= came.is_end
                self.notes.append(f"{came.name}{' is followed no longer' if came.is_end else ''}: {came.text}")
            else:
                out.setdefault(came[0], []).extend(came[1])
        return out if out or self._going else None
