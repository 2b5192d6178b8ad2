"""Whose a socket is, on a host that holds many instances: looked up, never searched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scene import Scene

from pdctl.checks.accept_queue import listeners
from pdctl.checks.connection_hang import unread_for_long
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.host import SocketRow, Sockets

MANY = 30
NAMES = [f"prefill-{n}" for n in range(MANY)]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names that were searched for through the whole inventory."""
    asked: list[str] = []

    def counted(cluster: Cluster, name: str) -> Instance | None:
        asked.append(name)
        return next((i for i in cluster.instances if i.name == name), None)

    monkeypatch.setattr(Cluster, "instance", counted)
    yield asked


def test_no_socket_makes_a_search_through_the_inventory(searches: list[str]) -> None:
    engines = tuple(Instance(x, Role.PREFILL, f"http://h1:{30000 + n}", host="h1") for n, x in enumerate(NAMES))
    cluster = Cluster("test", engines, (Host("h1"),))
    scene = Scene(None)
    rows = [SocketRow("LISTEN", 0, 128, "0.0.0.0", 30000 + n, "0.0.0.0", None) for n in range(MANY)]
    rows += [SocketRow("ESTAB", 7, 0, "10.0.0.1", 30000 + n, "10.0.0.9", 5000) for n in range(MANY)]
    for t in (0.0, 30.0):
        scene.add(t, "host:h1", Fact.SOCKETS, Sockets(tuple(rows)))
    window = scene.window()
    assert [(looks.owner, len(looks.seen)) for looks in listeners(window, cluster)] == [(x, 2) for x in NAMES]
    assert [e.values["owner"] for e in unread_for_long(window, cluster)] == NAMES
    assert searches == []
