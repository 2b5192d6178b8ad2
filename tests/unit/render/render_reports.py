"""Hand-made reports that the golden files show."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pdctl.model.finding import (
    Confidence,
    Evidence,
    Finding,
    InstanceReport,
    Report,
    RuledOut,
    Severity,
    Unchecked,
)
from pdctl.model.rank import Rank

START = datetime(2026, 11, 29, 20, 37, 31, tzinfo=UTC)
END = START + timedelta(seconds=8)
LOADS = "GET http://127.0.0.1:30000/v1/loads?include=core,disagg,queues"
METRICS = "GET http://127.0.0.1:30000/metrics"
PREFILL = InstanceReport("prefill-0", "prefill", "0.5.19", True)
DECODE = InstanceReport("decode-0", "decode", "0.5.19", True)
ROUTER = InstanceReport("router-0", "router", None, False, "connect-refused: nothing listens on port 29000")

PINNED = Finding(
    "request-pinned",
    Severity.CRITICAL,
    Confidence.CERTAIN,
    "prefill-0",
    "2 requests sit in prefill-0's inflight queue and will not leave by themselves",
    Rank(dp=2),
    START - timedelta(seconds=300),
    (
        Evidence("inflight 2 in each of 9 live counts, none older than 0.1 s", END, "prefill-0", LOADS, {"min": 2}),
        Evidence("HTTP requests under way: 2, never fewer", END, "prefill-0", METRICS, {"http_active": 2.0}),
        Evidence("no transfer finished in the window: 419 from first to last", END, "prefill-0", METRICS),
        Evidence(
            "last line before: Prefill batch of 1 new sequence",
            START,
            "prefill-0",
            "journalctl -u sglang-prefill --since '2026-11-29 20:32:00' --no-pager -o short-iso",
        ),
    ),
    ("decode-0 logged no failed transfer",),
    ("which transfer worker or peer rank holds them: no stacks were taken",),
    ("pdctl stacks prefill-0 decode-0", "pdctl explain request-pinned"),
)
WATCHDOG = Finding(
    "watchdog-silent",
    Severity.WARNING,
    Confidence.LIKELY,
    "decode-0",
    "the waiting timeout of 300 s has passed and nothing fired",
    limits=("how long the request really waits: its start is not in the window",),
    next=("pdctl logs decode-0", "pdctl explain watchdog-silent"),
)
STALE = Finding(
    "gauge-stale",
    Severity.UNKNOWN,
    Confidence.CERTAIN,
    "decode-0",
    "the transfer gauge reads 0 while live counts say 2: not evidence in either direction",
    next=("pdctl sample decode-0",),
)
RESTARTED = Finding(
    "engine-restarted",
    Severity.INFO,
    Confidence.CERTAIN,
    "decode-0",
    "decode-0 restarted at about 20:37:35 UTC; rates do not cross it",
    next=("pdctl changes --since 1h",),
)
UNREADABLE = Finding(
    "endpoint-unreadable",
    Severity.UNKNOWN,
    Confidence.CERTAIN,
    "prefill-0",
    "metrics-disabled: /metrics answers 404, so nothing is known of its queues",
    evidence=(Evidence("404 Not Found in each of 9 asks", END, "prefill-0", METRICS, {"status": 404}),),
    next=("pdctl explain endpoint-unreadable",),
)
STARVED = Finding(
    "decode-starved",
    Severity.WARNING,
    Confidence.CERTAIN,
    "decode-0",
    "prefill waits because decode-0's KV memory is full: 137 requests wait for it, 14 run, tokens come out",
    evidence=(Evidence("prealloc 232 falling to 137, 1.5 a second", END, "decode-0", LOADS),),
    next=("pdctl sample decode-0",),
)
NO_STACKS = tuple(
    Unchecked(what, subject, "no stacks were taken")
    for what in ("device-hang", "ranks-diverged", "stacks-partial")
    for subject in ("prefill-0", "decode-0")
)
NO_HOST = Unchecked("script-drift", "", "the inventory names no host")
ALIVE = (
    RuledOut("scheduler-stopped", "prefill-0", "the timestamp of its live counts advances"),
    RuledOut("draining", "prefill-0", "inflight never fell"),
)


def report(*findings: Finding, **more: object) -> Report:
    """A report over 8 s and 9 samples on a cluster of three, unless told otherwise."""
    values: dict[str, object] = {"instances": (PREFILL, DECODE), **more}
    return Report("prod-a", START, END, 9, tuple(findings), **values)  # type: ignore[arg-type]


HOSTILE_TEXT = "a\x1b[2Jb\u202ec\x9bd\ne\rf\x00g\udc80h\u200bi"
HOSTILE_SEEN = "a\\x1b[2Jb\\u202ec\\x9bd\\ne\\rf\\x00g\\udc80h\\u200bi"
SECRET = "sk-proj-1234567890abcdef"
H = f"{HOSTILE_TEXT} {SECRET}"
HOSTILE = Report(
    H,
    START,
    END,
    9,
    (
        Finding(
            "request-pinned", Severity.CRITICAL, Confidence.LIKELY, H, H, Rank(dp=1), START,
            (Evidence(H, END, H, H, {H: H, "api_key": "plain words", "list": [H, 1, None], "bytes": b"\x1b\xff"}),),
            (H,), (H,), (H, f"pdctl stacks '{H}'"),
        ),
        Finding("no-such-name", Severity.WARNING, Confidence.POSSIBLE, H, H, limits=(H,), next=(H,)),
        Finding("half-open", Severity.WARNING, Confidence.POSSIBLE, H, H, muted={"until": H, "note": H}),
    ),
    (Unchecked(H, H, H),),
    (InstanceReport(H, H, H, False, H, {"detail": H, "name": "shadow"}),),
    (RuledOut(H, H, H),),
)  # fmt: skip

MANY = report(
    UNREADABLE,
    unchecked=tuple(Unchecked("request-pinned", f"decode-{n}", "too few samples") for n in range(12)),
    instances=(
        *(InstanceReport(f"prefill-{n}", "prefill", "0.5.19", n != 0, None if n else "HTTP 404") for n in range(4)),
        *(InstanceReport(f"decode-{n}", "decode", "0.5.19" if n < 8 else "0.5.20", True) for n in range(12)),
    ),
)
FULL = report(
    STALE, PINNED, WATCHDOG, unchecked=(*NO_STACKS, NO_HOST), ruled_out=ALIVE, instances=(PREFILL, DECODE, ROUTER)
)
GOLDEN: dict[str, Report] = {
    "pinned": FULL,
    "starved": report(STARVED, RESTARTED, unchecked=(NO_HOST,)),
    "unreadable": report(UNREADABLE, unchecked=NO_STACKS, instances=(PREFILL, ROUTER)),
    "ok": report(unchecked=(*NO_STACKS, NO_HOST), ruled_out=ALIVE),
    "ok-restarted": report(RESTARTED),
    "nothing": Report("prod-a", START, START, 0),
    "muted": report(
        Finding(
            "half-open", Severity.WARNING, Confidence.LIKELY, "router-0", "one end only",
            muted={"until": "2026-12-01T00:00:00Z", "note": "INC-42"},
        )
    ),
    "muted-pin": report(replace(PINNED, muted={"until": "2026-12-01T00:00:00Z"})),
    "many": MANY,
    "two": report(
        PINNED,
        Finding(
            "request-pinned", Severity.CRITICAL, Confidence.POSSIBLE, "prefill-1", "1 request may be stuck",
            limits=("whether it is the echo of a health check",), next=("pdctl pinned --for 60s prefill-1",),
        ),
    ),
    "hostile": HOSTILE,
}  # fmt: skip
