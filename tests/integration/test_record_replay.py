"""Asking over real sockets: hanging endpoints beside good ones, and a recording that is read back as what was seen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from nasty import Nasty, Peer

from pdctl.gather import Gatherer
from pdctl.keep import Keeper
from pdctl.model.answer import Fact, Seen, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.reach.capture import open_capture
from pdctl.reach.capture_write import CaptureWriter
from pdctl.reach.clock import SystemClock
from pdctl.replay import read_window
from pdctl.sample import SamplePlan, sample

PLAN = SamplePlan(
    0.05,
    count=4,
    facts=dict.fromkeys((Role.PREFILL, Role.DECODE), (Fact.METRICS, Fact.LOADS)),
    first={Role.PREFILL: (Fact.SERVER_INFO,)},
)


def engine(peer: Peer) -> bool:
    """Serves a page whose queue is the number of pages served on this connection before."""
    if peer.path == "/metrics":
        name = "sglang:num_queue_reqs"
        peer.reply(f'# TYPE {name} gauge\n{name}{{engine_type="prefill",model_name="m"}} {peer.asked}.0\n'.encode())
    elif peer.path == "/server_info":
        peer.reply(b'{"version": "0.5.19", "disaggregation_mode": "prefill", "api_key": "sk-not-to-be-kept-0123"}')
    else:
        peer.reply(b'{"error": "Unauthorized"}', status="401 Unauthorized")
    return True


def hanging(peer: Peer) -> None:
    peer.hang()


@pytest.fixture
def servers() -> Iterator[Cluster]:
    with ExitStack() as stack:
        urls = [stack.enter_context(Nasty(script)).url("") for script in (engine, engine, hanging)]
        yield Cluster(
            "test",
            (
                Instance("prefill-0", Role.PREFILL, urls[0]),
                Instance("decode-0", Role.DECODE, urls[1]),
                Instance("decode-1", Role.DECODE, urls[2]),
            ),
        )


@pytest.mark.parametrize("name", ["capture", "capture.tar.zst"])
def test_what_was_recorded_says_what_was_seen(servers: Cluster, tmp_path: Path, name: str) -> None:
    clock = SystemClock()
    recorder = Keeper(CaptureWriter(tmp_path / name, servers), tmp_path / name)
    good = Cluster("test", servers.instances[:2])
    with Gatherer(good, clock=clock, on_answer=recorder.add) as gatherer:
        live = list(sample(gatherer, PLAN, clock=clock))[-1]
    recorder.close()
    with open_capture(tmp_path / name) as capture:
        again = read_window(capture)
    assert recorder.notes == []
    assert {o.fact for o in live.observations} == {Fact.METRICS, Fact.LOADS, Fact.SERVER_INFO}
    told = [(o.subject, o.fact, round(o.t, 6), o.got, o.status, o.ask) for o in live.observations]
    assert [(o.subject, o.fact, o.t, o.got, o.status, o.ask) for o in again.observations] == sorted(
        told, key=lambda o: o[2]
    )
    assert abs((again.start - live.start).total_seconds()) < 0.001
    queues = [at.value.total(Gauge.QUEUE) for at in again.seen("prefill-0", Fact.METRICS, EngineMetrics)]
    assert queues == sorted(queues)  # type: ignore[type-var]
    assert len(queues) > 1


def test_no_key_reaches_the_recording(servers: Cluster, tmp_path: Path) -> None:
    clock = SystemClock()
    with (
        CaptureWriter(tmp_path / "c", servers) as writer,
        Gatherer(servers, clock=clock, on_answer=writer.add) as gatherer,
    ):
        list(sample(gatherer, SamplePlan(1.0, count=1, first=PLAN.first), clock=clock))
    assert "0.5.19" in next((tmp_path / "c" / "prefill-0" / "server-info").iterdir()).read_text()
    assert all(b"not-to-be-kept" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_one_that_hangs_costs_the_others_nothing(servers: Cluster) -> None:
    clock = SystemClock()
    plan = SamplePlan(0.1, count=5, facts={Role.PREFILL: (Fact.METRICS,), Role.DECODE: (Fact.METRICS,)}, deadline_s=1.0)
    before = time.monotonic()
    with Gatherer(servers, clock=clock) as gatherer:
        made = sample(gatherer, plan, clock=clock)
        windows = list(made)
    assert time.monotonic() - before < 20
    last = windows[-1]
    for name in ("prefill-0", "decode-0"):
        assert 1 < len(last.timeline(name, Fact.METRICS)) <= made.rounds
        assert all(isinstance(seen.got, Seen) for seen in last.timeline(name, Fact.METRICS))
    (missed,) = last.timeline("decode-1", Fact.METRICS)
    assert missed.missed is not None
    assert missed.missed.why is Why.READ_TIMEOUT
