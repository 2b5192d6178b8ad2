"""What a process title says: which part of an engine or router it is, and which rank.

SGLang titles its children ``sglang::scheduler_DP1_PP0_TP3_EP3``: each part only where its size is above 1, in an order
that changed over releases (_DP _TP _PP to 0.4.9, _DP _TP _EP _PP in 0.5.3, _DP _PP _ATTN_CP _MOE_DP _TP _EP since
0.5.9), so the parts are read as a set. vLLM writes ``VLLM::Worker_DP0_TP1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pdctl.facts.flags import ROUTER, launch_at
from pdctl.model.host import Process
from pdctl.model.rank import Rank

SCHEDULER, DETOKENIZER, CONTROLLER, TOKENIZER, MAIN, ROUTER_PART, HELPER, OTHER = (
    "scheduler", "detokenizer", "dp-controller", "tokenizer-worker", "main", "router", "helper", "other",
)  # fmt: skip
_PARTS = (
    ("sglang::schedul", SCHEDULER),
    ("sglang::detok", DETOKENIZER),
    ("sglang::data_pa", CONTROLLER),
    ("sglang::tokeniz", TOKENIZER),
    ("sglang::router", ROUTER_PART),
    ("smg::router", ROUTER_PART),
    ("sglang::server", MAIN),
    ("vllm::worker", SCHEDULER),
    ("vllm::enginecore", SCHEDULER),
    ("vllm::dpcoord", CONTROLLER),
    ("vllm::apiserver", TOKENIZER),
)
_DIMENSION = re.compile(r"_((?:[A-Z]+_)*[A-Z]+)(\d+)")
_KNOWN = {"DP": "dp", "PP": "pp", "TP": "tp", "EP": "ep", "CP": "cp", "ATTN_CP": "cp"}


def rank_of(title: str) -> Rank:
    """The rank a title names; the whole (no dimension) where it names none.

    >>> rank_of("sglang::scheduler_DP1_PP0_ATTN_CP2_MOE_DP7_TP3_EP3")
    Rank(dp=1, pp=0, tp=3, ep=3, cp=2)
    """
    if "::" not in title:
        return Rank()
    named = {_KNOWN[name]: int(number) for name, number in _DIMENSION.findall(title) if name in _KNOWN}
    return Rank(**named)


def part_of(title: str) -> str:
    """Which part a process is, by its title: scheduler, detokenizer, dp-controller, tokenizer-worker, router, main,
    helper (multiprocessing's tracker) or other. Titles cut to 15 characters are known too."""
    lowered = title.lower()
    for start, part in _PARTS:
        if lowered.startswith(start):
            return part
    if "multiprocessing.resource_tracker" in title or "multiprocessing.spawn" in title:
        return HELPER
    found = launch_at(title.split())
    if found is None:
        return OTHER
    return ROUTER_PART if found[0] == ROUTER else MAIN


def is_retitled(title: str) -> bool:
    """Whether the title took the place of the command line, so that it shows no flags."""
    return "::" in title.split(" ")[0]


def main_of(pid: int, rows: Iterable[Process]) -> int | None:
    """The pid of the main process a child belongs to: the nearest ancestor (itself included) that is not titled
    ``sglang::*`` or ``VLLM::*``; None where the parents are not in the list."""
    by_pid = {row.pid: row for row in rows}
    seen: set[int] = set()
    while pid in by_pid and pid not in seen:
        seen.add(pid)
        row = by_pid[pid]
        if not is_retitled(row.title) and part_of(row.title) != HELPER:
            return pid
        pid = row.ppid
    return None
