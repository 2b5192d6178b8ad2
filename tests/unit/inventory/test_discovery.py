"""From listings of a host to an inventory: who is found, under which address, and what is said not to be known."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pdctl.facts.proc_listing import Listed
from pdctl.facts.script import script_of
from pdctl.facts.served import (
    Links,
    Told,
    config_flags,
    exec_words,
    mains_of,
    read_links,
    script_in,
    script_of_ancestors,
    served_of,
    without_shared_units,
)
from pdctl.facts.unit import read as read_unit
from pdctl.inventory.discovery import Discovered, cluster_of_hosts, hosts_of
from pdctl.inventory.toml import read_cluster, render_cluster
from pdctl.inventory.workers import targets_of
from pdctl.model.answer import Answer, Fact
from pdctl.model.cluster import Host, Role
from pdctl.model.host import SocketRow, Sockets, Unit
from pdctl.model.router import Worker
from pdctl.model.served import HostSeen

AT = datetime(2026, 11, 12, 3, 14, tzinfo=UTC)
GPU1 = Host("gpu1", "root@gpu1")
PY = "/opt/venv/bin/python3 -m sglang.launch_server --model-path /m"


def row(pid: int, ppid: int, line: str, unit: str | None = None, comm: str = "python3", state: str = "S") -> Listed:
    return Listed(pid, ppid, comm, state, tuple(line.split()), 0.0, 0.0, 0, unit=unit)


def listen(pid: int | None, port: int, address: str = "127.0.0.1") -> SocketRow:
    return SocketRow("LISTEN", 0, 2048, address, port, "*", None, "python3" if pid else None, pid, 7 if pid else None)


def unit(name: str, main_pid: int, exec_start: str, **more: str) -> Unit:
    properties = {
        "Id": name, "LoadState": "loaded", "MainPID": str(main_pid), "StandardOutput": "journal",
        "ExecStart": f"{{ path=/x ; argv[]={exec_start} ; ignore_errors=no ; status=0/0 }}", **more,
    }  # fmt: skip
    body = "\n".join(f"{key}={value}" for key, value in properties.items()).encode()
    return read_unit(Answer("gpu1", Fact.UNIT, "systemctl show", 0.0, AT, 0.0, 0, body=body), None)


def found(
    rows: list[Listed], sockets: Sockets | None = None, host: Host = GPU1, names: frozenset[str] = frozenset(),
    **told: Told,
) -> HostSeen:  # fmt: skip
    """What a host's listing comes to; ``told`` by "pid10"."""
    served = [served_of(main, told.get(f"pid{main.row.pid}", Told()), sockets) for main in mains_of(rows)]
    ports = None if sockets is None else frozenset(r.local_port for r in sockets.rows)
    return HostSeen(host, without_shared_units(served), names, ports)


def notes_of(result: Discovered, name: str) -> str:
    return "\n".join(result.notes[name])


PAIR = [
    row(1, 0, "/sbin/init", comm="systemd"),
    row(10, 1, f"{PY} --port 30100 --disaggregation-mode prefill --tp 4 --disaggregation-bootstrap-port=9001 "
               "--enable-metrics", "pd-prefill.service"),
    row(11, 10, "sglang::scheduler_TP0", "pd-prefill.service"),
    row(12, 10, "sglang::scheduler_TP1", "pd-prefill.service"),
    row(13, 10, "sglang::detokenizer", "pd-prefill.service"),
    row(19, 1, "/bin/bash /opt/serve/decode.sh", "pd-decode.service", comm="decode.sh"),
    row(20, 19, f"{PY} --disaggregation-mode=decode --port=30200 --dp-size 2 --enable-dp-attention --host 0.0.0.0 "
                "--enable-metrics", "pd-decode.service"),
    row(21, 20, "sglang::data_parallel_controller", "pd-decode.service"),
    row(22, 21, "sglang::scheduler_DP0", "pd-decode.service"),
    row(23, 21, "sglang::scheduler_DP1", "pd-decode.service"),
    row(30, 1, "sglang::router", "pd-router.service", comm="sglang::router"),
]  # fmt: skip
PAIR_SOCKETS = Sockets((
    listen(10, 30100), listen(10, 9001, "*"), listen(20, 30200, "0.0.0.0"), listen(30, 8000, "0.0.0.0"),
    listen(30, 29000, "0.0.0.0"), listen(99, 22, "0.0.0.0"),
))  # fmt: skip
ROUTER_EXEC = (
    "/opt/venv/bin/python -m sglang_router.launch_router --pd-disaggregation --port 8000 --prometheus-port 29000 "
    "--prefill http://10.0.0.1:30100 9001 --decode http://10.0.0.1:30200"
)


