"""``pdctl probe`` as people and programs meet it: a server that misbehaves, a simulated cluster, a real nginx."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from certificates import made_tls
from faulty import Faulty, Manners
from loopback_sshd import Sshd
from nasty import Nasty, Peer, free_port
from nginx import MISSING, NGINX, nginx

from pdctl.cli import main
from pdctl.demo.run import Demo, started
from pdctl.inventory.write import render_cluster
from pdctl.model.cluster import Host, Instance, Role

QUICK = ("--no-record", "--hang-after", "2", "--interval", "200ms")


class Run:
    """Runs the command and reads what it says."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.status = 0
        self.err = ""
        self.out = ""

    def __call__(self, *words: object, json_too: bool = True) -> dict[str, Any]:
        form = ("-o", "json") if json_too else ()
        self.status = main(["probe", *map(str, words), *form])
        self.out, self.err = self._capsys.readouterr()
        return json.loads(self.out) if json_too and self.out else {}  # type: ignore[no-any-return]


@pytest.fixture
def probe(capsys: pytest.CaptureFixture[str], elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, its waits for what clients left behind cut short: the simulated engines need no seconds for that."""
    monkeypatch.setattr("pdctl.probing.run.AFTER_TROUBLE", 1.0)
    monkeypatch.setattr("pdctl.probing.stage.SETTLE", 0.5)
    return Run(capsys)


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with started("healthy") as running:
        yield running


def names(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f["name"], f["subject"]) for f in report["findings"]]


def cell(report: dict[str, Any], to: str, trial: str) -> dict[str, Any]:
    (row,) = (row for row in report["probe"]["paths"] if row["to"] == to)
    return dict(row["cells"][trial])


def in_front(demo: Demo, url: str, folder: Path, **more: object) -> Path:
    """An inventory of the demo with a proxy at that URL."""
    proxy = replace(Instance("proxy-0", Role.PROXY, url), **more)  # type: ignore[arg-type]
    path = folder / "inventory.toml"
    path.write_text(render_cluster(replace(demo.cluster, instances=(*demo.cluster.instances, proxy))))
    return path


# --- as it is ---------------------------------------------------------------------------------------------------------


def test_as_it_is_it_asks_little_and_says_how_much(probe: Run) -> None:
    with Faulty() as server:
        report = probe("--router", server.url, *QUICK)
        assert len(server.served) == 3
    assert (probe.status, report["status"], names(report)) == (0, "ok", [])
    assert {t for t in ("health", "one", "idle") if cell(report, "router-0", t)["fate"] == "good"} == {
        "health",
        "one",
        "idle",
    }
    assert "sends: up to 6 requests, 1 at once" in probe.err
    assert [a["connection"] for a in report["probe"]["attempts"]] == ["fresh", "fresh", "fresh", "reused"]


def test_what_loads_is_refused_without_leave_and_nothing_is_sent(probe: Run) -> None:
    with Faulty() as server:
        for words in (("--kind", "many"), ("--kind", "rounds"), ("--kind", "aborts"), ("--repeat", "50")):
            report = probe("--router", server.url, *words, *QUICK)
            assert (probe.status, report["error"]["kind"]) == (64, "usage")
            assert "this would load the cluster: up to" in report["error"]["message"]
        assert (server.served, server.connections) == ([], 0)


def test_a_plan_sends_nothing(probe: Run) -> None:
    with Faulty() as server:
        value = probe("--router", server.url, "--load", "--plan")
        assert (server.served, server.connections) == ([], 0)
    assert probe.status == 0
    assert value["schema"] == "pdctl.probe-plan/1"
    assert value["load"]["at_once"] == 16
    assert [stage["trial"] for step in value["steps"] for stage in step] == ["health", "one", "idle", "rounds", "many"]


def test_there_is_time_for_what_is_planned_unless_somebody_says_otherwise(probe: Run) -> None:
    words = ("--router", "http://127.0.0.1:1", "--plan", "--gap", "350s")
    assert probe(*words)["load"]["deadline_s"] > 350
    assert probe(*words, "--deadline", "60s")["load"]["deadline_s"] == 60
    assert probe(*words[:3])["load"]["deadline_s"] == 90
    assert probe(*words[:3], "--load")["load"]["deadline_s"] == 300


def test_wrong_words(probe: Run) -> None:
    url = "http://127.0.0.1:1"
    for words in (
        ("--expect", "("),
        ("--note", "x"),
        ("nobody",),
        ("--kind", "none"),
        ("--gap", "soon"),
        ("--at-once", "0"),
    ):
        probe("--router", url, *words, *QUICK)
        assert probe.status == 64, words


def test_for_people(probe: Run) -> None:
    with Faulty(Manners(idle_close_s=0.8)) as server:
        probe("--router", server.url, "--gap", "0.1", "--gap", "1.6", *QUICK, json_too=False)
    assert probe.status == 1
    lines = probe.out.splitlines()
    (head,) = (line for line in lines if line.split()[:1] == ["path"])
    assert head.split() == ["path", "health", "one", "idle"]
    (row,) = (line for line in lines if line.startswith("  router-0  "))
    assert "! closed, 1.6 s" in row
    assert "keepalive-stale, certain" in probe.out
    assert max(map(len, lines)) <= 80


# --- faults of a server -----------------------------------------------------------------------------------------------

MANY = ("--load", "--kind", "many", "--at-once", "8")
ROUNDS = ("--load", "--kind", "rounds", "--agents", "3", "--rounds", "4")
IDLE = ("--load", "--gap", "0.1", "--gap", "1.6", "--kind", "idle")


@pytest.mark.parametrize(
    ("manners", "words", "finding", "fate", "status"),
    [
        (Manners(idle_close_s=0.8), IDLE, "keepalive-stale", ("idle", "closed"), 1),
        (Manners(idle_408_s=0.8), IDLE, "keepalive-stale", ("idle", "closed"), 1),
        (Manners(idle_deaf_s=0.8), IDLE, "keepalive-stale", ("idle", "hung"), 1),
        (Manners(hang_nth=3), ROUNDS, "connection-scoped-hang", ("rounds", "hung"), 2),
        (Manners(crossed=True, think_s=0.2), MANY, "endpoint-unreadable", ("many", "wrong"), 3),
        (Manners(cut_stream=True), MANY, "endpoint-unreadable", ("many", "cut"), 3),
        (Manners(no_done=True), MANY, "endpoint-unreadable", ("many", "cut"), 3),
        (Manners(error_event=True), MANY, "endpoint-unreadable", ("many", "failed"), 3),
        (Manners(trickle_s=0.2), ("--kind", "one", "--hang-after", "0.6"), "endpoint-unreadable", ("one", "hung"), 3),
        (Manners(empty=True), ("--kind", "one"), "endpoint-unreadable", ("one", "wrong"), 3),
        (Manners(gives_up=True), ("--kind", "one"), "endpoint-unreadable", ("one", "failed"), 3),
        (Manners(fail_status=500), ("--kind", "one"), "endpoint-unreadable", ("one", "failed"), 3),
    ],
)
def test_a_fault_is_named_and_its_cell_shows_it(
    manners: Manners, words: tuple[str, ...], finding: str, fate: tuple[str, str], status: int, probe: Run
) -> None:
    with Faulty(manners) as server:
        report = probe("--router", server.url, *QUICK, *words)
    assert (finding, "router-0") in names(report)
    assert cell(report, "router-0", fate[0])["fate"] == fate[1]
    assert probe.status == status


def test_where_on_its_connection_a_request_hangs(probe: Run) -> None:
    with Faulty(Manners(hang_nth=2)) as server:
        report = probe("--router", server.url, *ROUNDS, *QUICK)
    assert cell(report, "router-0", "rounds")["hung_at"] == [2]
    controls = [a for a in report["probe"]["attempts"] if a.get("control")]
    assert controls and all(a["status"] == 200 and a["connection"] == "fresh" for a in controls)


def test_it_stops_when_the_server_does_not_bear_it(probe: Run) -> None:
    with Faulty(Manners(fail_above=2, think_s=0.1)) as server:
        report = probe("--router", server.url, *MANY, "--repeat", "20", *QUICK)
        assert len(server.served) < 80, "of 160"
    assert "stopped after" in probe.err and "answered 503" in probe.err
    assert ("endpoint-unreadable", "router-0") in names(report)
    assert [u["what"] for u in report["unchecked"]] == ["the rest of the plan"]


def test_it_stops_when_the_first_token_takes_too_long(probe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdctl.checks.probe_guard.NOTABLE_S", 1.0)
    with Faulty(Manners(slow_above=2, slow_s=1.5)) as server:
        report = probe("--router", server.url, *MANY, "--repeat", "20", *QUICK, "--hang-after", "10")
    assert "times as long as alone" in probe.err
    assert (probe.status, report["status"]) == (3, "unknown")


def test_nothing_more_is_asked_where_not_even_one_works(probe: Run) -> None:
    with Faulty(Manners(fail_status=500)) as server:
        report = probe("--router", server.url, "--load", *QUICK)
        assert server.served == []
    assert cell(report, "router-0", "many")["why"] == "not even one generation alone works"


def test_no_load_is_added_to_a_cluster_that_serves_nobody(probe: Run, demo: Demo) -> None:
    (prefill,) = demo.cluster.prefills
    with Faulty(Manners(fail_status=503)) as server:
        words = ("--prefill", str(prefill.url), "--router", server.url, "--load", "--kind", "many", "--kind", "idle")
        report = probe(*words, "--gap", "0.1", *QUICK)
    assert cell(report, "prefill-0", "many")["why"] == (
        "not even one generation through router-0 works: no load is added to that"
    )
    assert cell(report, "prefill-0", "idle")["fate"] == "good", "one request and then another is no load"


def test_a_second_try_where_the_first_fails(probe: Run) -> None:
    with Faulty(Manners(hang_nth=1)) as server:
        report = probe("--router", server.url, "--kind", "one", *QUICK, "--hang-after", "0.5")
    assert [a.get("control") for a in report["probe"]["attempts"]] == [None, True]


def test_no_more_is_asked_alone_after_two_hangs(probe: Run) -> None:
    with Faulty(Manners(hang_all=True)) as server:
        words = ("--kind", "one", "--repeat", "5", *QUICK, "--hang-after", "0.5")
        report = probe("--router", server.url, *words)
    assert [a["error"] for a in report["probe"]["attempts"]] == ["read-timeout"] * 3, "the second try among them"


def test_no_load_is_added_where_generations_alone_begin_to_hang(probe: Run) -> None:
    with Faulty(Manners(hang_from=4)) as server:
        words = (*MANY, "--kind", "one", "--repeat", "6", *QUICK, "--hang-after", "0.5")
        report = probe("--router", server.url, *words)
    assert cell(report, "router-0", "one")["good"] == 3
    assert cell(report, "router-0", "many")["why"] == "generations alone hang"


def test_nobody_listens(probe: Run) -> None:
    report = probe("--router", f"http://127.0.0.1:{free_port()}", *QUICK)
    assert (probe.status, names(report)) == (3, [("endpoint-unreadable", "router-0")])
    assert "no request reaches router-0: connect-refused" in report["findings"][0]["summary"]


def test_the_deadline_ends_it(probe: Run) -> None:
    with Faulty(Manners(think_s=60.0)) as server:
        report = probe("--router", server.url, *QUICK, "--hang-after", "20", "--deadline", "1")
    assert (probe.status, report["status"]) == (3, "unknown")
    assert "the deadline of 1 s" in probe.err and "1 requests under way were cut" in probe.err


# --- a simulated cluster ----------------------------------------------------------------------------------------------


def test_every_kind_at_every_part_of_a_healthy_cluster(probe: Run, demo: Demo, tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(render_cluster(demo.cluster))
    words = ("--load", "--kind", "all", "--gap", "0.5", "--at-once", "4", "--agents", "2", "--rounds", "3")
    report = probe("-c", path, *words, "--tokens", "8", *QUICK, "--hang-after", "20")
    assert (probe.status, names(report)) == (0, [])
    for row in report["probe"]["paths"]:
        assert {trial: c["fate"] for trial, c in row["cells"].items()} == dict.fromkeys(row["cells"], "good"), row["to"]
        assert row["opened"] == 1 + 1 + 1 + 2 + 4 + 5, (
            "health, one, an idle one, two agents, four at once, four that left"
        )
        assert row["reused"] == 1 + 2 * 2
    assert set(report["probe"]["plan"]["notes"]) == {"prefill-0", "decode-0"}
    owe_nothing = {r["subject"] for r in report["ruled_out"] if r["what"] == "responses-lost"}
    assert owe_nothing == {"prefill-0", "decode-0"}
    assert {a.get("told") for a in report["probe"]["attempts"] if a["to"] == "router-0"} == {None, "echoed"}


def test_answers_lost_on_the_way_are_told_from_a_hang(probe: Run, demo: Demo, tmp_path: Path) -> None:
    words = ("proxy-0", *ROUNDS, "--rounds", "3", "--tokens", "8", *QUICK, "--hang-after", "3")
    with Faulty(Manners(lose_nth=3), upstream=demo.cluster.routers[0].url) as proxy:
        lost = probe("-c", in_front(demo, proxy.url, tmp_path), *words)
    assert (probe.status, names(lost)) == (2, [("responses-lost", "proxy-0")])
    with Faulty(Manners(hang_nth=3), upstream=demo.cluster.routers[0].url) as proxy:
        hung = probe("-c", in_front(demo, proxy.url, tmp_path), "router-0", *words)
    assert (probe.status, names(hung)) == (2, [("connection-scoped-hang", "proxy-0")])
    assert (cell(hung, "router-0", "rounds")["fate"], cell(hung, "proxy-0", "rounds")["fate"]) == ("good", "hung")
    assert hung["findings"][0]["confidence"] in ("certain", "likely")  # likely where engines lag behind the machine


def test_a_router_that_holds_requests(probe: Run) -> None:
    report = probe("--demo", "router-holds", "--interval", "200ms")
    assert (probe.status, names(report)) == (2, [("router-holds-requests", "router-0")])


def test_a_breaker_that_a_request_tried_out(probe: Run) -> None:
    report = probe("--demo", "breaker", "--interval", "200ms")
    assert names(report) in ([], [("router-circuit-open", "router-0")])
    if not names(report):
        assert "was open when the probe began" in report["probe"]["remarks"][0]


def test_a_cluster_that_listens_on_its_host_alone(probe: Run, demo: Demo, sshd: Sshd, tmp_path: Path) -> None:
    home = Path(os.environ["HOME"]) / ".ssh"
    home.mkdir(mode=0o700)
    (home / "config").write_text(sshd.config())
    there = tuple(replace(instance, host="there") for instance in demo.cluster.instances)
    path = tmp_path / "there.toml"
    path.write_text(render_cluster(replace(demo.cluster, instances=there, hosts=(Host("there", sshd.spec),))))
    report = probe("-c", path, "router-0", "decode-0", *QUICK)
    assert (probe.status, names(report)) == (0, [])
    attempts = report["probe"]["attempts"]
    assert {(a["to"], a["status"]) for a in attempts} == {("router-0", 200), ("decode-0", 200)}
    assert all("local" not in a for a in attempts), "its end of the connection is the host's"
    assert {s["through_host"] for step in report["probe"]["plan"]["steps"] for s in step} == {"there"}


def test_a_proxy_alone(probe: Run) -> None:
    with Faulty() as server:
        report = probe("--proxy", server.url, *QUICK)
        assert (probe.status, report["status"]) == (0, "ok")
        assert [a["via"] for a in report["probe"]["attempts"]] == ["proxy"] * 3
        probe("--proxy", server.url, *QUICK, json_too=False)
    assert "OK  command line: nothing wrong seen" in probe.out
    assert "health at proxy-0: clients ask a proxy for none" in probe.out


def test_a_wrong_answer_is_shown(probe: Run) -> None:
    with Faulty(Manners(no_echo=True)) as server:
        report = probe("--router", server.url, "--expect", "^dolor", *QUICK)
        probe("--router", server.url, "--expect", "^dolor", *QUICK, json_too=False)
    assert "it says 'lorem ipsum dolor'" in json.dumps(report["findings"][0]["evidence"])
    assert "1/1 wrong" in probe.out and "3/3 wrong" not in probe.out
    shut = cell(report, "router-0", "idle")
    assert (shut["fate"], shut["tried"], shut["good"]) == ("wrong", 2, 0)


def test_a_redirect_is_told_and_not_followed(probe: Run) -> None:
    with Nasty(moved) as server:
        report = probe("--proxy", server.url("").rstrip("/"), "--kind", "one", *QUICK)
    assert "redirects to https://llm.example/" in json.dumps(report["findings"][0]["evidence"])
    assert probe.status == 3


def moved(peer: Peer) -> bool:
    peer.reply(b"", "Location: https://llm.example/v1", status="301 Moved Permanently")
    return False


# --- recordings, saved probes -----------------------------------------------------------------------------------------


def test_a_recording_is_judged_as_the_live_probe_was(
    probe: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Faulty(Manners(idle_close_s=0.8)) as server:
        live = probe("--router", server.url, *IDLE, *QUICK[1:], "--record", tmp_path / "kept")
    again = probe("--from", tmp_path / "kept")
    assert names(again) == names(live) == [("keepalive-stale", "router-0")]
    assert again["probe"]["paths"] == [
        {
            **row,
            "cells": {t: ({**c, "why": "not tried"} if c["fate"] == "not run" else c) for t, c in row["cells"].items()},
        }
        for row in live["probe"]["paths"]
    ]
    assert again["probe"]["attempts"] == live["probe"]["attempts"]
    assert main(["triage", "--from", str(tmp_path / "kept"), "-o", "json"]) in (1, 3)
    report = json.loads(capsys.readouterr().out)
    assert ("keepalive-stale", "router-0") in names(report)


def test_two_saved_probes(probe: Run, tmp_path: Path) -> None:
    words = (*MANY, "--repeat", "6", "--kind", "one", *QUICK)
    with Faulty(Manners(think_s=0.05)) as server:
        probe("--router", server.url, *words, "--save", tmp_path / "a", "--note", "as it was")
        probe("--router", server.url, *MANY, *QUICK, "--save", tmp_path / "short")
    with Faulty(Manners(think_s=0.3)) as server:
        probe("--router", server.url, *words, "--save", tmp_path / "slow")
    with Faulty(Manners(fail_above=1, think_s=0.05)) as server:
        probe("--router", server.url, *words, "--save", tmp_path / "failing")
    same = probe("--compare", tmp_path / "a", tmp_path / "a")
    assert (probe.status, same["verdict"]) == (0, "same")
    assert "cannot be told apart" in same["sentence"]
    slow = probe("--compare", tmp_path / "a", tmp_path / "slow")
    assert (probe.status, slow["verdict"]) == (1, "worse")
    assert "first token at router-0 (many)" in slow["sentence"]
    failing = probe("--compare", tmp_path / "a", tmp_path / "failing")
    assert (probe.status, failing["verdict"]) == (2, "worse")
    probe("--compare", tmp_path / "a", tmp_path / "slow", json_too=False)
    assert "B takes longer" in probe.out and "A: command line" in probe.out and ", as it was" in probe.out
    probe("--compare", tmp_path / "a", tmp_path / "short", json_too=False)
    assert "too few to tell from the moment's weather" in " ".join(probe.out.split())
    probe("--compare", tmp_path / "a", tmp_path / "none")
    assert probe.status == 64


def test_where_nothing_can_be_saved_is_told_before_anything_is_sent(probe: Run, tmp_path: Path) -> None:
    with Faulty() as server:
        for place in (tmp_path, tmp_path / "none" / "file"):
            probe("--router", server.url, *QUICK, "--save", place)
            assert probe.status == 64
        assert (server.served, server.connections) == ([], 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_full_disk_does_not_take_the_report_away(probe: Run, tmp_path: Path) -> None:
    (tmp_path / "kept.part").symlink_to("/dev/full")
    with Faulty() as server:
        report = probe("--router", server.url, "--kind", "one", *QUICK, "--save", tmp_path / "kept")
    assert (probe.status, report["status"]) == (0, "ok")
    assert "not saved" in probe.err and "No space left" in probe.err


def test_ctrl_c_keeps_what_there_is(tmp_path: Path) -> None:
    with Faulty(Manners(hang_nth=2)) as server:
        words = [
            "--router",
            server.url,
            *QUICK,
            "--hang-after",
            "20",
            "--gap",
            "0.1",
            "-o",
            "json",
            "--save",
            str(tmp_path / "kept"),
        ]
        command = [sys.executable, "-m", "pdctl", "probe", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
            while len(server.served) < 2 or server.connections < 4:
                time.sleep(0.05)
            time.sleep(1.0)  # the used connection's request hangs by now
            os.kill(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=30)
    report = json.loads(out)
    assert process.returncode == 130
    assert b"interrupted after" in err and b"1 requests under way were cut" in err
    assert len(report["probe"]["attempts"]) == 3
    assert report["status"] == "unknown"
    assert len(json.loads((tmp_path / "kept").read_text())["attempts"]) == 3


def test_rows_for_programs(probe: Run) -> None:
    with Faulty() as server:
        probe("--router", server.url, *QUICK, "-o", "jsonl", json_too=False)
        rows = [json.loads(line) for line in probe.out.splitlines()]
        probe("--router", server.url, *QUICK, "-o", "short", json_too=False)
    assert [row["kind"] for row in rows[:4]] == ["attempt"] * 4
    assert [row["request"] for row in rows[:4]] == ["health", "generate", "generate", "generate"]
    assert rows[-1]["kind"] == "summary"
    assert probe.out.startswith("OK command line: nothing wrong seen")


# --- a real proxy -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(NGINX is None, reason=MISSING)
def test_nginx_that_closes_idle_connections_sooner_than_its_server(probe: Run, tmp_path: Path) -> None:
    with Faulty() as server, nginx(tmp_path, server.url, "keepalive_timeout 1;") as url:
        words = (
            "--router",
            server.url,
            "--proxy",
            url,
            "--load",
            "--kind",
            "idle",
            "--gap",
            "0.5",
            "--gap",
            "3",
            *QUICK,
        )
        report = probe(*words)
    assert names(report) == [("keepalive-stale", "proxy-0")]
    assert cell(report, "router-0", "idle")["fate"] == "good"
    shut = cell(report, "proxy-0", "idle")
    assert (shut["fate"], shut["idle_ok_s"], shut["idle_fails_s"]) == ("closed", 0.5, 3)
    assert 0.5 < shut["closed_after_s"] < 2.9


@pytest.mark.skipif(NGINX is None, reason=MISSING)
def test_nginx_with_tls_and_a_private_ca_as_clients_reach_it(probe: Run, demo: Demo, tmp_path: Path) -> None:
    made_tls(tmp_path)
    with nginx(tmp_path, str(demo.cluster.routers[0].url), tls=True) as url:
        trusted = in_front(demo, url, tmp_path, ca_file=str(tmp_path / "ca.pem"))
        report = probe("-c", trusted, "proxy-0", *ROUNDS, "--tokens", "8", *QUICK, "--hang-after", "20")
        assert (probe.status, cell(report, "proxy-0", "rounds")["fate"]) == (0, "good")
        (row,) = report["probe"]["paths"]
        assert (row["opened"], row["reused"]) == (1 + 3, 3 * 3)
        report = probe("-c", in_front(demo, url, tmp_path), "proxy-0", *QUICK)
    assert "tls, certificate not accepted" in report["findings"][0]["summary"]
    assert probe.status == 3


@pytest.mark.parametrize("holds", [True, False])
def test_a_proxy_that_holds_streams_back(probe: Run, holds: bool) -> None:
    with Faulty(Manners(piece_s=0.15)) as server, Faulty(Manners(hold_streams=holds), upstream=server.url) as proxy:
        report = probe("--router", server.url, "--proxy", proxy.url, *MANY, *QUICK)
    assert probe.status == 0
    assert any("proxy-0 holds streams back" in r for r in report["probe"]["remarks"]) is holds
