"""Whatever bytes a host answers with, a reader reads them or says why not; nothing else comes out of it."""
# ruff: noqa: E501 - fragments as they are

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from pdctl.facts import (
    checkout,
    cmdline,
    environ,
    gpu,
    limits,
    nstat,
    probe,
    processes,
    script,
    sockets,
    stacks,
    unit,
    watched,
)
from pdctl.facts.base import Unreadable
from pdctl.model.answer import Fact
from tests.unit.facts.host_answers import answer

READERS = {
    Fact.PROCESSES: processes, Fact.CMDLINE: cmdline, Fact.ENVIRON: environ, Fact.UNIT: unit, Fact.LIMITS: limits,
    Fact.SOCKETS: sockets, Fact.NSTAT: nstat, Fact.STACKS: stacks, Fact.GPU: gpu, Fact.SCRIPT: script,
    Fact.FILE: watched, Fact.GIT: checkout, Fact.PROBE: probe,
}  # fmt: skip
FRAGMENTS = [
    b"\x1b[31m", b"\xff\xfe", b"\0", b"\r\n", b"\n", b" ", b"{", b"}", b"[", b"]", b'"', b"'", b"$(", b"${", b"`", b"<<EOF\n",
    b"\\", b"=", b"(", b")", b"&&", b"|", b"if ", b"; then ", b"fi", b"for x in ", b"done", b"A+=(", b"[{", b'"pid": 1',
    b'"title": null', b"null", b"1e999", b"-1", b"99999999999999999999999", b"LISTEN 1 2 ", b"ESTAB 0 0 ", b"0.0.0.0:1 ",
    b"[::1]:9 ", b"*:* ", b"users:((", b'"x",pid=9,fd=9', b"sl local_address", b" 0: 0100007F:1F90 0100007F:1F90 01 ",
    b"Process 1: x\n", b'Thread 1 (idle): "M"\n', b"    f (a:1)\n", b"Error: ", b"Max open files 1 2 files\n", b"fd_count 3\n",
    b"index, utilization.gpu [%]\n", b"0, 1 %\n", b"NRestarts=x\n", b"ActiveEnterTimestamp=Thu 9999-99-99 99:99:99 UTC\n",
    b"@99999999999999999999", b"TcpExt: a b\n", b"TcpExt: 1\n", b"python -m sglang.launch_server ", b"--port ", b"--x=",
    "测试 ".encode(), "\u202e".encode(),
    "²".encode(), b" +99:99\n",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(READERS)),
    st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=4), max_size=25).map(b"".join),
    st.sampled_from(["", "ss -tanp", "ss state close-wait", "cat"]),
)
def test_a_reader_reads_or_says_why_not(fact: Fact, body: bytes, ask: str) -> None:
    asked = answer(fact, body, ask, path="/srv/x.sh", mtime="2026-13-99", pid="x", title=3)
    with contextlib.suppress(Unreadable):
        READERS[fact].read(asked, None)
