"""Stack dumps of an engine's ranks over the window: where each main thread waits, and whether it moved."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pdctl.model.answer import Fact
from pdctl.model.host import Frame, Processes, ProcessStack, Stacks, ThreadStack
from pdctl.model.rank import WHOLE, Rank
from pdctl.model.window import At, Window

LOOK = 25  # frames from the innermost one in which a wait is looked for
COLLECTIVES = frozenset(
    {
        "broadcast", "broadcast_object_list", "all_reduce", "allreduce", "all_reduce_coalesced", "all_gather",
        "allgather", "all_gather_into_tensor", "all_gather_object", "all_gather_coalesced", "_all_gather_base",
        "reduce_scatter", "reduce_scatter_tensor", "_reduce_scatter_base", "reduce", "all_to_all",
        "all_to_all_single", "barrier", "monitored_barrier", "gather_object", "scatter_object_list",
    }
)  # fmt: skip
# Names too common to mean a collective anywhere but in torch.distributed or a communicator.
COMMON = frozenset({"send", "recv", "isend", "irecv", "gather", "scatter", "wait", "reduce", "batch_isend_irecv"})
DISTRIBUTED = re.compile(r"distributed|c10d|pynccl|communicat|symm_mem|parallel_state")
NATIVE_COLLECTIVE = re.compile(r"(?:gloo::|c10d::|ProcessGroup|nccl[A-Z])")
NATIVE_DEVICE = re.compile(
    r"(?:cuda|hip|cu|aclrt|musa|xpu)\w*(?:Synchronize\w*|Memcpy\w*|WaitEvent)|_local_scalar_dense|at::cuda::.*synchronize",
    re.I,
)
DEVICE_FILES = re.compile(r"torch/(?:cuda|npu|hip|xpu|musa|accelerator)/|torch_npu|cuda/streams|cuda/graphs")
DEVICE = frozenset({"synchronize", "wait", "wait_event", "wait_stream", "replay"})
READS_BACK = frozenset({"item", "cpu", "tolist", "numpy", "nonzero", "copy_"})
# Engine code that waits for the device in a builtin, which py-spy shows no frame of.
HIDDEN = frozenset(
    {
        "resolve_last_batch_result", "resolve_batch_result", "resolve_future_token_ids", "copy_to_cpu",
        "process_batch_result", "process_batch_result_decode", "process_batch_result_prefill",
        "process_batch_result_disagg_prefill", "forward_thread_func_", "sample_tokens", "_to_list", "get_output",
    }
)  # fmt: skip
NOISE = frozenset({"wrapper", "decorate_context", "decorator", "<lambda>", "inner", "__call__", "helper"})
LOOP = re.compile(
    r"event_loop|run_scheduler_process|run_busy_loop|dispatch_event_loop|worker_busy_loop|run_engine_core"
)


class Wait(StrEnum):
    COLLECTIVE = "collective"
    DEVICE = "device"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a main thread is. ``path`` holds function names from the wait outwards to the event loop: two ranks with
    equal paths are at the same point of the program, lines may differ (a broadcast's root sends, the others receive).
    ``lines`` is the whole stack with its lines, to see whether it moved."""

    wait: Wait
    at: str
    path: tuple[str, ...]
    lines: tuple[tuple[str, int | None], ...]

    @property
    def words(self) -> str:
        """The wait and who called it: "broadcast < broadcast_pyobj < recv_requests"."""
        return " < ".join(self.path[:4])


@dataclass(frozen=True, slots=True, eq=False)
class RankDumps:
    """The readable dumps of one rank, oldest first."""

    pid: int
    rank: Rank
    seen: tuple[tuple[At[Stacks], Place], ...]
    idle: bool  # py-spy called the thread idle in each of them

    @property
    def name(self) -> str:
        return str(self.rank) if self.rank != WHOLE else f"pid {self.pid}"

    @property
    def last(self) -> Place:
        return self.seen[-1][1]

    @property
    def settled(self) -> bool:
        """Two dumps or more, and the last two at the same point of the program."""
        return len(self.seen) > 1 and self.seen[-1][1].path == self.seen[-2][1].path

    @property
    def unmoved(self) -> bool:
        """The last two dumps are the same to the line."""
        return len(self.seen) > 1 and self.seen[-1][1].lines == self.seen[-2][1].lines

    @property
    def apart(self) -> float:
        """Seconds between the first and the last dump."""
        return self.seen[-1][0].t - self.seen[0][0].t


