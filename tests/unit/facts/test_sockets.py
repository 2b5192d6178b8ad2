"""Socket listings of ss in every form it prints, and of /proc/net/tcp."""
# ruff: noqa: E501 - listings stand here as they are printed

from __future__ import annotations

import pytest

from pdctl.facts import sockets
from pdctl.facts.base import Unreadable
from pdctl.model.answer import Fact
from pdctl.model.host import SocketRow, Sockets
from tests.unit.facts.host_answers import answer


def read(body: str, ask: str = "ss -tanp") -> Sockets:
    return sockets.read(answer(Fact.SOCKETS, body, ask), None)


HEADED = """State  Recv-Q Send-Q Local Address:Port  Peer Address:Port  Process
LISTEN 2049   2048   0.0.0.0:30000      0.0.0.0:*          users:(("python3",pid=40211,fd=41))
ESTAB  0      5      192.0.2.31:50100   192.0.2.11:30000   users:(("sglang::router",pid=3310,fd=40),("x",pid=1,fd=2)) timer:(keepalive,30sec,0)
"""


def test_with_header_owners_and_timers() -> None:
    listening, open_ = read(HEADED).rows
    assert listening == SocketRow(
        "LISTEN", 2049, 2048, "0.0.0.0", 30000, "0.0.0.0", None, process="python3", pid=40211, fd=41
    )
    assert (open_.process, open_.pid, open_.fd, open_.timer) == ("sglang::router", 3310, 40, "keepalive,30sec,0")
    assert (open_.recv_q, open_.send_q, open_.peer, open_.peer_port) == (0, 5, "192.0.2.11", 30000)
    assert read(HEADED).owners


MULTI = """ESTAB 0 0 127.0.0.1:36233 127.0.0.1:35020 users:(("sglang::schedul",pid=13375,fd=108)) ino:289060 sk:47 cgroup:/ <->
\t ts sack bbr wscale:10,10 rto:204 rtt:0.036/0.047 lastsnd:386556 lastrcv:40032 lastack:40032 unacked:3 rcv_space:65483
TIME-WAIT 0 0 127.0.0.1:32850 127.0.0.1:30100 timer:(timewait,,0) ino:0 sk:14b5
\t \t
"""


def test_information_lines_belong_to_the_row_before_them() -> None:
    first, second = read(MULTI, "ss -tanpieoH").rows
    assert (first.last_send_ms, first.last_recv_ms, first.unacked, first.pid) == (386556, 40032, 3, 13375)
    assert (second.state, second.timer, second.pid, second.last_recv_ms) == ("TIME-WAIT", "timewait,,0", None, None)


@pytest.mark.parametrize(
    ("written", "address", "port"),
    [
        ("[::1]:8000", "::1", 8000),
        ("[2001:db8::1%eth0]:8000", "2001:db8::1", 8000),
        ("[::ffff:192.0.2.7]:8000", "192.0.2.7", 8000),
        ("192.0.2.7%bond0:8000", "192.0.2.7", 8000),
        ("*:8000", "*", 8000),
        ("[::]:8000", "::", 8000),
        (":::8000", "::", 8000),
        ("::ffff:192.0.2.7:8000", "192.0.2.7", 8000),
        ("192.0.2.7:http", "192.0.2.7", 80),
    ],
)
def test_addresses(written: str, address: str, port: int) -> None:
    (row,) = read(f"ESTAB 0 0 {written} 192.0.2.9:*\n").rows
    assert (row.local, row.local_port, row.peer_port) == (address, port, None)


def test_other_columns_families_and_old_owners() -> None:
    netid = "Netid State Recv-Q Send-Q Local Address:Port Peer Address:Port\ntcp ESTAB 1 0 192.0.2.1:5 192.0.2.2:6\nudp UNCONN 0 0 0.0.0.0:68 0.0.0.0:*\n"
    (row,) = read(netid, "ss -an").rows
    assert (row.recv_q, row.local_port) == (1, 5)
    filtered = "Recv-Q Send-Q Local Address:Port Peer Address:Port\n7 0 192.0.2.1:5 192.0.2.2:6\n"
    (only,) = read(filtered, "ss -tn state close-wait").rows
    assert (only.state, only.recv_q) == ("CLOSE-WAIT", 7)
    (old,) = read('ESTAB 0 0 192.0.2.1:5 192.0.2.2:6 users:(("sshd",812,3))\n').rows
    assert (old.process, old.pid, old.fd) == ("sshd", 812, 3)


def test_what_a_listing_can_hold() -> None:
    only = read("LISTEN 0 128 0.0.0.0:1 0.0.0.0:*\n", "ss -tlnp")
    assert (only.listeners, only.connections) == (True, False)
    none = read("ESTAB 0 0 192.0.2.1:5 192.0.2.2:6\n", "ss -tnp")
    assert (none.listeners, none.connections) == (False, True)
    both = read("ESTAB 0 0 192.0.2.1:5 192.0.2.2:6\n", "ss -tanpieoH")
    assert (both.listeners, both.connections, both.owners) == (True, True, False)


def test_a_listing_without_sockets_is_an_answer_and_other_text_is_none() -> None:
    assert read("").rows == ()
    assert read("State Recv-Q Send-Q Local Address:Port Peer Address:Port\n").rows == ()
    with pytest.raises(Unreadable):
        read("bash: ss: command not found\n")
    with pytest.raises(Unreadable):
        sockets.read(answer(Fact.SOCKETS, None), None)


def test_a_row_cut_short_and_hostile_names_do_not_upset_the_rest() -> None:
    body = 'ESTAB 0 0 192.0.2.1:5 192.0.2.2:6 users:(("a\\"),(\\"b\x1b[31m",pid=9,fd=1))\nESTAB 0 0 192.0.2.1\nESTAB x y z w v\n'
    (row,) = read(body).rows
    assert row.pid == 9


PROC = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:7530 00000000:0000 0A 00000000:00000005 00:00000000 00000000     0        0 99 1 0000000043387611 100 0 0 10 0
   1: 0B0200C0:7530 1F0200C0:CB20 08 00000010:00000001 02:000012F6 00000000     0        0 0 3 0000000067bd184f
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0
   1: 0000000000000000FFFF00000B0200C0:1F40 0000000000000000FFFF00001F0200C0:CB21 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0
"""


def test_the_kernels_own_listing() -> None:
    value = read(PROC, "cat /proc/net/tcp /proc/net/tcp6")
    listening, waiting, six, mapped = value.rows
    assert listening == SocketRow("LISTEN", 5, 0, "0.0.0.0", 30000, "0.0.0.0", None)
    assert waiting == SocketRow("CLOSE-WAIT", 1, 16, "192.0.2.11", 30000, "192.0.2.31", 52000, timer="keepalive")
    assert (six.local, six.local_port) == ("::1", 8000)
    assert (mapped.local, mapped.peer, mapped.peer_port) == ("192.0.2.11", "192.0.2.31", 52001)
    assert not value.owners


def test_fifty_thousand_rows_are_all_there() -> None:
    body = "".join(f"ESTAB 0 0 192.0.2.11:30000 192.0.2.31:{1024 + i}\n" for i in range(50_000))
    rows = read(body).rows
    assert len(rows) == 50_000
    assert rows[-1].peer_port == 51_023
