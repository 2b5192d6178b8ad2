"""An instance's processes as ``pdctl ps`` shows them: the tree, and what each costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from pdctl.facts.gpus_of import gpu_of
from pdctl.facts.titles import CONTROLLER, DETOKENIZER, MAIN, SCHEDULER, TOKENIZER, main_of
from pdctl.model.answer import Fact, Missed
from pdctl.model.cluster import Instance
from pdctl.model.host import Environ, Limits, Process, Processes, Unit
from pdctl.model.host_view import PsInstance, PsRow
from pdctl.model.window import At, Window

ORDER = (CONTROLLER, SCHEDULER, DETOKENIZER, TOKENIZER)  # of an engine's children; others come last


def ps_of(window: Window, instance: Instance) -> PsInstance:
    """The newest listing of the instance's processes, with what else was seen of them."""
    name, looks = instance.name, window.seen(instance.name, Fact.PROCESSES, Processes)
    unit = window.last(name, Fact.UNIT, Unit)
    head = PsInstance(
        name, instance.role, instance.host, unit=unit.value if unit else None, unit_name=instance.unit,
        unit_why=None if unit else _why(window, name, Fact.UNIT), why=_why(window, name, Fact.PROCESSES),
    )  # fmt: skip
    if not looks or not looks[-1].value.rows:
        return head
    rows = tuple(_rows(window, instance, looks))
    return PsInstance(
        head.name, head.role, head.host, rows, looks[-1].seen.at, head.unit, head.unit_name, head.unit_why
    )


def _why(window: Window, subject: str, fact: Fact) -> str | None:
    rows = window.timeline(subject, fact)
    if not rows:
        return None
    got = rows[-1].got
    return (got.detail or str(got.why)) if isinstance(got, Missed) else None


def _rows(window: Window, instance: Instance, looks: Sequence[At[Processes]]) -> list[PsRow]:
    newest = looks[-1]
    processes = newest.value.rows
    before = {p.pid: p for p in looks[0].value.rows} if len(looks) > 1 else {}
    limits, gpus = _limits(window, instance.name), _gpus(window, instance.name, processes)
    return [
        _row(process, depth, newest.seen.at, limits.get(process.pid), gpus.get(process.pid),
             _recent(process, before.get(process.pid), newest.t - looks[0].t))
        for process, depth in tree(processes)
    ]  # fmt: skip


def _row(
    process: Process, depth: int, at: datetime, limits: Limits | None, gpu: str | None, cpu: float | None
) -> PsRow:
    age = (at - process.started).total_seconds() if process.started else 0.0
    spent = process.cpu_seconds
    return PsRow(
        process.pid, process.ppid, depth, process.part, process.title, process.rank, process.state, process.started,
        cpu=cpu,
        cpu_ever=spent / age if spent is not None and age > 0 else None,
        rss_bytes=process.rss_bytes,
        open_files=limits.open_files if limits else None,
        soft_limit=limits.soft_limit if limits else None,
        gpu=gpu,
    )  # fmt: skip


def _recent(process: Process, before: Process | None, seconds: float) -> float | None:
    """Cores used between two looks; None for a process that was not there before, or took the number of another."""
    if before is None or before.started != process.started or seconds <= 0:
        return None
    if process.cpu_seconds is None or before.cpu_seconds is None:
        return None
    return max(0.0, process.cpu_seconds - before.cpu_seconds) / seconds


def _gpus(window: Window, subject: str, processes: Sequence[Process]) -> dict[int, str]:
    """The GPU of each scheduler whose engine's flags are known."""
    flags = {p.pid: p.flags for p in processes if p.part == MAIN}
    visible = _visible(window, subject)
    out: dict[int, str] = {}
    for process in processes:
        main = main_of(process.pid, processes)
        if process.part == SCHEDULER and main in flags:
            gpu = gpu_of(process.rank, flags[main], visible.get(main))
            out |= {process.pid: gpu} if gpu is not None else {}
    return out


def tree(processes: Sequence[Process]) -> list[tuple[Process, int]]:
    """Each process with its depth, parents before children, the schedulers of a parent in order of rank."""
    known = {p.pid for p in processes}
    children: dict[int, list[Process]] = defaultdict(list)
    for process in processes:
        children[process.ppid if process.ppid in known and process.ppid != process.pid else 0].append(process)
    out: list[tuple[Process, int]] = []
    waiting = [(p, 0) for p in reversed(_ordered(children[0]))]
    seen: set[int] = set()
    while waiting:
        process, depth = waiting.pop()
        if process.pid in seen:
            continue
        seen.add(process.pid)
        out.append((process, depth))
        waiting += [(p, depth + 1) for p in reversed(_ordered(children[process.pid]))]
    return out


def _ordered(processes: Sequence[Process]) -> list[Process]:
    def key(process: Process) -> tuple[int, list[int], int]:
        rank = process.rank
        numbers = [-1 if n is None else n for n in (rank.dp, rank.pp, rank.tp, rank.ep, rank.cp)]
        return (ORDER.index(process.part) if process.part in ORDER else len(ORDER), numbers, process.pid)

    return sorted(processes, key=key)


def _limits(window: Window, subject: str) -> dict[int, Limits]:
    return {
        pid: at.value
        for at in window.seen(subject, Fact.LIMITS, Limits)
        if isinstance(pid := at.seen.more.get("pid"), int)
    }


def _visible(window: Window, subject: str) -> Mapping[int, str]:
    return {
        pid: at.value.values["CUDA_VISIBLE_DEVICES"]
        for at in window.seen(subject, Fact.ENVIRON, Environ)
        if isinstance(pid := at.seen.more.get("pid"), int) and "CUDA_VISIBLE_DEVICES" in at.value.values
    }
