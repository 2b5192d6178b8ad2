"""Which scheduler of an engine: its place in data, pipeline, tensor and expert parallelism."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """A rank; a dimension the engine does not name is None (not 0: absent differs from rank 0 of one)."""

    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    ep: int | None = None
    cp: int | None = None

    def as_dict(self) -> dict[str, int]:
        """The named dimensions, in the order of the JSON report."""
        pairs = (("dp", self.dp), ("pp", self.pp), ("tp", self.tp), ("ep", self.ep), ("cp", self.cp))
        return {key: value for key, value in pairs if value is not None}

    def __str__(self) -> str:
        return " ".join(f"{key.upper()}{value}" for key, value in self.as_dict().items())


WHOLE = Rank()
