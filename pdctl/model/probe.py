"""Attempts of real requests, as a probe makes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request. Times in seconds; ``error`` is one of the capture format's errors or None."""

    to: str
    via: str = "direct"  # direct | proxy
    kind: str = "generate"  # health | generate
    connection: str = "fresh"  # fresh | reused
    idle_s: float | None = None
    round: int | None = None
    concurrency: int | None = None
    stream: bool | None = None
    status: int | None = None
    error: str | None = None
    detail: str | None = None
    first_byte_s: float | None = None
    took: float | None = None
    tokens: int | None = None

    @property
    def good(self) -> bool:
        return self.error is None and self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Attempts:
    rows: tuple[Attempt, ...]
