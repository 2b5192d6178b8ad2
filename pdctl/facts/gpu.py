"""GPUs as nvidia-smi lists them."""

from __future__ import annotations

import csv
from collections.abc import Iterable

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import text_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import GpuRow, Gpus

_ASKED = ("index", "utilization.gpu", "power.draw", "memory.used")  # the order of the capture format's query


def read(answer: Answer, instance: Instance | None) -> Gpus:
    """``nvidia-smi --query-gpu=... --format=csv``, units and header optional. What a card does not report ("[N/A]") is
    None. Raises ``Unreadable`` where there is no row."""
    lines = [line for line in text_of(answer).splitlines() if "," in line]
    rows = [[cell.strip() for cell in cells] for cells in csv.reader(lines)]
    names: Iterable[str] = _ASKED
    if rows and not rows[0][0].isdecimal():
        names = [cell.split(" ")[0] for cell in rows.pop(0)]
    found = tuple(row for cells in rows if (row := _gpu(dict(zip(names, cells, strict=False)))) is not None)
    if not found:
        raise Unreadable(Why.OTHER, "no GPU row in nvidia-smi's output")
    return Gpus(found)


def _gpu(cells: dict[str, str]) -> GpuRow | None:
    index = cells.get("index", "")
    if not index.isdecimal():
        return None
    return GpuRow(
        int(index), _figure(cells.get("utilization.gpu")), _figure(cells.get("power.draw")),
        _figure(cells.get("memory.used")),
    )  # fmt: skip


def _figure(text: str | None) -> float | None:
    try:
        return float((text or "").split(" ")[0])
    except ValueError:
        return None
