"""The processes of an instance: their titles, starts, ranks and launch flags."""

from __future__ import annotations

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import rows_of
from pdctl.facts.flags import read_launch
from pdctl.facts.stamps import number_of, read_stamp, text_of, whole_of
from pdctl.facts.titles import part_of, rank_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import Process, Processes
from pdctl.model.secrets import mask_argv, mask_text


def read(answer: Answer, instance: Instance | None) -> Processes:
    """A JSON list of ``{pid, ppid, title, cmdline, exe, started, ...}``. An empty list is an answer: no process.
    Raises ``Unreadable`` for anything else."""
    return Processes(tuple(_process(row) for row in rows_of(answer)))


def _process(row: dict[str, object]) -> Process:
    pid, ppid = whole_of(row.get("pid")), whole_of(row.get("ppid"))
    if pid is None:
        raise Unreadable(Why.OTHER, "a process without a pid")
    cmdline = mask_argv(_words(row.get("cmdline")))
    title = mask_text(text_of(row, "title") or " ".join(cmdline))
    launcher, flags = read_launch(cmdline or tuple(title.split()))
    return Process(
        pid=pid,
        ppid=ppid if ppid is not None else 0,
        title=title,
        cmdline=cmdline,
        exe=text_of(row, "exe"),
        comm=text_of(row, "comm"),
        state=(text_of(row, "state") or "")[:1] or None,
        started=read_stamp(row.get("started")),
        rank=rank_of(title),
        cpu_seconds=number_of(row.get("cpu_seconds")),
        rss_bytes=whole_of(row.get("rss_bytes")),
        launcher=launcher,
        flags=flags,
        part=part_of(title),
    )


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.replace("\0", " ").split())
    if isinstance(value, list):
        words = [word for word in value if isinstance(word, str)]
        while words and not words[-1].strip("\0"):
            words.pop()
        return tuple(words)
    return ()
