"""Batch lines of every release (the shapes engines 0.4.6.post5 to 0.5.23 write), in any order, whole or cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdctl.model.events import Kind
from pdctl.model.rank import WHOLE, Rank
from tests.unit.facts.log_answers import event_of, log_of

P = "[2026-11-12 03:14:00 TP0] "
PREFILL = [
    pytest.param(
        "Prefill batch. #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.01, #unbootstrapped-req: 4, "
        "#queue-req: 2, #transferring-req: 1 ",
        {"new_seq": 1, "new_token": 512, "cached_token": 0, "token_usage": 0.01, "bootstrap": 4, "queue": 2,
         "inflight": 1},
        id="0.4.6.post5",
    ),
    pytest.param(
        "Prefill batch. #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.01, #unbootstrapped-req: 31, "
        "#queue-req: 2, #transferring-req: 7, input throughput (token/s): 12.34 ",
        {"new_seq": 1, "new_token": 512, "cached_token": 0, "token_usage": 0.01, "bootstrap": 31, "queue": 2,
         "inflight": 7, "throughput": 12.34},
        id="0.4.9",
    ),
    pytest.param(
        "Prefill batch. #new-seq: 1, #new-token: 512, #cached-token: 8, token usage: 0.01, #running-req: 0, "
        "#queue-req: 0, #prealloc-req: 3, #inflight-req: 9, ",
        {"new_seq": 1, "new_token": 512, "cached_token": 8, "token_usage": 0.01, "running": 0, "queue": 0,
         "bootstrap": 3, "inflight": 9},
        id="0.5.3",
    ),
    pytest.param(
        "Prefill batch [77], #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.01, #running-req: 0, "
        "#queue-req: 0, #prealloc-req: 4, #inflight-req: 2, input throughput (token/s): 12.34, ",
        {"new_seq": 1, "new_token": 512, "cached_token": 0, "token_usage": 0.01, "running": 0, "queue": 0,
         "bootstrap": 4, "inflight": 2, "throughput": 12.34},
        id="0.5.6",
    ),
    pytest.param(
        "Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.01, #running-req: 0, "
        "#queue-req: 0, #pending-token: 70, #prealloc-req: 5, #inflight-req: 1, cuda graph: False, "
        "input throughput (token/s): 12.34",
        {"new_seq": 1, "new_token": 512, "cached_token": 0, "token_usage": 0.01, "running": 0, "queue": 0,
         "pending_token": 70, "bootstrap": 5, "inflight": 1, "throughput": 12.34},
        id="0.5.11",
    ),
    pytest.param(
        "Prefill batch, #new-seq: 2, #new-token: 512, #cached-token: 0, token usage: 0.01, #running-req: 0, "
        "#queue-req: 0, #pending-token: 0, #replay-token: 6, #bootstrap-req: 5, #inflight-req: 1, #optimistic-req: 1, "
        "cuda graph: False, input throughput (token/s): 12.34, est. prefill TFLOPS/s (per GPU): 99.10",
        {"new_seq": 2, "new_token": 512, "cached_token": 0, "token_usage": 0.01, "running": 0, "queue": 0,
         "pending_token": 0, "replay_token": 6, "bootstrap": 5, "inflight": 1, "optimistic": 1, "throughput": 12.34},
        id="0.5.23",
    ),
    pytest.param(
        "Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, full token usage: 0.05, "
        "swa token usage: 0.30, #running-req: 0, #queue-req: 0, #pending-token: 0, #bootstrap-req: 0, "
        "#inflight-req: 1, #optimistic-req: 0, cpu graph: False, input throughput (token/s): 12.34",
        {"new_seq": 1, "new_token": 512, "cached_token": 0, "full_token_usage": 0.05, "swa_token_usage": 0.30,
         "token_usage": 0.30, "running": 0, "queue": 0, "pending_token": 0, "bootstrap": 0, "inflight": 1,
         "optimistic": 0, "throughput": 12.34},
        id="hybrid cache",
    ),
]  # fmt: skip
DECODE = [
    pytest.param(
        "Decode batch. #running-req: 3, #token: 900, token usage: 0.02, pre-allocated usage: 0.01, cuda graph: True, "
        "gen throughput (token/s): 88.10, #queue-req: 4",
        {"running": 3, "token": 900, "token_usage": 0.02, "preallocated_usage": 0.01, "throughput": 88.1, "queue": 4},
        id="0.4.6",
    ),
    pytest.param(
        "Decode batch. #running-req: 3, #token: 900, token usage: 0.02, pre-allocated usage: 0.01, #prealloc-req: 2, "
        "#transfer-req: 3, #retracted-req: 1, cuda graph: True, gen throughput (token/s): 88.10, #queue-req: 0, ",
        {"running": 3, "token": 900, "token_usage": 0.02, "preallocated_usage": 0.01, "prealloc": 2, "transfer": 3,
         "retracted": 1, "throughput": 88.1, "queue": 0},
        id="0.5.3",
    ),
    pytest.param(
        "Decode batch [512], #running-req: 3, #token: 900, token usage: 0.02, accept len: 2.10, accept rate: 0.37, "
        "pre-allocated usage: 0.01, #prealloc-req: 0, #transfer-req: 3, #host-receive-req: 5, #retracted-req: 0, "
        "cuda graph: True, gen throughput (token/s): 88.10, #queue-req: 0, est. decode TFLOPS/s (per GPU): 1.00, "
        "est. read BW (GB/s per GPU): 2.00",
        {"running": 3, "token": 900, "token_usage": 0.02, "accept_len": 2.1, "accept_rate": 0.37,
         "preallocated_usage": 0.01, "prealloc": 0, "transfer": 3, "host_receive": 5, "retracted": 0,
         "throughput": 88.1, "queue": 0},
        id="0.5.23",
    ),
    pytest.param(
        "Decode batch, #running-req: 1, #full token: 245760, full token usage: 0.05, #swa token: 2048, "
        "swa token usage: 0.00, pre-allocated usage: 0.00, #prealloc-req: 0, #transfer-req: 0, #retracted-req: 0, "
        "cuda graph: True, gen throughput (token/s): 50.00, #queue-req: 0",
        {"running": 1, "full_token": 245760, "full_token_usage": 0.05, "swa_token": 2048, "swa_token_usage": 0,
         "token_usage": 0.05, "preallocated_usage": 0, "prealloc": 0, "transfer": 0, "retracted": 0,
         "throughput": 50, "queue": 0},
        id="hybrid cache",
    ),
    pytest.param(
        "Decode batch, #running-req: 1, #token: 64, token usage: 0.02, mamba num: 3, mamba usage: 0.40, "
        "cuda graph: True, gen throughput (token/s): 50.00, #queue-req: 0",
        {"running": 1, "token": 64, "token_usage": 0.02, "mamba_num": 3, "mamba_usage": 0.4, "throughput": 50,
         "queue": 0},
        id="mamba",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "numbers"), PREFILL)
def test_prefill_line_of_each_release(line: str, numbers: dict[str, float]) -> None:
    event = event_of(P + line)
    assert (event.kind, dict(event.numbers), event.rank) == (Kind.PREFILL_BATCH, numbers, Rank(tp=0))


@pytest.mark.parametrize(("line", "numbers"), DECODE)
def test_decode_line_of_each_release(line: str, numbers: dict[str, float]) -> None:
    event = event_of(P + line)
    assert (event.kind, dict(event.numbers), event.words) == (Kind.DECODE_BATCH, numbers, {})


@given(st.permutations(["#running-req: 7", "#new-key: x", "token usage: 0.5", "gen throughput (token/s): 1.50",
                        "#queue-req: 2", "#transfer-req: 4", "cuda graph: True"]))  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_order_and_unknown_keys_do_not_matter(fields: list[str]) -> None:
    event = event_of(P + "Decode batch, " + ", ".join(fields))
    assert dict(event.numbers) == {"running": 7, "token_usage": 0.5, "throughput": 1.5, "queue": 2, "transfer": 4}


def test_a_prealloc_count_is_the_bootstrap_queue_on_a_prefill_line_only() -> None:
    prefill = event_of(P + "Prefill batch. #new-seq: 1, #new-token: 5, #queue-req: 0, #prealloc-req: 18, ")
    assert prefill.numbers["bootstrap"] == 18
    assert "prealloc" not in prefill.numbers


@pytest.mark.parametrize(
    ("seq", "token", "cached", "probe"), [(1, 1, 0, True), (1, 1, 64, False), (2, 1, 0, False), (1, 2, 0, False)]
)
def test_the_batch_of_a_health_check_is_marked(seq: int, token: int, cached: int, probe: bool) -> None:
    line = f"Prefill batch, #new-seq: {seq}, #new-token: {token}, #cached-token: {cached}, #queue-req: 0, "
    event = event_of(P + line + "#inflight-req: 1, input throughput (token/s): 2.49")
    assert event.words == ({"probe": "likely"} if probe else {})


WHOLE_LINES = [PREFILL[i].values[0] for i in (3, 4, 5)] + [DECODE[i].values[0] for i in (0, 1, 2)]


@pytest.mark.parametrize("line", WHOLE_LINES)
def test_a_line_cut_before_its_last_mandatory_figure_is_dropped_and_counted(line: str) -> None:
    """Cut anywhere up to the last mandatory figure, ends that look whole (a separator) left out."""
    last = max(line.find("(token/s): "), line.find("#queue-req: ")) + len("(token/s): ")
    for end in range(len("Prefill batch, "), last):
        cut = line[:end].rstrip(", ")
        log = log_of(f"{P}{cut}\n{P}{line}\n")
        assert (len(log.events), log.dropped) == (1, 1), cut


def test_a_throughput_cut_in_its_figure_is_dropped() -> None:
    line = (
        P + "Prefill batch, #new-seq: 1, #new-token: 9, #queue-req: 0, #inflight-req: 2, input throughput (token/s): "
    )
    assert log_of(line + "12000.0\n").dropped == 1
    assert log_of(line + "12000.00\n").dropped == 0


def test_an_old_line_without_its_last_space_counts_if_the_line_has_an_end() -> None:
    """journald strips trailing blanks; a 0.4.6 line then ends in its last figure. Without a newline it may go on."""
    line = P + "Prefill batch. #new-seq: 1, #new-token: 9, #queue-req: 0, #transferring-req: 1"
    assert log_of(line + "\n").events[0].numbers["inflight"] == 1
    assert log_of(line).dropped == 1


def test_two_records_glued_on_one_line_are_two_records() -> None:
    one = (
        "Prefill batch, #new-seq: 1, #new-token: 9, #queue-req: 0, #inflight-req: {}, input throughput (token/s): 1.00"
    )
    log = log_of(f"[2026-11-12 03:14:18 TP0] {one.format(2)}[2026-11-12 03:14:19 TP1] {one.format(5)}\n")
    assert [(e.rank, e.numbers["inflight"], e.numbers["throughput"], e.line) for e in log.events] == [
        (Rank(tp=0), 2, 1.0, 1),
        (Rank(tp=1), 5, 1.0, 1),
    ]


def test_the_first_line_of_a_tail_without_its_beginning_is_dropped() -> None:
    log = log_of("eq: 0, #transfer-req: 4, gen throughput (token/s): 9.00, #queue-req: 0\n")
    assert (log.events, log.dropped) == ((), 1)


def test_figures_that_are_no_numbers_are_left_out() -> None:
    line = "Decode batch, #running-req: 2, #token: nan, token usage: inf, gen throughput (token/s): 1.00, #queue-req: 0"
    assert dict(event_of(P + line).numbers) == {"running": 2, "throughput": 1.0, "queue": 0}


def test_a_line_of_an_engine_without_ranks_is_of_the_whole_engine() -> None:
    assert event_of("[2026-11-12 03:14:00] " + DECODE[0].values[0]).rank == WHOLE  # type: ignore[operator]