def pair(**told: Told) -> Discovered:
    everything = {
        "pid10": Told(unit("pd-prefill.service", 10, PY, StandardOutput="append:/var/log/sglang/prefill.log")),
        "pid20": Told(unit("pd-decode.service", 19, "/opt/serve/decode.sh"), script_path="/opt/serve/decode.sh"),
        "pid30": Told(unit("pd-router.service", 30, ROUTER_EXEC)),
    } | told
    seen = found(PAIR, PAIR_SOCKETS, names=frozenset({"gpu1", "10.0.0.1"}), **everything)
    return cluster_of_hosts([seen], "prod")


def test_a_host_with_prefill_decode_and_router_under_units() -> None:
    result = pair()
    prefill, decode, router = result.cluster.instances
    assert (prefill.name, prefill.role, prefill.unit) == ("prefill-0", Role.PREFILL, "pd-prefill.service")
    assert (prefill.bootstrap_port, prefill.log) == (9001, "/var/log/sglang/prefill.log")
    assert (decode.name, decode.unit, decode.script) == ("decode-0", "pd-decode.service", "/opt/serve/decode.sh")
    assert (router.url, router.metrics_url) == ("http://127.0.0.1:8000", "http://127.0.0.1:29000/metrics")
    assert (router.unit, router.host) == ("pd-router.service", "gpu1")
    assert [prefill.url, decode.url] == ["http://10.0.0.1:30100", "http://10.0.0.1:30200"], "as the router knows them"
    assert "tp 4" in notes_of(result, "prefill-0")
    assert "dp 2" in notes_of(result, "decode-0")
    assert "ExecStart of pd-router.service" in notes_of(result, "router-0")
    assert result.remarks == ()


def test_what_was_found_reads_back_as_the_same_inventory() -> None:
    result = pair()
    text = render_cluster(result.cluster, result.notes)
    assert replace(read_cluster(text, "command line")) == result.cluster
    assert "# found as process 10 on gpu1" in text


def test_a_rank_is_not_an_instance_and_neither_is_a_fresh_copy_of_its_parent() -> None:
    copy = row(14, 10, " ".join(PAIR[1].argv), "pd-prefill.service")
    assert [main.row.pid for main in mains_of([*PAIR, copy])] == [10, 20, 30]


@pytest.mark.parametrize(
    ("line", "comm"),
    [
        (f"bash -c {PY} --port 1", "bash"),
        (f"ssh gpu9 {PY} --port 1", "ssh"),
        (f"docker run image {PY} --port 1", "docker"),
        ("vim /opt/launch_server.py", "vim"),
        ("/usr/bin/less launch_router.py", "less"),
        ("python3 train.py --port 30000", "python3"),
    ],
)
def test_a_process_that_only_names_a_program_is_none(line: str, comm: str) -> None:
    assert mains_of([row(5, 1, line, comm=comm)]) == ()


def test_a_zombie_is_none() -> None:
    assert mains_of([row(5, 1, f"{PY} --disaggregation-mode decode", state="Z")]) == ()


def test_two_routers_that_hide_their_options_are_told_by_the_ports_they_listen_on() -> None:
    rows = [row(30, 1, "sglang::router", comm="sglang::router"), row(40, 1, "smg::router", comm="smg::router")]
    sockets = Sockets((listen(30, 8000, "*"), listen(30, 29000, "*"), listen(40, 8100, "*"), listen(40, 8101, "*")))
    seen = found(rows, sockets)
    first, second = cluster_of_hosts([seen], "c").cluster.instances
    assert (first.url, first.metrics_url) == ("http://127.0.0.1:8000", "http://127.0.0.1:29000/metrics")
    assert second.url is None, "either of two ports may be its HTTP"
    asked = replace(seen, served=(seen.served[0], replace(seen.served[1], metrics_port=8101)))
    _, second = cluster_of_hosts([asked], "c").cluster.instances
    assert (second.url, second.metrics_url) == ("http://127.0.0.1:8100", "http://127.0.0.1:8101/metrics")


