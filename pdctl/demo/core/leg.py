"""One engine's part of a request, and where it is."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class Stage(StrEnum):
    """Where a leg is. Queues carry the names pdctl uses for them."""

    HTTP = "http"  # accepted, not yet in the scheduler
    BOOTSTRAP = "bootstrap"
    PREALLOC = "prealloc"
    TRANSFER = "transfer"
    WAITING = "queue"
    FORWARD = "forward"
    INFLIGHT = "inflight"
    RUNNING = "running"
    RETRACTED = "retracted"
    DONE = "done"


class Leg:
    """A request as one engine holds it. ``done`` is called once with (HTTP status, text) when it ends."""

    __slots__ = (
        "aborting", "arrived", "born", "done", "endpoint", "error", "fake", "generated", "max_new", "prompt", "quiet",
        "ready", "rid", "room", "stage", "stage_at", "stream",
    )  # fmt: skip

    def __init__(
        self, rid: str, room: int, prompt: int, max_new: int, *, born: float, stream: bool = False,
        fake: bool = False, endpoint: str = "/v1/completions", done: Callable[[int, str], None] | None = None,
    ) -> None:  # fmt: skip
        self.rid = rid
        self.room = room
        self.prompt = prompt
        self.max_new = max_new
        self.born = born
        self.stream = stream
        self.fake = fake  # fake bootstrap host, no peer: a health request, or one that names that host
        self.endpoint = endpoint
        self.done = done
        self.stage = Stage.HTTP
        self.stage_at = born
        self.generated = 0
        self.ready = fake  # prefill: KV indices came; decode: handshake done
        self.arrived = False  # its KV has been sent (prefill) or has come (decode)
        self.error: str | None = None  # why its transfer or handshake failed
        self.aborting = False
        self.quiet = False  # its failure is not told to the peer

    def move(self, stage: Stage, now: float) -> float:
        """Enters a stage and returns the seconds spent in the last one."""
        spent = now - self.stage_at
        self.stage = stage
        self.stage_at = now
        return spent
