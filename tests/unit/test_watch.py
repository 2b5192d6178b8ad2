"""Looking at a live cluster: what is asked, when it ends, what is kept."""

from __future__ import annotations

from pathlib import Path

from pdctl.model.answer import Fact
from pdctl.model.ask import CommandAsk, HttpAsk
from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.reach.capture import open_capture
from pdctl.watch import Look, has_log, log_ask, plan_of, watch

CLUSTER = Cluster(
    "a/../b",
    (
        Instance("prefill-0", Role.PREFILL, "http://127.0.0.1:9", host="gpu1", log="/var/log/p.log"),
        Instance("decode-0", Role.DECODE, "http://127.0.0.1:9"),
        Instance("router-0", Role.ROUTER, "http://127.0.0.1:9", "http://127.0.0.1:9/metrics"),
        Instance("proxy-0", Role.PROXY, "https://127.0.0.1:9"),
    ),
    (Host("gpu1", "root@192.0.2.1", "sudo"),),
)


def test_metrics_come_before_live_counts_and_no_health_check_is_sent() -> None:
    plan = plan_of(CLUSTER, Look(timeout_s=3.0))
    asks = [a for a in plan.round_asks(CLUSTER, 0) if isinstance(a, HttpAsk)]
    assert [a.fact for a in asks if a.subject == "decode-0"] == [Fact.METRICS, Fact.LOADS, Fact.SERVER_INFO]
    assert [a.fact for a in asks if a.subject == "router-0"] == [Fact.METRICS, Fact.WORKERS]
    assert not [a for a in asks if a.fact == Fact.HEALTH or a.subject == "proxy-0"]
    assert {a.timeout for a in asks} == {3.0}


def test_an_instance_of_a_remote_host_is_asked_through_it_and_its_log_there() -> None:
    plan = plan_of(CLUSTER, Look())
    assert {a.via for a in plan.round_asks(CLUSTER, 1) if isinstance(a, HttpAsk) and a.subject == "prefill-0"} == {
        "gpu1"
    }
    (log,) = [a for a in plan.closing_asks(CLUSTER) if isinstance(a, CommandAsk) and a.fact == Fact.LOG]
    assert (log.host, log.become, log.argv[-1]) == ("gpu1", True, "/var/log/p.log")


def test_a_look_at_dead_endpoints_ends_in_time_and_keeps_what_they_did_not_say(tmp_path: Path) -> None:
    cluster = Cluster("dead", CLUSTER.instances[1:3])
    looked = watch(cluster, Look(interval_s=0.05, seconds=0.1, record=tmp_path / "c"))
    with open_capture(tmp_path / "c") as capture:
        answers = list(capture.answers())
    assert {a.subject for a in answers} == {"decode-0", "router-0"}
    assert {str(a.error) for a in answers} == {"connect-refused"}
    assert len(looked.window.observations) == len(answers)


def test_a_log_is_a_file_or_the_journal_of_a_unit_on_its_host() -> None:
    hosts = (Host("gpu1", "root@gpu1", "sudo"),)
    file = Instance("p", Role.PREFILL, host="gpu1", unit="p", log="/p.log")
    unit = Instance("d", Role.DECODE, host="gpu1", unit="d.service")
    nowhere = Instance("r", Role.ROUTER, unit="r.service")
    cluster = Cluster("c", (file, unit, nowhere), hosts)
    assert [has_log(i, cluster) for i in cluster.instances] == [True, True, False]
    assert log_ask(file, cluster).argv[0] == "tail"
    asked = log_ask(unit, cluster)
    assert (asked.argv[0], asked.argv[-1], asked.host, asked.become) == ("journalctl", "d.service", "gpu1", True)
    asks = {a.subject for a in plan_of(cluster, Look()).last_asks}
    assert asks == {"p", "d"}
