"""Simulated pages, live counts and log lines laid beside the recorded ones of the same release."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from world import cluster, loads, pin, steady

from pdctl.demo.core.answers import answer
from pdctl.demo.core.cluster import SimCluster
from pdctl.demo.core.page import render_page
from pdctl.demo.core.traffic import Probes
from pdctl.model.answer import Answer, Fact
from pdctl.reach.capture import open_capture

CAPTURES = Path(__file__).parents[2] / "captures"
RECORDED = {
    "0.5.6": "real-pinned-1-0.5.6",
    "0.5.9": "real-stale-0.5.9",
    "0.5.10.post1": "real-load-0.5.10.post1",
    "0.5.15": "real-idle-probed-0.5.15",
    "0.5.19": "real-pinned-1-probed-0.5.19",
    "0.5.23": "real-load",
}
# Families a recorded page holds for what its machine or its past did: evictions, a metric of its transfer library.
OF_THE_MACHINE = {
    "evicted_tokens", "eviction_duration_seconds", "startup_cuda_graph_time_seconds", "num_retractions",
    "num_transfer_failed_reqs", "num_bootstrap_failed_reqs", "num_aborted_requests", "get_loads_duration_seconds",
    "request_time_per_output_token_seconds", "kv_transfer_total_mb",
}  # fmt: skip


@cache
def recorded(release: str, fact: Fact) -> tuple[Answer, ...]:
    capture = open_capture(CAPTURES / f"{RECORDED[release]}.tar.zst")
    return tuple(a for a in capture.answers() if a.fact is fact and a.body and not a.subject.startswith("router"))


def families(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and label names by family."""
    out = {}
    for family in text_string_to_metric_families(text):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        out[family.name.removeprefix("sglang:")] = (family.type, frozenset(labels))
    return out


@cache
def busy(release: str) -> SimCluster:
    world = cluster(release)
    steady(world, 4.0, 1.0)
    for engine in world.engines:
        Probes(world.tl, engine, 10.0, 2.0)
    world.advance_to(120.0)
    answer(world, "prefill-0", "/v1/loads")
    return world


@pytest.mark.parametrize("release", RECORDED)
@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_same_families_types_and_labels(release: str, name: str) -> None:
    world = busy(release)
    engine = world.engine(name)
    assert engine is not None
    real = families(next(a for a in recorded(release, Fact.METRICS)[::-1] if a.subject == name).body.decode())  # type: ignore[union-attr]
    mine = families(render_page(engine))
    assert set(real) - set(mine) - OF_THE_MACHINE == set()
    assert set(mine) - set(real) - OF_THE_MACHINE == set()
    differ = {key: (real[key], mine[key]) for key in set(real) & set(mine) - OF_THE_MACHINE if real[key] != mine[key]}
    assert differ == {}


@pytest.mark.parametrize("release", RECORDED)
def test_pages_are_as_large_as_real_ones(release: str) -> None:
    world = busy(release)
    for engine in world.engines:
        real = next(a for a in recorded(release, Fact.METRICS)[::-1] if a.subject == engine.spec.name)
        assert real.body is not None
        assert 0.7 < len(render_page(engine)) / len(real.body) < 1.4


@pytest.mark.parametrize("release", ["0.5.9", "0.5.10.post1", "0.5.15", "0.5.19", "0.5.23"])
def test_live_counts_have_the_same_keys(release: str) -> None:
    world = busy(release)
    for name in ("prefill-0", "decode-0"):
        real = next(a for a in recorded(release, Fact.LOADS) if a.subject == name)
        want = json.loads(real.body or b"")["loads"][0]
        have = loads(world, name)
        missing = set(want) - set(have) - {"decode_moments"}  # and the prefill's own accounting, for its balancer
        assert missing <= {
            "num_active_tokens", "total_prefill_uncached_tokens", "total_prefill_busy_us", "num_prealloc_ready_tokens",
        }  # fmt: skip
        assert set(want["disaggregation"]) <= set(have)
        assert set(want["queues"]) == set(have["queues"])  # type: ignore[call-overload]


def shape(line: str) -> str:
    """A batch line with its figures taken out."""
    line = line.replace("cpu graph: False", "graph").replace("cuda graph: False", "graph")
    line = line.replace("cpu graph: True", "graph").replace("cuda graph: True", "graph")
    return re.sub(r"\d+(\.\d+)?", "N", line)


@pytest.mark.parametrize(
    ("release", "name"),
    [("0.5.6", "prefill-0"), ("0.5.6", "decode-0"), ("0.5.10.post1", "prefill-0"), ("0.5.10.post1", "decode-0"),
     ("0.5.15", "prefill-0"), ("0.5.15", "decode-0"), ("0.5.19", "prefill-0"), ("0.5.23", "prefill-0"),
     ("0.5.23", "decode-0")],
)  # fmt: skip
def test_batch_lines_have_the_same_shape(release: str, name: str) -> None:
    world = busy(release)
    text = "".join((a.body or b"").decode("utf-8", "replace") for a in recorded(release, Fact.LOG) if a.subject == name)
    real = {shape(line) for line in text.splitlines() if " batch" in line}
    mine = {shape(line) for _, line in world.logs[name] if " batch" in line}
    assert len(mine) == 1
    assert mine <= real


def test_no_prefill_line_in_0_5_9() -> None:
    world = busy("0.5.9")
    assert not [line for _, line in world.logs["prefill-0"] if "Prefill batch" in line]


def test_access_lines_have_the_same_shape() -> None:
    world = busy("0.5.23")
    text = "".join((a.body or b"").decode("utf-8", "replace") for a in recorded("0.5.23", Fact.LOG))
    real = {re.sub(r"\d+", "N", line) for line in text.splitlines() if "POST /v1/completions" in line}
    mine = {re.sub(r"\d+", "N", line) for _, line in world.logs["prefill-0"] if "POST /v1/completions" in line}
    assert mine == real


@pytest.mark.parametrize("release", ["0.4.6.post5", "0.4.9", "0.5.1.post3", "0.5.3", "0.5.16", "0.5.18", "0.5.20"])
def test_every_other_release_has_a_page_that_parses(release: str) -> None:
    world = busy(release)
    pin(world, 121.0)
    world.advance_to(140.0)
    for engine in world.engines:
        text = render_page(engine)
        found = families(text)
        assert found["num_running_reqs"][0] == "gauge"
        labels = found["num_running_reqs"][1]
        assert ("moe_ep_rank" in labels) is (release in ("0.5.16", "0.5.18", "0.5.20"))
        assert ("tp_rank" in labels) is (not release.startswith("0.4"))


def test_gauges_are_absent_until_the_first_report() -> None:
    """A decode that has done nothing for half a minute has no gauges, then it has."""
    world = cluster("0.5.23")
    world.advance_to(29.0)
    assert "num_running_reqs" not in families(render_page(world.decodes[0]))
    assert "max_total_num_tokens" in families(render_page(world.decodes[0]))
    world.advance_to(31.0)
    assert "num_running_reqs" in families(render_page(world.decodes[0]))


def test_failure_counters_are_absent_until_they_count() -> None:
    world = cluster("0.5.23")
    steady(world, 4.0, 1.0, 30.0)
    world.advance_to(40.0)
    assert "num_transfer_failed_reqs" not in families(render_page(world.decodes[0]))
    leg = world.orphan(world.decodes[0], 300)
    world.advance_to(42.0)
    world.decodes[0].leave(leg)
    world.advance_to(50.0)
    assert "num_transfer_failed_reqs" in families(render_page(world.decodes[0]))
