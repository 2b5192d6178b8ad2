"""ranks-diverged, device-hang and stacks-partial: from dumps, with what went on meanwhile."""
# ruff: noqa: E501 - stacks stand here as they are printed

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pdctl.checks import device_hang, ranks_diverged, stacks_partial
from pdctl.model.answer import Fact, Why
from pdctl.model.events import Event, Kind
from pdctl.model.finding import Confidence, Severity
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import START, D, batch, times

C10D = "torch/distributed/distributed_c10d.py"
RECV = [f"broadcast ({C10D}:2730)", f"wrapper ({C10D}:81)", "broadcast_pyobj (utils/common.py:1303)",
        "recv_requests (scheduler.py:1293)"]  # fmt: skip
GATHER = [f"all_gather_into_tensor ({C10D}:3798)", "all_gather (scheduler_dp_attn_mixin.py:81)",
          "prepare_mlp_sync_batch_raw (scheduler_dp_attn_mixin.py:200)"]  # fmt: skip
POLL = [
    f"all_reduce ({C10D}:2806)",
    "poll_and_all_reduce (disaggregation/utils.py:50)",
    "pop_preallocated (decode.py:410)",
]
SYNC = ["synchronize (torch/cuda/streams.py:231)", "resolve_last_batch_result (tp_worker_overlap_thread.py:170)",
        "process_batch_result (scheduler.py:2100)"]  # fmt: skip
ZMQ = ["poll (zmq/sugar/poll.py:106)", "maybe_sleep (scheduler.py:77)"]
LOOP = ["event_loop_overlap_disagg_decode (decode.py:932)", "run_scheduler_process (scheduler.py:3184)"]
TP8 = tuple(f"_TP{i}" for i in range(8))
DPA = tuple(f"_DP{i}_TP{i}_EP{i}" for i in range(8))


def dump(places: Mapping[str, list[str]], state: str = "idle") -> str:
    """py-spy's text of one process a suffix."""
    blocks = []
    for index, (suffix, frames) in enumerate(places.items()):
        stack = "".join(f"    {frame}\n" for frame in [*frames, *LOOP])
        title = f"sglang::scheduler{suffix}"
        blocks.append(
            f'Process {71000 + index}: {title}\nPython v3.12.3 (x)\n\nThread {71000 + index} ({state}): "MainThread"\n{stack}'
        )
    return "\n".join(blocks)


def dumped(
    *dumps: Mapping[str, list[str]], state: str = "idle", version: str | None = "0.5.9", step: float = 10.0
) -> HostScene:
    scene = HostScene(version)
    for index, places in enumerate(dumps):
        scene.raw(20 + index * step, D, Fact.STACKS, dump(places, state))
    return scene


def but(suffixes: tuple[str, ...], odd: str, place: list[str], rest: list[str] = RECV) -> dict[str, list[str]]:
    return {s: place if s == odd else rest for s in suffixes}


def complaint(kind: Kind = Kind.HEALTH_FAILED) -> Event:
    return Event(kind, "Health check failed", START)


def test_one_rank_in_another_collective_is_named() -> None:
    odd = but(DPA, "_DP5_TP5_EP5", GATHER)
    finding = dumped(odd, odd).one(ranks_diverged.judge)
    assert (finding.subject, finding.confidence) == (D, Confidence.LIKELY)
    assert finding.rank.as_dict() == {"dp": 5, "tp": 5, "ep": 5}
    assert "all_gather_into_tensor" in finding.summary
    assert "prepare_mlp_sync_batch_raw" in finding.summary
    assert "recv_requests" in finding.summary


def test_a_complaint_in_the_log_makes_it_certain_unless_batches_went_on() -> None:
    odd = but(TP8, "_TP3", POLL)
    stuck = dumped(odd, odd)
    stuck.log(D, batch(-9, Kind.DECODE_BATCH), complaint())
    assert stuck.one(ranks_diverged.judge).confidence == Confidence.CERTAIN
    went_on = dumped(odd, odd)
    went_on.log(D, complaint(), batch(25, Kind.DECODE_BATCH))
    assert went_on.found(ranks_diverged.judge) == []
    assert len(went_on.ruled_out(ranks_diverged.judge)) == 1


def test_one_dump_says_nothing_of_its_own() -> None:
    odd = but(TP8, "_TP3", GATHER)
    alone = dumped(odd)
    assert alone.found(ranks_diverged.judge) == []
    assert "second one" in alone.unchecked(ranks_diverged.judge)[0].why
    complained = dumped(odd)
    complained.log(D, complaint())
    assert complained.one(ranks_diverged.judge).confidence == Confidence.POSSIBLE


def test_ranks_that_moved_or_agree_are_no_divergence() -> None:
    moved = dumped(but(TP8, "_TP3", GATHER), but(TP8, "_TP5", GATHER))
    assert moved.found(ranks_diverged.judge) == []
    agree = dumped(dict.fromkeys(TP8, RECV), dict.fromkeys(TP8, RECV))
    assert agree.found(ranks_diverged.judge) == []
    assert len(agree.ruled_out(ranks_diverged.judge)) == 1


