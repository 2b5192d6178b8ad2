"""What joins a prefill and a decode: rooms, handshakes, and the transfer workers, one a pair of rank and peer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from pdctl.demo.core.leg import Leg, Stage
from pdctl.demo.core.timeline import Timeline


class Side(Protocol):
    """A rank, as the fabric sees it."""

    @property
    def name(self) -> str: ...  # the engine's

    def wake(self) -> None: ...


class Room:
    """One request over both engines. ``held`` keeps its KV from ever reaching the transfer queue."""

    __slots__ = ("decode", "held", "indices", "number", "prefill", "sent", "tells")

    def __init__(self, number: int) -> None:
        self.number = number
        self.prefill: tuple[Leg, Side] | None = None
        self.decode: tuple[Leg, Side] | None = None
        self.indices = False  # decode's KV indices are known
        self.sent = False
        self.held: str | None = None  # the fault's name
        self.tells = True  # decode tells prefill when it gives up


class Worker:
    """The one thread a prefill rank has for a peer: transfers go one after another. ``hung`` names the fault that
    keeps its present call from returning; ``failing`` is the reason with which each of its calls ends, ``mute`` whether
    decode does not hear of it."""

    __slots__ = ("busy", "failing", "hung", "mute", "queue")

    def __init__(self) -> None:
        self.queue: deque[Room] = deque()
        self.busy: Room | None = None
        self.hung: str | None = None
        self.failing: str | None = None
        self.mute = False


class Fabric:
    """Every room and worker of a cluster. ``seconds_of`` gives the time one transfer takes, by prompt tokens."""

    def __init__(self, timeline: Timeline, seconds_of: Callable[[int], float]) -> None:
        self._tl = timeline
        self._seconds_of = seconds_of
        self.rooms: dict[int, Room] = {}
        self.workers: dict[tuple[int, str], Worker] = {}  # (id of the prefill rank, name of the decode)
        self._sides: dict[int, Side] = {}
        self._hung: dict[tuple[str, str], str | None] = {}
        self._failing: dict[tuple[str, str], tuple[str | None, bool]] = {}

    # -- the faults --------------------------------------------------------------------------------------------
    def hang(self, prefill: str, decode: str, fault: str | None) -> None:
        """Every further transfer call of the pair blocks; None lets them go on."""
        self._hung[prefill, decode] = fault
        for worker, rank in self._of(prefill, decode):
            worker.hung = fault
            if fault is None and worker.busy is not None:
                self._finish_later(worker, rank, decode)

    def fail(self, prefill: str, decode: str, reason: str | None, *, mute: bool = False) -> None:
        """Every further transfer of the pair ends with an error, which a mute one does not tell decode; None heals."""
        self._failing[prefill, decode] = reason, mute
        for worker, _ in self._of(prefill, decode):
            worker.failing, worker.mute = reason, mute

    def hold(self, number: int, fault: str | None) -> None:
        """Keeps one request's KV from the transfer queue; None lets it go."""
        room = self._room(number)
        room.held = fault
        if fault is None and room.prefill and room.prefill[0].stage is Stage.INFLIGHT and not room.sent:
            self._enqueue(room)

    def _of(self, prefill: str, decode: str) -> list[tuple[Worker, Side]]:
        pairs = [(w, self._sides[i], d) for (i, d), w in self.workers.items()]
        return [(w, side) for w, side, d in pairs if side.name == prefill and d == decode]

    # -- the life of a room ------------------------------------------------------------------------------------
    def prefill_came(self, leg: Leg, rank: Side) -> None:
        room = self._room(leg.room)
        room.prefill = (leg, rank)
        leg.ready = leg.ready or room.indices

    def decode_came(self, leg: Leg, rank: Side, tells: bool) -> None:
        room = self._room(leg.room)
        room.decode = (leg, rank)
        room.tells = tells

    def indices_sent(self, leg: Leg) -> None:
        """Decode has KV memory for the room and says where: its prefill may go ahead."""
        room = self._room(leg.room)
        room.indices = True
        if room.prefill:
            room.prefill[0].ready = True
            room.prefill[1].wake()

    def send(self, leg: Leg) -> None:
        """The prefill's forward pass is over: its KV goes on the wire."""
        room = self._room(leg.room)
        if room.held is None and leg.error is None:
            self._enqueue(room)

    def prefill_gone(self, leg: Leg, reason: str) -> None:
        """The prefill gave the room up: its decode hears of it when it had already sent its indices."""
        room = self.rooms.get(leg.room)
        if room is None:
            return
        room.prefill = None
        if room.decode and room.indices and not leg.quiet:
            self._break(room.decode, reason)
        self._forget(room)

    def decode_gone(self, leg: Leg, reason: str) -> None:
        room = self.rooms.get(leg.room)
        if room is None:
            return
        room.decode = None
        if room.prefill and room.tells:
            self._break(room.prefill, reason)
        self._forget(room)

    def prefill_done(self, leg: Leg) -> None:
        room = self.rooms.get(leg.room)
        if room is not None:
            room.prefill = None
            self._forget(room)

    def decode_done(self, leg: Leg) -> None:
        """The decode has its KV: the room is over for it."""
        room = self.rooms.get(leg.room)
        if room is not None:
            room.decode = None
            self._forget(room)

    def has_peer(self, leg: Leg, prefill: bool) -> bool:
        """Whether the other side of a leg's room is there."""
        room = self.rooms.get(leg.room)
        return room is not None and (room.decode if prefill else room.prefill) is not None

    def holder_of(self, leg: Leg) -> str | None:
        """The fault that keeps this room's KV from arriving, None when nothing does."""
        room = self.rooms.get(leg.room)
        if room is None:
            return None
        if room.held:
            return room.held
        return next((w.hung for w in self.workers.values() if w.hung and (w.busy is room or room in w.queue)), None)

    # -- workers -----------------------------------------------------------------------------------------------
    def _room(self, number: int) -> Room:
        if number not in self.rooms:
            self.rooms[number] = Room(number)
        return self.rooms[number]

    def _forget(self, room: Room) -> None:
        if room.prefill is None and room.decode is None:
            self.rooms.pop(room.number, None)

    def _break(self, end: tuple[Leg, Side], reason: str) -> None:
        leg, rank = end
        if leg.stage in (Stage.BOOTSTRAP, Stage.INFLIGHT, Stage.PREALLOC, Stage.TRANSFER, Stage.HTTP):
            leg.error = leg.error or reason
            rank.wake()

    def _enqueue(self, room: Room) -> None:
        assert room.prefill is not None
        _, rank = room.prefill
        room.sent = True
        peer = room.decode[1].name if room.decode else "?"
        worker = self._worker(rank, peer)
        worker.queue.append(room)
        self._next(worker, rank, peer)

    def _worker(self, rank: Side, peer: str) -> Worker:
        key = (id(rank), peer)
        if key not in self.workers:
            worker = self.workers[key] = Worker()
            self._sides[id(rank)] = rank
            worker.hung = self._hung.get((rank.name, peer))
            worker.failing, worker.mute = self._failing.get((rank.name, peer), (None, False))
        return self.workers[key]

    def _next(self, worker: Worker, rank: Side, peer: str) -> None:
        if worker.busy is not None or not worker.queue:
            return
        worker.busy = worker.queue.popleft()
        if worker.hung is None:
            self._finish_later(worker, rank, peer)

    def _finish_later(self, worker: Worker, rank: Side, peer: str) -> None:
        assert worker.busy is not None
        prompt = worker.busy.prefill[0].prompt if worker.busy.prefill else 0
        self._tl.after(self._seconds_of(prompt), self._finish, worker, rank, peer, worker.busy)

    def _finish(self, worker: Worker, rank: Side, peer: str, room: Room) -> None:
        if worker.hung is not None or worker.busy is not room:
            return
        worker.busy = None
        if worker.failing is not None:
            self._fail_room(room, worker.failing, worker.mute)
        else:
            self._both_have_it(room)
        self._next(worker, rank, peer)

    def _fail_room(self, room: Room, reason: str, mute: bool) -> None:
        if room.decode and not mute:
            self._break(room.decode, reason)
        if room.prefill:
            room.prefill[0].quiet = mute
            self._break(room.prefill, reason)

    def _both_have_it(self, room: Room) -> None:
        for end in (room.prefill, room.decode):
            if end and end[0].error is None:
                end[0].arrived = True
                end[1].wake()
