"""Launch flags: both forms, aliases, prefixes, values in one spelling."""

from __future__ import annotations

import pytest

from pdctl.facts.flags import canonical, normal_value, read_flags, read_launch


@pytest.mark.parametrize("line", ["--tp 8", "--tp=8", "--tp-size 8", "--tensor-parallel-size=8", "--tensor-par 8"])
def test_every_spelling_of_an_option_is_one(line: str) -> None:
    assert read_flags(line.split()) == {"--tp-size": "8"}


def test_forms_order_and_spelling_of_numbers_do_not_count() -> None:
    one = ["--page-size=32", "--mem-fraction-static=.80", "--enable-metrics"]
    other = ["--enable-metrics", "--mem-fraction-static", "0.8", "--page-size", "32"]
    assert read_flags(one) == read_flags(other)


def test_an_ambiguous_prefix_and_an_unknown_option_stay_as_they_are() -> None:
    assert canonical("--enable") == "--enable"
    assert canonical("--no-such-option") == "--no-such-option"
    assert canonical("--mem-frac") == "--mem-fraction-static"
    assert canonical("--disaggregation_mode") == "--disaggregation-mode"


def test_values_that_begin_with_a_dash_or_are_several() -> None:
    words = ["--watchdog-timeout", "-1", "--cuda-graph-bs", "1", "2", "4", "--log-requests"]
    assert read_flags(words) == {"--watchdog-timeout": "-1", "--cuda-graph-bs": "1 2 4", "--log-requests": ""}


def test_the_last_of_a_repeated_option_counts_except_for_lists_of_workers() -> None:
    assert read_flags(["--port", "1", "--port", "2"]) == {"--port": "2"}
    words = ["--prefill", "http://a:1", "8998", "--prefill", "http://b:1", "none", "--decode", "http://c:1"]
    assert read_flags(words, "router") == {"--prefill": "http://a:1 8998 | http://b:1 none", "--decode": "http://c:1"}


@pytest.mark.parametrize(
    ("line", "launcher", "flag"),
    [
        ("python3 -m sglang.launch_server --port 1", "sglang", "--port"),
        ("env A=1 nohup numactl -N 0 python -m sglang.launch_server --port 1", "sglang", "--port"),
        ("nsys profile -o x --trace cuda python -m sglang.launch_server --port 1", "sglang", "--port"),
        ("/opt/venv/bin/sglang serve /m/x --port 1", "sglang", "--port"),
        ("docker run --rm --gpus all image python3 -m sglang.launch_server --port 1", "sglang", "--port"),
        ("python -m sglang_router.launch_router --port 1", "router", "--port"),
        ("smg launch --port 1", "router", "--port"),
        ("sglang-router --port 1", "router", "--port"),
        ("vllm serve meta/x -tp 1", "vllm", "--tensor-parallel-size"),
        ("python -m vllm.entrypoints.openai.api_server --model x --port 1", "vllm", "--port"),
    ],
)  # fmt: skip
def test_the_program_is_found_behind_what_stands_before_it(line: str, launcher: str, flag: str) -> None:
    found, flags = read_launch(line.split())
    assert found == launcher
    assert flags[flag] == "1"
    assert "--trace" not in flags
    assert "--gpus" not in flags


def test_a_positional_model_is_the_model_option() -> None:
    assert read_launch(["sglang", "serve", "/m/x", "--tp", "2"])[1] == {"--model-path": "/m/x", "--tp-size": "2"}
    assert read_launch(["vllm", "serve", "a/b"])[1] == {"--model": "a/b"}


@pytest.mark.parametrize(
    "line", ["", "sglang::scheduler_TP0", "bash serve.sh --port 1", "python -c import.x", "grep sglang x"]
)
def test_other_commands_start_nothing_of_ours(line: str) -> None:
    assert read_launch(line.split()) == (None, {})


@pytest.mark.parametrize(
    ("written", "normal"),
    [(".80", "0.8"), ("0.80", "0.8"), ("1.0", "1"), ("007", "7"), ("mlx5_0,mlx5_1", "mlx5_0,mlx5_1"), ("1e3", "1000"),
     ('{"b": 1,"a":2}', '{"a": 2, "b": 1}'), ("{broken", "{broken"), ("0x10", "0x10"), ("1.2.3", "1.2.3"),
     ("99999999999999999999", "99999999999999999999")],
)  # fmt: skip
def test_values_in_one_spelling(written: str, normal: str) -> None:
    assert normal_value(written) == normal
