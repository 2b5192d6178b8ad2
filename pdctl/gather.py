"""Asks many endpoints at once, one request each, under one deadline. Every ask has an answer in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pdctl.carry import Carrier, CommandDoor, HttpDoor, Places
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import Ask, HttpAsk
from pdctl.model.cluster import Cluster
from pdctl.reach.clock import Clock
from pdctl.reach.lanes import Lanes
from pdctl.reach.pace import Pace, after, rested

if TYPE_CHECKING:
    from pdctl.reach.wire import Dial

GRACE = 0.1  # seconds after a deadline in which answers ended by it are still awaited
LANES = 4  # few are quickest where answers are: threads that take turns cost more than they save
STALL = 0.003  # seconds without an answer after which there are twice the lanes for those who wait
NAP = 0.5  # seconds waited at a stretch when nobody waits for a lane
CUT = "deadline of the whole run"


@dataclass(eq=False, slots=True)
class _Ticket:
    """One ask under way. ``begun`` is None until its turn comes."""

    ask: Ask
    begun: float | None = None


@dataclass(eq=False, slots=True)
class _Batch:
    """The asks of one place in a round, asked one after the other; ``current`` is the one asked last."""

    place: str
    tickets: list[_Ticket]
    deadline: float
    round: int
    current: _Ticket | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class _Result:
    """What a lane reports: an answer (None when there was nothing left to ask), and whether its batch is done."""

    batch: _Batch
    ticket: _Ticket | None
    answer: Answer | None
    is_last: bool


@dataclass(slots=True)
class _State:
    """What is under way, and how endpoints have been answering. Only the asking thread changes it."""

    busy: dict[str, _Batch] = field(default_factory=dict)
    pending: dict[_Ticket, _Batch] = field(default_factory=dict)
    arrived: list[Answer] = field(default_factory=list)
    paces: dict[tuple[str, Fact], Pace] = field(default_factory=dict)
    round: int = 0
    round_at: float | None = None
    gap: float = 0.0


class Gatherer:
    """Asks the endpoints of a cluster, round after round. ``http`` is made when first needed unless given (``via``
    then gives it the network of a host); ``commands`` carries command asks. ``on_answer`` is called with each answer
    as it arrives, in the asking thread. ``parallel`` places are asked at once to begin with, and twice as many each
    time those are found waiting, up to all. Use it as a context manager."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        http: HttpDoor | None = None,
        commands: CommandDoor | None = None,
        via: Dial | None = None,
        on_answer: Callable[[Answer], None] | None = None,
        parallel: int = LANES,
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.started: float | None = None
        self.started_at = clock.wall()
        self._carrier = Carrier(clock, http, commands, via)
        self._on_answer = on_answer
        self._lanes = Lanes(parallel)
        self._results: SimpleQueue[_Result] = SimpleQueue()
        self._state = _State()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends what is idle; requests still under way end by their own timeout, unheard."""
        self.drop()
        self._lanes.close()
        self._carrier.close()

    def start(self, asks: Iterable[Ask] = ()) -> float:
        """When the window started, by the clock: answers' ``t`` counts from here. Set by the first call, which the
        first round makes; ``started_at`` is the same moment as a time of day. What carries ``asks`` is made before, so
        that loading it delays no request."""
        if self.started is None:
            self._carrier.ready(asks)
            self.started = self.clock.now()
            self.started_at = self.clock.wall()
        return self.started

    def gather(self, asks: Sequence[Ask], deadline_s: float) -> tuple[Answer, ...]:
        """Asks everything at once and returns the answers in the order they came, within ``deadline_s`` seconds and a
        tenth. An ask that is cut off, or whose endpoint still hangs from an earlier round, has an answer that says so;
        one that is left out because its endpoint has slowed has none (``backing_off`` names it). On KeyboardInterrupt
        the answers so far have gone to ``on_answer``."""
        deadline = self.clock.now() + deadline_s
        try:
            held = tuple(self.held(self.begin(asks, deadline)))
            return (*held, *self.collect(deadline + GRACE), *self.cut())
        except BaseException:
            self.drop()
            raise

    def begin(self, asks: Iterable[Ask], deadline: float) -> tuple[Ask, ...]:
        """Starts a round: every endpoint's asks in the order given, all endpoints at once, none beyond ``deadline`` (by
        the clock). Returns the asks not begun because a request to the same place is still under way."""
        wanted = tuple(asks)
        self.start(wanted)
        self._carrier.ready(wanted)
        self._next_round()
        places, groups = Places(), dict[str, list[Ask]]()
        for ask in wanted:
            groups.setdefault(places.of(ask), []).append(ask)
        held: list[Ask] = []
        for place, theirs in groups.items():
            if place in self._state.busy:
                held.extend(theirs)
            else:
                self._send(place, [ask for ask in theirs if not self._rests(ask)], deadline)
        return tuple(held)

    def collect(self, until: float) -> Iterator[Answer]:
        """The answers as they arrive, of this round and earlier ones, until none is awaited or the clock says
        ``until``."""
        while self._state.arrived or self._state.pending:
            yield from self._delivered(self._taken())
            left = until - self.clock.now()
            if left <= 0 or not self._state.pending:
                return
            self._wait(min(STALL if self._lanes.is_short else NAP, left))

    def held(self, asks: Iterable[Ask]) -> Iterator[Answer]:
        """The answers that stand for asks that ``begin`` did not begin."""
        return self._delivered(self._held(ask) for ask in asks)

    def cut(self) -> Iterator[Answer]:
        """Gives up on whatever is awaited: the answers that say so."""
        pending = tuple(self._state.pending)
        self.drop()
        return self._delivered(self._cut(ticket) for ticket in pending)

    def drop(self) -> None:
        """Gives up on whatever is awaited, without a word. A request under way keeps its endpoint busy until it has
        ended."""
        for batch in self._state.pending.values():
            batch.dropped = True
        self._state.pending.clear()

    def awaited(self) -> int:
        """How many asks have no answer yet."""
        return len(self._state.pending)

    def backing_off(self) -> dict[str, float]:
        """Who is asked less often than planned, as "instance fact", with the seconds its last answer took, or those
        that a request begun in an earlier round has been under way."""
        slow = {f"{subject} {fact}": pace.took for (subject, fact), pace in self._state.paces.items() if pace.slow}
        now = self.clock.now()
        for batch in self._state.busy.values():
            current = batch.current
            if current is not None and current.begun is not None and (batch.dropped or batch.round < self._state.round):
                slow[f"{current.ask.subject} {current.ask.fact}"] = now - current.begun
        return slow

    # --- a round -----------------------------------------------------------------------------------------------------

    def _next_round(self) -> None:
        self._state.arrived.extend(self._taken())
        now = self.clock.now()
        self._state.gap = now - self._state.round_at if self._state.round_at is not None else 0.0
        self._state.round_at = now
        self._state.round += 1

    def _rests(self, ask: Ask) -> bool:
        key = (ask.subject, ask.fact)
        pace = self._state.paces.get(key)
        if pace is None or pace.rest == 0:
            return False
        self._state.paces[key] = rested(pace)
        return True

    def _send(self, place: str, asks: list[Ask], deadline: float) -> None:
        if not asks:
            return
        batch = _Batch(place, [_Ticket(ask) for ask in asks], deadline, self._state.round)
        self._state.busy[place] = batch
        self._state.pending.update(dict.fromkeys(batch.tickets, batch))
        self._lanes.run(lambda: self._work(batch))

    def _work(self, batch: _Batch) -> None:
        """In a lane: the batch's asks in turn, until it is dropped."""
        for ticket in batch.tickets:
            if batch.dropped:
                self._results.put(_Result(batch, None, None, True))
                return
            answer = self._asked(ticket, batch)
            self._results.put(_Result(batch, ticket, answer, ticket is batch.tickets[-1]))

    def _asked(self, ticket: _Ticket, batch: _Batch) -> Answer:
        ticket.begun = self.clock.now()
        batch.current = ticket
        if ticket.begun >= batch.deadline:
            return self._cut(ticket)
        return self._carrier.asked(ticket.ask, self.start(), batch.deadline)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        try:
            self._state.arrived.extend(self._accepted(self._results.get(timeout=seconds)))
        except Empty:
            self._lanes.grow()

    def _taken(self) -> list[Answer]:
        """What has arrived by now."""
        came, self._state.arrived = self._state.arrived, []
        while not self._results.empty():
            came.extend(self._accepted(self._results.get()))
        return came

    def _accepted(self, result: _Result) -> list[Answer]:
        if result.is_last and self._state.busy.get(result.batch.place) is result.batch:
            del self._state.busy[result.batch.place]
        if result.ticket is None or result.answer is None or self._state.pending.pop(result.ticket, None) is None:
            return []
        self._pace(result.ticket.ask, result.answer)
        return [result.answer]

    def _delivered(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        for answer in answers:
            if self._on_answer is not None:
                self._on_answer(answer)
            yield answer

    def _pace(self, ask: Ask, answer: Answer) -> None:
        """Health is left out: an engine takes a second for it at best."""
        if isinstance(ask, HttpAsk) and ask.fact is not Fact.HEALTH:
            key = (ask.subject, ask.fact)
            self._state.paces[key] = after(self._state.paces.get(key, Pace()), answer.took, self._state.gap)

    def _held(self, ask: Ask) -> Answer:
        batch = self._state.busy.get(Places().of(ask))
        current = batch.current if batch is not None else None
        begun = current.begun if current is not None and current.begun is not None else self.clock.now()
        why = "not asked: a request to the same place, begun in an earlier round, is still under way"
        return self._carrier.failed(ask, self.start(), begun, Why.READ_TIMEOUT, why)

    def _cut(self, ticket: _Ticket) -> Answer:
        now = self.clock.now()
        begun = ticket.begun if ticket.begun is not None else now
        waited = f"no answer in {now - begun:.3g} s" if begun < now else "not asked"
        return self._carrier.failed(ticket.ask, self.start(), begun, Why.READ_TIMEOUT, f"{waited}: {CUT}")