def ranks_of(window: Window, subject: str) -> tuple[RankDumps, ...]:
    """Every scheduler rank of an instance that could be dumped, in order of rank. Processes that were seen stopped
    (state T) are left out: they stand still for another reason."""
    stopped = stopped_pids(window, subject)
    seen: dict[int, list[tuple[At[Stacks], ProcessStack, ThreadStack]]] = defaultdict(list)
    for at in window.seen(subject, Fact.STACKS, Stacks):
        for process in at.value.processes:
            main = process.main
            if main is not None and main.frames and is_scheduler(process, main) and process.pid not in stopped:
                seen[process.pid].append((at, process, main))
    ranks = [
        RankDumps(
            pid,
            rows[-1][1].rank,
            tuple((at, place_of(main)) for at, _, main in rows),
            all(main.state.startswith("idle") for _, _, main in rows),
        )
        for pid, rows in seen.items()
    ]
    return tuple(sorted(ranks, key=lambda r: ([-1 if v is None else v for v in key_of(r.rank)], r.pid)))


def key_of(rank: Rank) -> tuple[int | None, ...]:
    return (rank.dp, rank.pp, rank.tp, rank.ep, rank.cp)


def is_scheduler(process: ProcessStack, main: ThreadStack) -> bool:
    """By its title; where that says nothing, by the loop its main thread runs."""
    if process.part == "scheduler":
        return True
    return process.part in ("", "other") and any(LOOP.search(f.function) for f in main.frames)


def stopped_pids(window: Window, subject: str) -> frozenset[int]:
    seen = window.last(subject, Fact.PROCESSES, Processes)
    return frozenset(p.pid for p in seen.value.rows if (p.state or "")[:1] in ("T", "t")) if seen else frozenset()


def short_name(frame: Frame) -> str:
    """The function's own name: newer interpreters give "Scheduler.on_idle" and "f.<locals>.g"."""
    return frame.function.split("(")[0].rsplit(".", 1)[-1]


def place_of(main: ThreadStack) -> Place:
    """Where a thread is: the innermost collective or device wait, else the innermost frame."""
    lines = tuple((f.function, f.line) for f in main.frames)
    index, wait = wait_in(main.frames[:LOOK])
    outward = main.frames[index:]
    names = [short_name(f) for f in outward]
    end = next((i for i, f in enumerate(outward) if LOOP.search(f.function)), len(names))
    path = tuple(n for i, n in enumerate(names[: end + 1]) if i == 0 or not (n in NOISE or n.startswith("0x")))
    return Place(wait, names[0], path, lines)


def wait_in(frames: tuple[Frame, ...]) -> tuple[int, Wait]:
    """The frame that waits: a collective beats the device wait inside it, because it says what for."""
    collective = next((i for i, f in enumerate(frames) if is_collective(f)), None)
    if collective is not None:
        return collective, Wait.COLLECTIVE
    device = next((i for i, f in enumerate(frames) if is_device(f, i)), None)
    return (device, Wait.DEVICE) if device is not None else (0, Wait.OTHER)


def is_collective(frame: Frame) -> bool:
    name = short_name(frame)
    if name in COMMON:
        return DISTRIBUTED.search(frame.file) is not None
    return name in COLLECTIVES or (frame.line is None and NATIVE_COLLECTIVE.match(frame.function) is not None)


def is_device(frame: Frame, index: int) -> bool:
    """A wait for the device: in torch's stream and event code, in a driver call (native dumps), or innermost in a read
    back of a tensor."""
    name = short_name(frame)
    if name in DEVICE and (name == "synchronize" or DEVICE_FILES.search(frame.file)):
        return True
    if frame.line is None and NATIVE_DEVICE.search(frame.function):
        return True
    return index == 0 and (name in READS_BACK or name in HIDDEN)


def groups_of(ranks: tuple[RankDumps, ...]) -> Iterator[tuple[RankDumps, ...]]:
    """Ranks that take part in the same collectives. Pipeline stages do different things by design. Data-parallel ranks
    do so only where they share one tensor-parallel group (DP attention): then no tensor-parallel rank occurs twice."""
    stages: dict[int | None, list[RankDumps]] = defaultdict(list)
    for rank in ranks:
        stages[rank.rank.pp].append(rank)
    for stage in stages.values():
        tps = [r.rank.tp for r in stage if r.rank.tp is not None]
        replicas = len({r.rank.dp for r in stage}) > 1 and (not tps or len(set(tps)) < len(tps))
        if not replicas:
            yield tuple(stage)
            continue
        by_dp: dict[int | None, list[RankDumps]] = defaultdict(list)
        for rank in stage:
            by_dp[rank.rank.dp].append(rank)
        yield from (tuple(group) for group in by_dp.values())