def test_a_router_whose_listeners_are_hidden_says_so() -> None:
    sockets = Sockets((listen(None, 8000, "*"), listen(None, 29000, "*")), owners=False)
    result = cluster_of_hosts([found([row(30, 1, "sglang::router")], sockets)], "c")
    (router,) = result.cluster.instances
    assert (router.url, router.metrics_url, router.host) == (None, None, "gpu1")
    assert "add its url" in notes_of(result, "router-0")
    assert "where its metrics are could not be told" in notes_of(result, "router-0")


def test_a_script_tells_the_options_that_a_router_hides() -> None:
    text = "#!/bin/bash\nPORT=8123\nexec smg launch --port $PORT --pd-disaggregation --decode http://127.0.0.1:30200\n"
    script = script_of("/opt/serve/router.sh", None, text)
    told = Told(unit("r.service", 30, "/opt/serve/router.sh"), script, "/opt/serve/router.sh")
    result = cluster_of_hosts([found([row(30, 1, "smg::router", "r.service")], None, pid30=told)], "c")
    (router,) = result.cluster.instances
    assert (router.url, router.script) == ("http://127.0.0.1:8123", "/opt/serve/router.sh")
    assert "its script /opt/serve/router.sh" in notes_of(result, "router-0")
    assert "http://127.0.0.1:30200, which was found on none" in result.remarks[0]


def test_engines_on_127_0_0_1_of_two_hosts_and_a_router_that_knows_them_by_name() -> None:
    prefill = [row(10, 1, f"{PY} --disaggregation-mode prefill")]
    decode = [row(10, 1, f"{PY} --disaggregation-mode decode")]
    router = [row(30, 1, "python3 -m sglang_router.launch_router --prefill http://gpu1:30000 8998 --decode "
                         "http://gpu2:30000 --decode http://gpu7:30000", comm="python3")]  # fmt: skip
    hosts = [GPU1, Host("gpu2", "gpu2"), Host("lb", "lb")]
    seen = [found(rows, None, host) for rows, host in zip((prefill, decode, router), hosts, strict=True)]
    result = cluster_of_hosts(seen, "c")
    assert [(i.name, i.url, i.host) for i in result.cluster.instances] == [
        ("prefill-0", "http://gpu1:30000", "gpu1"),
        ("decode-0", "http://gpu2:30000", "gpu2"),
        ("router-0", "http://127.0.0.1:30000", "lb"),
    ]
    (remark,) = result.remarks
    assert "http://gpu7:30000, which was found on none of these hosts; it may be the one on gpu2" in remark
    alone = cluster_of_hosts(seen[:2], "c").cluster
    assert [i.url for i in alone.instances] == ["http://127.0.0.1:30000"] * 2


def test_workers_that_a_router_lists_give_addresses_and_a_role() -> None:
    rows = [row(10, 1, "vllm serve /m --port 8100", comm="vllm"), row(30, 1, "smg::router")]
    seen = found(rows, None, names=frozenset({"10.0.0.1"}))
    assert [i.role for i in cluster_of_hosts([seen], "c").cluster.instances] == [Role.ROUTER]
    workers = targets_of([Worker("http://10.0.0.1:8100@0", "decode"), Worker("x:1", None)], "gpu1")
    engine, _ = cluster_of_hosts([seen], "c", workers).cluster.instances
    assert (engine.role, engine.engine, engine.url) == (Role.DECODE, "vllm", "http://10.0.0.1:8100")


