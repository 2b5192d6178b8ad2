"""Titles: which part of an engine, which rank, whose child."""

from __future__ import annotations

import pytest

from pdctl.facts.titles import is_retitled, main_of, part_of, rank_of
from pdctl.model.host import Process
from pdctl.model.rank import Rank


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("sglang::scheduler", Rank()),
        ("sglang::scheduler_TP0", Rank(tp=0)),
        ("sglang::scheduler_DP0_TP3_PP1", Rank(dp=0, pp=1, tp=3)),  # to 0.4.9
        ("sglang::scheduler_DP1_TP3_EP3_PP0", Rank(dp=1, pp=0, tp=3, ep=3)),  # 0.5.3
        ("sglang::scheduler_DP1_PP0_ATTN_CP2_MOE_DP7_TP3_EP3", Rank(dp=1, pp=0, tp=3, ep=3, cp=2)),  # 0.5.9 and later
        ("VLLM::Worker_DP1_TP0", Rank(dp=1, tp=0)),
        ("VLLM::EngineCore_DP0", Rank(dp=0)),
        ("python -m sglang.launch_server --served-model-name X_TP8", Rank()),
    ],
)
def test_ranks_are_read_as_a_set(title: str, rank: Rank) -> None:
    assert rank_of(title) == rank


@pytest.mark.parametrize(
    ("title", "part"),
    [
        ("sglang::scheduler_DP0_TP0", "scheduler"),
        ("sglang::schedul", "scheduler"),
        ("sglang::detokenizer", "detokenizer"),
        ("sglang::data_parallel_controller", "dp-controller"),
        ("sglang::tokenizer_worker:123", "tokenizer-worker"),
        ("sglang::router", "router"),
        ("smg::router", "router"),
        ("VLLM::Worker_TP1", "scheduler"),
        ("VLLM::EngineCore", "scheduler"),
        ("python3 -m sglang.launch_server --port 1", "main"),
        ("python -m sglang_router.launch_router", "router"),
        ("python -c from multiprocessing.resource_tracker import main;main(6)", "helper"),
        ("sshd: root@pts/0", "other"),
    ],
)
def test_parts(title: str, part: str) -> None:
    assert part_of(title) == part


def test_a_scheduler_is_its_nearest_ancestors_that_kept_its_command_line() -> None:
    rows = (
        Process(1, 0, "systemd"),
        Process(10, 1, "python -m sglang.launch_server --dp 2"),
        Process(11, 10, "sglang::data_parallel_controller"),
        Process(12, 11, "sglang::scheduler_DP0"),
        Process(90, 91, "sglang::scheduler_DP1"),
        Process(91, 90, "sglang::scheduler_DP1"),
    )
    assert main_of(12, rows) == 10
    assert main_of(10, rows) == 10
    assert main_of(90, rows) is None  # a loop in a listing torn between two moments
    assert main_of(77, rows) is None
    assert is_retitled("sglang::router") and not is_retitled("python -m a::b")