def test_lines_may_differ_between_the_root_and_the_others() -> None:
    root = [*RECV[:2], "broadcast_pyobj (utils/common.py:1288)", *RECV[3:]]
    same = but(TP8, "_TP0", root)
    assert dumped(same, same).found(ranks_diverged.judge) == []


def test_an_idle_engine_whose_first_rank_polls_is_healthy() -> None:
    idle = but(TP8, "_TP0", ZMQ)
    scene = dumped(idle, idle)
    assert scene.found(ranks_diverged.judge) == []
    assert scene.found(device_hang.judge) == []


def test_signs_of_life_rule_it_out() -> None:
    odd = but(("_TP0", "_TP1"), "_TP1", GATHER)
    scene = dumped(odd, odd, version="0.5.23")
    for t in times(40):
        scene.loads(t, D, running=0)
    assert scene.found(ranks_diverged.judge) == []
    assert "fresh" in scene.ruled_out(ranks_diverged.judge)[0].by


def test_two_ranks_need_more_than_chance() -> None:
    odd = but(("_TP0", "_TP1"), "_TP1", GATHER)
    busy = dumped(odd, odd, state="active")
    assert busy.found(ranks_diverged.judge) == []
    assert len(busy.unchecked(ranks_diverged.judge)) == 1
    blocked = dumped(odd, odd).one(ranks_diverged.judge)
    assert (blocked.confidence, blocked.rank.tp) == (Confidence.POSSIBLE, 1)
    watchdog = dumped(odd, odd, state="active")
    watchdog.log(D, complaint(Kind.WATCHDOG))
    assert watchdog.one(ranks_diverged.judge).confidence == Confidence.CERTAIN


def test_pipeline_stages_and_plain_replicas_are_compared_each_among_themselves() -> None:
    stages = {f"_PP{p}_TP{t}": (GATHER if p else RECV) for p in (0, 1) for t in range(4)}
    assert dumped(stages, stages).found(ranks_diverged.judge) == []
    replicas = {f"_DP{d}_TP{t}": (GATHER if d else RECV) for d in (0, 1) for t in range(4)}
    assert dumped(replicas, replicas).found(ranks_diverged.judge) == []
    within = {**stages, "_PP1_TP2": POLL}
    assert dumped(within, within).one(ranks_diverged.judge).rank.as_dict() == {"pp": 1, "tp": 2}


def test_ranks_dumped_one_by_one_and_vllm_workers() -> None:
    scene = HostScene("0.5.9")
    for t in (20, 30):
        for i, suffix in enumerate(TP8):
            place = GATHER if i == 6 else RECV
            text = dump({suffix: place}).replace("71000", str(71000 + i)).replace("sglang::scheduler", "VLLM::Worker")
            scene.raw(t + i / 10, D, Fact.STACKS, text, pid=71000 + i)
    assert scene.one(ranks_diverged.judge).rank.tp == 6


def test_the_main_processs_stack_is_no_rank() -> None:
    scene = HostScene("0.5.9")
    main = 'Process 1: python3 -m sglang.launch_server\n\nThread 1 (idle): "MainThread"\n    synchronize (torch/cuda/streams.py:231)\n'
    for t in (0, 10):
        scene.raw(t, D, Fact.STACKS, main)
    assert scene.verdicts(ranks_diverged.judge) == []
    assert scene.verdicts(device_hang.judge) == []


# --- device-hang ------------------------------------------------------------------------------------------------------


def test_all_ranks_in_one_device_wait_while_the_loop_stands() -> None:
    places = dict.fromkeys(TP8, SYNC)
    scene = dumped(places, places)
    scene.miss(30, D, Fact.SERVER_INFO, Why.READ_TIMEOUT)
    finding = scene.one(device_hang.judge)
    assert finding.confidence == Confidence.CERTAIN
    assert "all 8 readable ranks" in finding.summary
    assert "synchronize < resolve_last_batch_result" in finding.summary


def test_a_busy_engine_shows_the_same_wait_and_is_ruled_out_by_its_progress() -> None:
    places = dict.fromkeys(TP8, SYNC)
    scene = dumped(places, places, state="active")
    for i, t in enumerate(times(40, 4)):
        scene.page(t, D, running=9, realtime_tokens=100 * i)
    assert scene.found(device_hang.judge) == []
    assert "realtime-tokens grew" in scene.ruled_out(device_hang.judge)[0].by


def test_where_nothing_tells_it_is_possible_for_many_ranks_and_open_for_one() -> None:
    places = dict.fromkeys(TP8, SYNC)
    assert dumped(places, places).one(device_hang.judge).confidence == Confidence.POSSIBLE
    near = dumped(places, places, step=1.0)
    assert near.found(device_hang.judge) == []
    one = dumped({"": SYNC}, {"": SYNC})
    assert one.found(device_hang.judge) == []
    assert len(one.unchecked(device_hang.judge)) == 1
    assert dumped(places).found(device_hang.judge) == []


