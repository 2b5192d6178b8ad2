"""Answers for tests of captures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Cluster, Host, Instance, KeySource, Role

START = datetime(2026, 3, 4, 5, 6, 7, 890000, tzinfo=UTC)
CLUSTER = Cluster(
    "prod-a",
    (
        Instance("prefill-0", Role.PREFILL, "http://10.0.0.1:30000", host="gpu-01", bootstrap_port=8998),
        Instance("decode-0", Role.DECODE, "http://10.0.0.2:30000", api_key=KeySource(env="ENGINE_KEY")),
        Instance("router-0", Role.ROUTER, "http://10.0.0.3:8000", "http://10.0.0.3:29000/metrics"),
    ),
    (Host("gpu-01", "ops@gpu-01"),),
)


def answer(
    t: float = 0.0, fact: Fact = Fact.METRICS, body: bytes | None = b"x 1\n", subject: str = "prefill-0", **more: object
) -> Answer:
    given = {key: more.pop(key) for key in ("ask", "status", "error", "detail", "content_type") if key in more}
    said: dict[str, object] = {"ask": f"GET http://10.0.0.1:30000/{fact}", "status": 200, **given}
    return Answer(subject, fact, t=t, at=START + timedelta(seconds=t), took=0.25, body=body, more=more, **said)  # type: ignore[arg-type]


# One of each kind: bodies of any bytes, none, empty; errors; hosts; several of one fact; further keys.
EVERY_KIND = (
    answer(0.1, content_type="text/plain; version=0.0.4"),
    answer(0.123456, Fact.SERVER_INFO, b'{"version":"0.5.19","disaggregation_mode":"prefill"}'),
    answer(0.2, Fact.METRICS, None, error=Why.READ_TIMEOUT, detail="no answer in 5 s", status=None),
    answer(0.2, Fact.METRICS, b"x 1\nx", error=Why.TRUNCATED, detail="body ended early"),
    answer(0.3, Fact.HEALTH, b"", subject="decode-0"),
    answer(1.0, Fact.LOG, b"caf\xe9 \xff\x00\r\n\x1b[31mred\x1b[0m \xe4\xb8\xad\n", ask="journalctl -u x", status=0),
    answer(1.0, Fact.SOCKETS, b"", subject="host:gpu-01", ask="ss -tanpieoH", status=0),
    answer(2.0, Fact.SCRIPT, b"#!/bin/sh\n", ask="cat", status=0, path="/srv/serve.sh", mtime="2026-03-01T00:00:00Z"),
    answer(2.0, Fact.SCRIPT, b"#!/bin/sh\n#\n", ask="cat", status=0, path="/srv/x.bak", mtime="2026-02-01T00:00:00Z"),
    answer(2.5, Fact.STACKS, b"Thread 1\n", ask="py-spy", status=1, error=Why.OTHER, pid=7, title="sglang::TP0"),
    answer(3.0, Fact.FILE, None, ask="stat", status=0, path="/etc/x", mtime="2026-03-01T00:00:00Z"),
    answer(90_061.5, Fact.LOADS, b'{"loads":[]}', subject="decode-0"),
)  # fmt: skip
