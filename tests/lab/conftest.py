"""A lab of three hosts, shared by every test here: h1 runs a prefill engine, h2 a decode engine, h3 none."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from labkit import ROOT, UNITS, Run, wait_answers
from machines import HERE, Lab, Machine, why_not

from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.reach.hosts import Hosts


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One lab for all of them, where tests are spread over processes by group."""
    for item in items:
        if Path(item.fspath).parent == HERE:
            item.add_marker(pytest.mark.lab)
            if config.pluginmanager.hasplugin("xdist"):
                item.add_marker(pytest.mark.xdist_group("lab"))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    why = why_not()
    if why is not None:
        pytest.skip(f"no lab: {why}")
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as folder:
        bound = [ROOT, Path(sys.prefix), Path(sys.base_prefix)]
        banner = Path(folder) / "banner"
        banner.write_text("*** Authorised use only. ***\n" * 10)
        settings = {"h3": f"Banner {banner}"}
        with Lab(Path(folder) / "lab", UNITS, [*bound, banner], settings) as made:
            yield made


@pytest.fixture(autouse=True)
def at_home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> None:
    """~/.ssh is the lab's, so that whatever pdctl reads there reaches its hosts."""
    if "lab" in request.fixturenames:
        made: Lab = request.getfixturevalue("lab")
        monkeypatch.setenv("HOME", str(made.home))
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")


@pytest.fixture
def cluster() -> Cluster:
    """The lab as an inventory: engines that listen on 127.0.0.1 of their hosts."""
    return Cluster(
        "lab",
        (
            Instance("prefill-0", Role.PREFILL, url="http://127.0.0.1:30000", host="h1", unit="pd-prefill.service"),
            Instance("decode-0", Role.DECODE, url="http://127.0.0.1:30001", host="h2", unit="pd-decode.service"),
        ),
        tuple(Host(name, name) for name in UNITS),
    )


@pytest.fixture
def hosts(lab: Lab, cluster: Cluster) -> Iterator[Hosts]:
    with Hosts(cluster) as made:
        yield made


@pytest.fixture
def run(hosts: Hosts) -> Run:
    def asked(host: str, *argv: str, timeout: float = 15.0, **more: object) -> Answer:
        now = time.monotonic()
        ask = replace(CommandAsk(f"host:{host}", Fact.FILE, host, argv), timeout=timeout, **more)  # type: ignore[arg-type]
        return hosts.run(ask, started=now, deadline=now + 120)

    return asked


@pytest.fixture
def engines(lab: Lab) -> Lab:
    """The lab, with both engines answering and no restart by systemd on their record, whatever ran before."""
    for host, unit, port in (("h1", "pd-prefill", 30000), ("h2", "pd-decode", 30001)):
        with_a_clean_record(lab[host], unit)
        wait_answers(lab[host], port)
    return lab


def with_a_clean_record(machine: Machine, unit: str) -> None:
    """A test that kills an engine leaves NRestarts behind, which is ``unit-flapping`` to every test after it."""
    if machine.run("systemctl", "show", "-p", "NRestarts", "--value", unit, check=False).strip() not in ("", "0"):
        for words in (("stop", unit), ("reset-failed", unit), ("start", unit)):
            machine.run("systemctl", *words, check=False)