def test_vllm_tells_its_role_in_its_transfer_config() -> None:
    config = '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'
    rows = [
        row(10, 1, f"vllm serve /m --kv-transfer-config {config}", comm="vllm"),
        row(20, 1, 'vllm serve /m --port 8100 --kv-transfer-config={"kv_role":"kv_both"}', comm="vllm"),
    ]
    result = cluster_of_hosts([found(rows)], "c")
    (engine,) = result.cluster.instances
    assert (engine.role, engine.engine, engine.url) == (Role.PREFILL, "vllm", "http://127.0.0.1:8000")
    assert engine.bootstrap_port is None
    assert "process 20 (port 8100): vLLM whose role no option tells" in result.remarks[0]


def test_only_node_rank_0_serves_http() -> None:
    rows = [row(10, 1, f"{PY} --disaggregation-mode decode --nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:5000")]
    result = cluster_of_hosts([found(rows)], "c")
    assert result.cluster.instances == ()
    assert "node rank 1 of an engine led from 10.0.0.1:5000" in result.remarks[0]


def test_an_engine_without_a_role_is_left_out_and_said() -> None:
    result = cluster_of_hosts([found([row(10, 1, PY)])], "c")
    assert result.cluster.instances == ()
    assert "no part of prefill/decode disaggregation" in result.remarks[0]


def test_a_container_without_cgroup_units() -> None:
    """In a pid namespace of its own the cgroup is "/": no unit, and everything else all the same."""
    rows = [row(1, 0, f"{PY} --disaggregation-mode prefill --port 30000"), row(7, 1, "sglang::scheduler")]
    result = cluster_of_hosts([found(rows, Sockets((listen(1, 30000), listen(1, 8998, "*"))))], "c")
    (prefill,) = result.cluster.instances
    assert (prefill.unit, prefill.url, prefill.bootstrap_port) == (None, "http://127.0.0.1:30000", 8998)
    assert "listen" not in notes_of(result, "prefill-0")


def test_a_container_seen_from_its_host() -> None:
    rows = [row(10, 1, f"{PY} --disaggregation-mode prefill", f"docker-{'0a' * 32}.scope")]
    links = Links("/var/log/engine.log", "", own_network=True, own_files=True)
    result = cluster_of_hosts([found(rows, Sockets(()), pid10=Told(links=links))], "c")
    (prefill,) = result.cluster.instances
    assert (prefill.unit, prefill.log) == (None, None)
    said = notes_of(result, "prefill-0")
    assert "runs in a container (0a0a0a0a0a0a)" in said
    assert "its network is not the host's" in said
    assert "writes to /var/log/engine.log inside its container" in said


def test_nothing_found() -> None:
    result = cluster_of_hosts([found([row(1, 0, "/sbin/init")]), HostSeen(Host("b", "b"), failure="refused")], "c")
    assert result.cluster.instances == ()
    assert result.remarks == ("b: refused",)


def test_a_unit_that_only_keeps_the_process_is_not_its_unit() -> None:
    rows = [row(10, 5, f"{PY} --disaggregation-mode decode", "ssh.service"), row(5, 1, "sshd", comm="sshd")]
    result = cluster_of_hosts([found(rows, pid10=Told(unit("ssh.service", 5, "/usr/sbin/sshd -D")))], "c")
    assert result.cluster.instances[0].unit is None
    assert "started below ssh.service" in notes_of(result, "decode-0")


def test_a_unit_whose_main_process_is_another_is_not_its_unit() -> None:
    rows = [row(10, 1, f"{PY} --disaggregation-mode decode", "a.service")]
    result = cluster_of_hosts([found(rows, pid10=Told(unit("a.service", 77, "/opt/a")))], "c")
    assert result.cluster.instances[0].unit is None


def test_a_unit_that_starts_two_is_named_for_neither() -> None:
    rows = [
        row(5, 1, "/bin/bash /opt/both.sh", "both.service", comm="both.sh"),
        row(10, 5, f"{PY} --disaggregation-mode prefill --port 1000", "both.service"),
        row(20, 5, f"{PY} --disaggregation-mode decode --port 2000", "both.service"),
    ]
    told = Told(unit("both.service", 5, "/opt/both.sh"))
    result = cluster_of_hosts([found(rows, pid10=told, pid20=told)], "c")
    assert [i.unit for i in result.cluster.instances] == [None, None]
    assert "both.service starts others as well" in notes_of(result, "decode-0")


