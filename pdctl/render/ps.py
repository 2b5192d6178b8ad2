"""``pdctl ps`` for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pdctl.model.host_view import PsInstance, PsRow
from pdctl.model.rank import WHOLE
from pdctl.render.grid import grid
from pdctl.render.look import Look, Mark
from pdctl.render.text import moment, rfc3339, span, wrap
from pdctl.render.wire import number, text

HEAD = ("PID", "PART", "RANK", "GPU", "STATE", "UP", "CPU", "CPU EVER", "MEMORY", "FILES", "TITLE")
RIGHT = (0, 6, 7, 8)
STATES = {"R": "running", "S": "sleeping", "D": "in the kernel (D)", "T": "STOPPED", "t": "TRACED", "Z": "zombie"}
NEAR = 0.85  # of the limit of open files, from which on it is pointed at


def ps_lines(instances: Sequence[PsInstance], look: Look) -> Iterator[str]:
    """Each instance with its unit and its tree of processes."""
    for number_, instance in enumerate(instances):
        if number_:
            yield ""
        yield from _head(instance, look)
        if instance.rows:
            yield from grid(HEAD, [_cells(row, instance.at, look) for row in instance.rows], look, right=RIGHT)


def _head(instance: PsInstance, look: Look) -> Iterator[str]:
    on = f" on {instance.host}" if instance.host else ""
    name = look.paint(look.say(instance.name), "bold")
    yield from wrap(f"{name} ({look.say(instance.role)}{look.say(on)}){look.say(_unit_words(instance))}", look.width)
    if not instance.rows:
        why = instance.why or "no process was found"
        yield from wrap(f"no process: {look.say(why)}", look.width, f"  {look.mark(Mark.UNKNOWN)} ", "    ")


def _unit_words(instance: PsInstance) -> str:
    if instance.unit is None:
        if instance.unit_name is None:
            return ""
        return f", unit {instance.unit_name}: not read" + (f" ({instance.unit_why})" if instance.unit_why else "")
    unit = instance.unit
    parts = [f"{unit.active or '?'}" + (f" ({unit.sub})" if unit.sub else "")]
    parts += [f"since {moment(unit.since)}"] if unit.since else []
    if unit.restarts is not None:
        parts.append(
            "never restarted by systemd" if unit.restarts == 0 else f"RESTARTED {unit.restarts} times by systemd"
        )
    parts += [f"result {unit.result}"] if unit.result not in (None, "success") else []
    return f", unit {instance.unit_name}: {', '.join(parts)}"


def _cells(row: PsRow, at: datetime | None, look: Look) -> tuple[str, ...]:
    up = span((at - row.started).total_seconds()) if at and row.started else ""
    return (
        str(row.pid), "  " * row.depth + (row.part or "other"), "" if row.rank == WHOLE else str(row.rank),
        row.gpu or "", STATES.get(row.state or "", row.state or ""), up, _percent(row.cpu), _percent(row.cpu_ever),
        size(row.rss_bytes), look.say(_files(row)), look.say(row.title),
    )  # fmt: skip


def _percent(cores: float | None) -> str:
    return "" if cores is None else f"{100 * cores:.0f} %"


def size(count: int | None) -> str:
    """Bytes for people: "57 MB", "1.2 GB"."""
    if count is None:
        return ""
    if count < 1e6:
        return f"{count / 1e3:.0f} KB"
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def _files(row: PsRow) -> str:
    if row.open_files is None:
        return ""
    if row.soft_limit is None:
        return f"{row.open_files}, no limit"
    near = "NEAR " if row.open_files >= NEAR * row.soft_limit else ""
    return f"{near}{row.open_files} of {row.soft_limit}"


def ps_value(instance: PsInstance) -> dict[str, Any]:
    """What JSON holds of an instance, beside its report."""
    unit = instance.unit
    return {
        "host": text(instance.host) if instance.host else None,
        "why_no_processes": text(instance.why) if instance.why else None,
        "unit": None if unit is None else {
            "name": text(instance.unit_name or ""), "active": unit.active, "sub": unit.sub, "result": unit.result,
            "restarts": unit.restarts, "main_pid": unit.main_pid, "since": rfc3339(unit.since) if unit.since else None,
        },
        "processes": [_row_value(row) for row in instance.rows],
    }  # fmt: skip


def _row_value(row: PsRow) -> dict[str, Any]:
    return {
        "pid": row.pid,
        "ppid": row.ppid,
        "part": row.part,
        "title": text(row.title),
        "rank": row.rank.as_dict() or None,
        "gpu": row.gpu,
        "state": row.state,
        "started": rfc3339(row.started) if row.started else None,
        "cpu_cores": _number(row.cpu),
        "cpu_cores_ever": _number(row.cpu_ever),
        "rss_bytes": row.rss_bytes,
        "open_files": row.open_files,
        "soft_limit": row.soft_limit,
    }


def _number(value: float | None) -> float | int | str | None:
    return None if value is None else number(round(value, 4))