def test_gpus_support_it() -> None:
    places = dict.fromkeys(TP8, SYNC)
    scene = dumped(places, places)
    for t in (20, 30):
        scene.raw(t, D, Fact.GPU, "index, utilization.gpu [%], power.draw [W]\n0, 100 %, 121 W\n1, 100 %, 120 W\n")
    finding = scene.one(device_hang.judge)
    assert finding.confidence == Confidence.LIKELY
    assert "100 % utilisation at 120 to 121 W" in seen_in(finding)


@pytest.mark.parametrize(
    "frames",
    [
        [
            "cuStreamSynchronize (libcuda.so.1)",
            "at::native::_local_scalar_dense_cuda (libtorch.so)",
            "verify (eagle.py:9)",
        ],
        ["item (torch/_tensor.py:1)", "sample (sampler.py:9)"],
        ["process_batch_result_decode (scheduler_output_processor_mixin.py:9)"],
        ["hipEventSynchronize (libamdhip64.so)", "forward (x.py:9)"],
        ["replay (torch/cuda/graphs.py:88)", "replay (cuda_graph_runner.py:9)"],
    ],
)
def test_other_device_waits_count_with_a_sign_of_standstill(frames: list[str]) -> None:
    scene = dumped({"": frames}, {"": frames})
    scene.log(D, complaint(Kind.WATCHDOG))
    assert scene.one(device_hang.judge).confidence == Confidence.LIKELY


def test_an_engine_that_polls_in_a_collective_is_not_hung_by_a_pinned_request() -> None:
    """A single rank's own all-reduce cannot hang (seen in both dumps of a healthy, pinned 0.5.9)."""
    scene = dumped({"": POLL}, {"": POLL})
    for t in times(40, 4):
        scene.page(t, D, http=1.0, running=0, graph_passes=5, realtime_tokens=9)
    assert scene.found(device_hang.judge) == []
    several = dumped(dict.fromkeys(TP8, POLL), dict.fromkeys(TP8, POLL))
    several.log(D, complaint())
    assert several.found(device_hang.judge) == []
    several.miss(35, D, Fact.SERVER_INFO, Why.READ_TIMEOUT)
    assert several.one(device_hang.judge).confidence == Confidence.LIKELY


def test_stopped_processes_are_another_finding() -> None:
    places = dict.fromkeys(TP8, SYNC)
    scene = dumped(places, places)
    rows = ", ".join(f'{{"pid": {71000 + i}, "title": "sglang::scheduler_TP{i}", "state": "T"}}' for i in range(8))
    scene.raw(40, D, Fact.PROCESSES, f"[{rows}]")
    assert scene.verdicts(device_hang.judge) == []
    assert scene.verdicts(ranks_diverged.judge) == []


# --- stacks-partial ---------------------------------------------------------------------------------------------------


def test_ranks_that_could_not_be_dumped_are_named_with_the_reason() -> None:
    scene = dumped({"_TP0": RECV, "_TP1": RECV})
    scene.raw(
        21,
        D,
        Fact.STACKS,
        None,
        error=Why.PERMISSION,
        detail="Error: Permission denied",
        pid=9,
        title="sglang::scheduler_TP2",
    )
    finding = scene.one(stacks_partial.judge)
    assert finding.severity == Severity.UNKNOWN
    assert "scheduler_TP2 (pid 9)" in finding.summary
    assert "permission" in finding.summary
    assert "2 process(es)" in finding.summary


def test_a_failure_inside_a_dump_and_a_stopped_process() -> None:
    scene = HostScene("0.5.9")
    scene.raw(
        20,
        D,
        Fact.STACKS,
        dump({"_TP0": RECV}) + "\nProcess 9: sglang::scheduler_TP1\nError: Failed to get stack traces\n",
    )
    scene.raw(21, D, Fact.PROCESSES, '[{"pid": 9, "title": "sglang::scheduler_TP1", "state": "T"}]')
    finding = scene.one(stacks_partial.judge)
    assert "state T" in finding.summary


def test_a_process_dumped_at_the_second_try_is_not_missing() -> None:
    scene = dumped({"_TP0": RECV})
    scene.raw(10, D, Fact.STACKS, None, error=Why.READ_TIMEOUT, pid=71000, title="sglang::scheduler_TP0")
    assert scene.verdicts(stacks_partial.judge) == []
    assert HostScene("0.5.9").verdicts(stacks_partial.judge) == []


def test_a_rank_that_hangs_on_its_device_while_the_others_wait_for_it() -> None:
    odd = but(TP8, "_TP2", SYNC)
    busy = dumped(odd, odd, state="active")
    assert busy.found(ranks_diverged.judge) == []  # the first look of any busy engine
    stuck = dumped(odd, odd)
    stuck.log(D, complaint())
    finding = stuck.one(ranks_diverged.judge)
    assert (finding.confidence, finding.rank.tp) == (Confidence.LIKELY, 2)
    assert "another place (synchronize" in finding.summary


def test_of_two_halves_the_one_that_waits_for_requests_is_the_rule() -> None:
    pair_ = {"_TP0": GATHER, "_TP1": RECV}
    finding = dumped(pair_, pair_).one(ranks_diverged.judge)
    assert finding.rank.tp == 0
    assert finding.against