def test_a_port_nobody_listens_on_is_doubted() -> None:
    rows = [row(10, 1, f"{PY} --disaggregation-mode decode --port 30500")]
    result = cluster_of_hosts([found(rows, Sockets((listen(10, 30501),)))], "c")
    assert "does not listen on 30500 but on 30501" in notes_of(result, "decode-0")


def test_two_prefills_with_one_bootstrap_port() -> None:
    rows = [row(pid, 1, f"{PY} --disaggregation-mode prefill --port {port}") for pid, port in ((10, 1000), (20, 2000))]
    result = cluster_of_hosts([found(rows)], "c")
    assert "bootstrap port 8998 is that of prefill-0 on the same host" in notes_of(result, "prefill-1")


def test_a_router_that_says_another_bootstrap_port() -> None:
    result = pair(pid30=Told(unit("pd-router.service", 30, ROUTER_EXEC.replace("30100 9001", "30100 8998"))))
    assert "a router says its bootstrap port is 8998, its own options say 9001" in notes_of(result, "prefill-0")


# --- the pieces ----------------------------------------------------------------------------------------------------


def test_a_file_of_settings_counts_below_the_command_line() -> None:
    text = (
        "port: 30400\ntensor_parallel_size: 8\ndisaggregation-mode: decode\nenable-metrics: true\nlog-requests: false\n"
    )
    flags = {"--port": "30400", "--tp-size": "8", "--disaggregation-mode": "decode", "--enable-metrics": ""}
    assert config_flags(text) == flags
    rows = [row(10, 1, f"{PY} --config /etc/e.yaml --port 30401")]
    (engine,) = cluster_of_hosts([found(rows, pid10=Told(config=text))], "c").cluster.instances
    assert (engine.role, engine.url) == (Role.DECODE, "http://127.0.0.1:30401")
    unread = cluster_of_hosts([found(rows, pid10=Told(config_failure="permission denied"))], "c")
    assert unread.cluster.instances == ()


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [\n", "words"])
def test_a_file_of_settings_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="no"):
        config_flags(text)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("/opt/serve/prefill.sh", "/opt/serve/prefill.sh"),
        ("/bin/bash -l /opt/serve/prefill.sh 1", "/opt/serve/prefill.sh"),
        ("/usr/bin/env A=/b/c bash ./serve.sh", "./serve.sh"),
        ("/usr/bin/numactl --all /opt/p.sh", "/opt/p.sh"),
        (f"{PY} --port 1", None),
        ("/opt/venv/bin/python /opt/tool.py", None),
        ("bash", None),
    ],
)
def test_the_script_in_a_command_line(line: str, script: str | None) -> None:
    assert script_in(line.split()) == script


def test_the_words_of_exec_start_without_quotes() -> None:
    assert exec_words(unit("a.service", 1, "/bin/bash -lc 'exec /opt/a.sh'"))[-1] == "/opt/a.sh"


def test_a_script_among_the_ancestors() -> None:
    main = next(main for main in mains_of(PAIR) if main.row.pid == 20)
    assert script_of_ancestors(main) == "/opt/serve/decode.sh"


def test_links_of_a_process() -> None:
    body = b"/var/log/a.log\npipe:[1]\nnet:[1]\nnet:[2]\n\nmnt:[1]\n"
    assert read_links(body) == Links("/var/log/a.log", "pipe:[1]", True, None)
    assert read_links(b"") == Links()


def test_hosts_by_their_specs() -> None:
    assert hosts_of(["root@gpu1:2222", "local", "ops@gpu1", "[::1]"], "sudo") == (
        Host("gpu1", "root@gpu1:2222", "sudo"), Host("local", None, "sudo"), Host("gpu1-2", "ops@gpu1", "sudo"),
        Host("::1", "[::1]", "sudo"),
    )  # fmt: skip
    for wrong in (["a b"], ["-oProxyCommand=x"], ["a:99999"], ["a", "a"]):
        with pytest.raises(ValueError, match=r"not \[user@\]|twice"):
            hosts_of(wrong)
