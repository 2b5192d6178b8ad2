"""Stacks as py-spy dumps them, of one process or of many in a row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import text_of
from pdctl.facts.stamps import text_of as named
from pdctl.facts.stamps import whole_of
from pdctl.facts.titles import part_of, rank_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import Frame, ProcessStack, Stacks, ThreadStack
from pdctl.model.secrets import mask_text

PERMISSION, VERSION, STOPPED, GONE, TOOL, UNREADABLE = (
    "permission", "version", "stopped", "gone", "no-such-tool", "unreadable",
)  # fmt: skip
_PROCESS = re.compile(r"Process (\d+): ?(.*)")
_PYTHON = re.compile(r"Python v?(\S+)")
_THREAD = re.compile(r'Thread (0x[0-9A-Fa-f]+|\d+) \(([^)]*)\)(?:: "(.*)")?\s*$')
_FRAME = re.compile(r" {4}(\S.*) \(([^()]*(?:\([^()]*\))?[^()]*)\)\s*$")
_PLACE = re.compile(r"(.*?):(\d+)$")
_REASONS = (
    (
        PERMISSION,
        re.compile(r"permission denied|operation not permitted|os error (?:1|13)\)|elevated|ptrace_scope", re.I),
    ),
    (GONE, re.compile(r"no such process|os error [23]\)|process has (?:ended|exited)|process is running", re.I)),
    (
        VERSION,
        re.compile(r"python version|Py_Version|unsupported version|find (?:python|interpreter|_?PyRuntime)", re.I),
    ),
    (STOPPED, re.compile(r"stopped|SIGSTOP|suspend process|timed? ?out", re.I)),
    (TOOL, re.compile(r"command not found|no such file or directory.*py-spy|py-spy: not found", re.I)),
)


def read(answer: Answer, instance: Instance | None) -> Stacks:
    """The processes of one dump, text or JSON. A process that could not be dumped is there with ``error``: the reason
    (permission, version, stopped, gone, no-such-tool, unreadable) and py-spy's words. Raises ``Unreadable`` where
    nothing names a process."""
    text = text_of(answer)
    pid, title = whole_of(answer.more.get("pid")), named(answer.more, "title")
    found = tuple(_from_json(text)) if text.lstrip()[:1] in ("[", "{") else tuple(_from_text(text, pid, title))
    if not found:
        raise Unreadable(Why.OTHER, f"no py-spy dump: {text.strip().splitlines()[0][:80]}")
    return Stacks(found)


def reason_of(text: str) -> str:
    """Why py-spy failed, from what it printed, in one word."""
    return next((reason for reason, pattern in _REASONS if pattern.search(text)), UNREADABLE)


@dataclass
class _Open:
    """A process while its lines are read."""

    pid: int
    title: str
    python: str | None = None
    threads: list[ThreadStack] = field(default_factory=list)
    noise: list[str] = field(default_factory=list)
    over: bool = False  # py-spy's own backtrace follows

    def closed(self) -> ProcessStack:
        title = mask_text(self.title)
        error = None
        if not self.threads:
            said = mask_text(" ".join(self.noise))[:200]
            error = f"{reason_of(said)}: {said}" if said else f"{UNREADABLE}: no thread in the dump"
        threads = tuple(self.threads)
        return ProcessStack(self.pid, title, rank_of(title), threads, self.python, error, part_of(title))


def _from_text(text: str, pid: int | None, title: str | None) -> Iterator[ProcessStack]:
    """Each process's block; text without a "Process" line belongs to the process that was asked for."""
    current = _Open(pid, title or "") if pid is not None else None
    frames: list[Frame] = []
    for line in text.splitlines():
        header = _PROCESS.match(line)
        if header:
            if current is not None and (current.threads or current.pid != int(header[1])):
                yield current.closed()
            current = _Open(int(header[1]), header[2].strip() or title or "")
        elif current is None:
            continue
        elif thread := _THREAD.match(line):
            frames = []
            current.threads.append(ThreadStack(thread[1], thread[3], thread[2], ()))
        elif current.threads and (frame := _frame(line)):
            frames.append(frame)
            _fill(current, frames)
        else:
            _note(current, line)
    if current is not None:
        yield current.closed()


def _fill(current: _Open, frames: list[Frame]) -> None:
    last = current.threads[-1]
    current.threads[-1] = ThreadStack(last.tid, last.name, last.state, tuple(frames))


def _note(current: _Open, line: str) -> None:
    """Python's version; else what py-spy said in place of a stack. Locals (deeper indented) are passed over."""
    found = _PYTHON.match(line)
    if found:
        current.python = found[1]
    elif line.strip() and not line.startswith(" " * 8) and not current.threads and not current.over:
        current.over = line.startswith("Stack backtrace")
        current.noise += [] if current.over else [line.strip()]


def _frame(line: str) -> Frame | None:
    """``    name (file:line)``, exactly four blanks deep. Native frames name a library and no line."""
    found = _FRAME.match(line)
    if found is None or line.startswith(" " * 5):
        return None
    place = _PLACE.match(found[2])
    return Frame(found[1], place[1], int(place[2])) if place else Frame(found[1], found[2])


def _from_json(text: str) -> Iterator[ProcessStack]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Unreadable(Why.NOT_JSON, f"not JSON: {str(error)[:120]}") from None
    threads = [t for t in value if isinstance(t, dict)] if isinstance(value, list) else []
    by_pid: dict[int, _Open] = {}
    for thread in threads:
        pid = whole_of(thread.get("pid"))
        if pid is None:
            continue
        info = thread.get("process_info")
        title = named(info, "command_line") if isinstance(info, dict) else None
        process = by_pid.setdefault(pid, _Open(pid, title or ""))
        process.threads.append(_json_thread(thread))
    yield from (process.closed() for process in by_pid.values())


def _json_thread(thread: dict[str, object]) -> ThreadStack:
    tid = thread.get("os_thread_id") or thread.get("thread_id")
    state = "active+gil" if thread.get("owns_gil") else "active" if thread.get("active") else "idle"
    rows = thread.get("frames")
    frames = tuple(_json_frame(row) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
    return ThreadStack(str(tid), named(thread, "thread_name"), state, frames)


def _json_frame(row: dict[str, object]) -> Frame:
    file = named(row, "short_filename") or named(row, "filename") or ""
    return Frame(named(row, "name") or "", file, whole_of(row.get("line")) or None)
