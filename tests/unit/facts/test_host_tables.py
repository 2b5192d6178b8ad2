"""Units, limits, kernel counters, GPUs, watched files, checkouts, probes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256

import pytest

from pdctl.facts import checkout, gpu, limits, nstat, probe, unit, watched
from pdctl.facts.base import Unreadable
from pdctl.facts.unit import read_systemd_time
from pdctl.model.answer import Fact, Why
from pdctl.model.host import GpuRow, Limits
from tests.unit.facts.host_answers import answer

UNIT = """Id=prefill.service
LoadState=loaded
ActiveState=active
SubState=running
NRestarts=3
MainPID=40211
Result=success
ActiveEnterTimestamp=Thu 2026-11-12 03:10:00 UTC
Environment=A=1 SGLANG_API_KEY=sk-not-a-real-key-000
"""


def test_a_unit() -> None:
    value = unit.read(answer(Fact.UNIT, UNIT), None)
    assert (value.restarts, value.main_pid, value.active, value.sub, value.result) == (
        3, 40211, "active", "running", "success",
    )  # fmt: skip
    assert value.since == datetime(2026, 11, 12, 3, 10, tzinfo=UTC)
    assert "sk-not" not in value.properties["Environment"]


def test_a_unit_that_is_not_loaded_or_says_little() -> None:
    with pytest.raises(Unreadable) as raised:
        unit.read(answer(Fact.UNIT, "LoadState=not-found\nNRestarts=0\n"), None)
    assert raised.value.why == Why.NOT_FOUND
    old = unit.read(answer(Fact.UNIT, "ActiveState=inactive\nMainPID=0\n"), None)
    assert (old.restarts, old.main_pid, old.since) == (None, None, None)
    with pytest.raises(Unreadable):
        unit.read(answer(Fact.UNIT, "Failed to connect to bus"), None)


@pytest.mark.parametrize(
    "text",
    ["Thu 2026-11-12 03:10:00 UTC", "Thu 2026-11-12 11:10:00 +08", "Thu 2026-11-12 04:10:00 CET", "@1794453000",
     "2026-11-12T03:10:00Z"],
)  # fmt: skip
def test_systemd_times_in_zones_that_say_their_offset(text: str) -> None:
    assert read_systemd_time(text) == datetime(2026, 11, 12, 3, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["Thu 2026-11-12 03:10:00 CST", "", "n/a", None, "Thu 2026-11-12 03:10:00", "@99999999999999999999"]
)
def test_a_zone_that_means_several_offsets_is_not_guessed(text: str | None) -> None:
    assert read_systemd_time(text) is None


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             96364                96364                processes
Max open files            1024                 524288               files
"""


def test_limits() -> None:
    assert limits.read(answer(Fact.LIMITS, LIMITS + "fd_count 61\n"), None) == Limits(61, 1024)
    assert limits.read(answer(Fact.LIMITS, LIMITS), None) == Limits(None, 1024)
    unlimited = LIMITS.replace("1024 ", "unlimited ")
    assert limits.read(answer(Fact.LIMITS, unlimited + "fd_count 5"), None) == Limits(5, None)
    with pytest.raises(Unreadable):
        limits.read(answer(Fact.LIMITS, "fd_count 61\n"), None)


@pytest.mark.parametrize(
    "body",
    [
        "#kernel\nTcpExtListenOverflows           88213              0.0\nIpInReceives 5 0.0\n",
        '{"kernel":{"TcpExtListenOverflows":88213,"IpInReceives":5}}',
        "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 1 88213\nIp: InReceives\nIp: 5\n",
    ],
)
def test_kernel_counters_in_three_forms(body: str) -> None:
    counters = nstat.read(answer(Fact.NSTAT, body), None).counters
    assert counters["TcpExtListenOverflows"] == 88213
    assert counters["IpInReceives"] == 5


def test_no_counter_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        nstat.read(answer(Fact.NSTAT, "nstat: command not found\n"), None)


def test_gpus_with_and_without_header_and_units() -> None:
    headed = (
        "index, utilization.gpu [%], power.draw [W], memory.used [MiB]\n"
        "0, 100 %, 92.10 W, 70000 MiB\n1, [N/A], [Not Supported], 1 MiB\n"
    )
    assert gpu.read(answer(Fact.GPU, headed), None).rows == (
        GpuRow(0, 100.0, 92.1, 70000.0),
        GpuRow(1, None, None, 1.0),
    )
    assert gpu.read(answer(Fact.GPU, "0, 5, 92.10, 7\n"), None).rows == (GpuRow(0, 5.0, 92.1, 7.0),)
    two = gpu.read(answer(Fact.GPU, "index, power.draw [W]\n3, 55.5 W\n"), None).rows
    assert two == (GpuRow(3, None, 55.5, None),)
    with pytest.raises(Unreadable):
        gpu.read(answer(Fact.GPU, "NVIDIA-SMI has failed because it couldn't communicate, sorry\n"), None)


def test_a_watched_file_with_and_without_its_bytes() -> None:
    at = "2026-11-12T02:40:00Z"
    held = watched.read(answer(Fact.FILE, "x", path="/etc/nccl.env", mtime=at), None)
    assert (held.path, held.sha256, held.size) == ("/etc/nccl.env", sha256(b"x").hexdigest(), 1)
    assert held.mtime == datetime(2026, 11, 12, 2, 40, tzinfo=UTC)
    bare = watched.read(answer(Fact.FILE, None, path="/etc/nccl.env", mtime=at), None)
    assert (bare.sha256, bare.size, bare.mtime) == (None, None, held.mtime)
    with pytest.raises(Unreadable):
        watched.read(answer(Fact.FILE, "x"), None)


def test_a_checkout() -> None:
    body = {"head": "abc", "branch": None, "dirty": ["a.py"], "committed": "2026-11-12T02:40:00+08:00"}
    value = checkout.read(answer(Fact.GIT, json.dumps(body)), None)
    assert (value.head, value.branch, value.dirty) == ("abc", None, ("a.py",))
    assert value.committed == datetime(2026, 11, 11, 18, 40, tzinfo=UTC)
    with pytest.raises(Unreadable):
        checkout.read(answer(Fact.GIT, "[]"), None)


def test_probe_attempts() -> None:
    good = {"to": "decode-0", "status": 200, "error": None, "took": 0.04, "idle_s": 1, "connection": "reused"}
    bad = {"to": "decode-0", "status": None, "error": "reset", "detail": "ConnectionResetError", "stream": True}
    silent = {"to": "decode-0", "status": None, "error": None}
    one, two, three = probe.read(answer(Fact.PROBE, json.dumps([good, bad, silent])), None).rows
    assert one.good and one.idle_s == 1.0 and one.connection == "reused" and one.via == "direct"
    assert not two.good and two.error == "reset" and two.stream is True
    assert not three.good and three.error == "other"  # how it ended is not known: not a success
    with pytest.raises(Unreadable):
        probe.read(answer(Fact.PROBE, '[{"status": 200}]'), None)
