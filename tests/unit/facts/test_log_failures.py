"""Failure lines: what they say of the request, of the peer, of the state it failed in."""

from __future__ import annotations

import pytest

from pdctl.model.events import Kind
from pdctl.model.rank import Rank
from tests.unit.facts.log_answers import event_of, log_of

P = "[2026-11-12 03:14:00 DP6 TP6 EP6] "
FAILED = (
    "for request rank=6 {q}.rid='0a1b' {q}.bootstrap_room=8360203925 with exception "
    "KVTransferError(bootstrap_room=8360203925): "
)


@pytest.mark.parametrize(
    ("start", "field", "kind"),
    [
        ("Prefill bootstrap failed", "req", Kind.BOOTSTRAP_FAILED),
        ("Prefill transfer failed", "req", Kind.TRANSFER_FAILED),
        ("Decode handshake failed", "decode_req.req", Kind.HANDSHAKE_FAILED),
        ("Decode transfer failed", "decode_req.req", Kind.DECODE_TRANSFER_FAILED),
    ],
)
@pytest.mark.parametrize(
    ("reason", "words", "timeout"),
    [
        ("Request 8360203925 timed out after 300.1s in KVPoll.Bootstrapping", {"state": "Bootstrapping"}, 300.1),
        ("Request 8360203925 timed out after 600.0s in KVPoll.WaitingForInput", {"state": "WaitingForInput"}, 600.0),
        ("Aborted by AbortReq.", {}, None),
        ("Failed due to an unknown reason from another rank", {}, None),
        ("Lost connection with prefill instance (bootstrap_addr: 192.0.2.11:8998)", {"peer": "192.0.2.11:8998"}, None),
        ("Decode instance could be dead, remote mooncake session 192.0.2.21:16917 is not alive",
         {"peer": "192.0.2.21:16917"}, None),
        ("Could not fetch prefill parallel info from bootstrap_addr: [2001:db8::1]:8998",
         {"peer": "[2001:db8::1]:8998"}, None),
    ],
)  # fmt: skip
def test_a_failed_request(
    start: str, field: str, kind: Kind, reason: str, words: dict[str, str], timeout: float | None
) -> None:
    event = event_of(f"{P}{start} {FAILED.format(q=field)}{reason}")
    assert (event.kind, event.rank) == (kind, Rank(dp=6, tp=6, ep=6))
    assert event.words == {"rid": "0a1b", "room": "8360203925", "reason": reason, **words}
    assert event.numbers == ({"rank": 6} if timeout is None else {"rank": 6, "timeout_s": timeout})


def test_a_failure_of_another_exception_or_of_none() -> None:
    start = "Decode transfer failed for request rank=0 decode_req.req.rid='a' decode_req.req.bootstrap_room=7"
    other = event_of(f"{P}{start} with exception TimeoutError: no answer")
    assert other.words["reason"] == "TimeoutError: no answer"
    oldest = event_of(P + "Decode transfer failed for request decode_req.req.rid='a' decode_req.req.bootstrap_room=7")
    assert (oldest.words, oldest.numbers) == ({"rid": "a", "room": "7"}, {})
    bare = event_of(P + "Prefill transfer failed for request rank=0 req.rid='a' req.bootstrap_room=7")
    assert bare.words == {"rid": "a", "room": "7"}


@pytest.mark.parametrize(
    ("line", "kind", "words", "numbers"),
    [
        ("Attempting to reconnect to 192.0.2.11:8998...", Kind.RECONNECT, {"peer": "192.0.2.11:8998"}, {}),
        ("Lost connection with prefill instance (bootstrap_addr: 192.0.2.11:8998), 17 requests affected",
         Kind.LOST_PREFILL, {"peer": "192.0.2.11:8998"}, {"affected": 17}),
        ("Could not fetch prefill parallel info from 192.0.2.11:8998 after 3 attempts", Kind.PREFILL_INFO_FAILED,
         {"peer": "192.0.2.11:8998"}, {"attempts": 3}),
        ("Error fetching prefill server info from bootstrap: HTTPConnectionPool(host='192.0.2.11')",
         Kind.PREFILL_INFO_FAILED, {"reason": "HTTPConnectionPool(host='192.0.2.11')"}, {}),
        ("Error fetching prefill parallel info from bootstrap: no route", Kind.PREFILL_INFO_FAILED,
         {"reason": "no route"}, {}),
        ("Prefill Failed to connect to bootstrap server: 503, busy", Kind.REGISTER_FAILED, {"reason": "503, busy"}, {}),
        ("Failed to get prefill server info: 503, starting", Kind.PREFILL_INFO_FAILED, {"reason": "503, starting"}, {}),
        ("Prefill register attempt 2/5 failed: [Errno 111] Connection refused", Kind.REGISTER_FAILED,
         {"reason": "[Errno 111] Connection refused"}, {"attempt": 2, "attempts": 5}),
        ("Prefill instance failed to register to bootstrap server after 5 retries", Kind.REGISTER_FAILED, {},
         {"attempts": 5}),
        ("Session 192.0.2.21:16917 failed.", Kind.SESSION_FAILED, {"peer": "192.0.2.21:16917"}, {}),
        ("Session 192.0.2.21:16917 recovered via probe; un-blacklisted", Kind.SESSION_RECOVERED,
         {"peer": "192.0.2.21:16917"}, {}),
        ("Transfer thread failed because of [Errno 5] I/O error. Prefill instance with bootstrap_port=8998 is dead.",
         Kind.TRANSFER_THREAD_FAILED, {"reason": "[Errno 5] I/O error"}, {}),
        ("NIXL transport error for room 4711: remote closed", Kind.TRANSFER_THREAD_FAILED,
         {"room": "4711", "reason": "remote closed"}, {}),
        ("Deferred KV release for room 4711 timed out after 30.0s without a full drain ack from prefill; releasing "
         "anyway.", Kind.DEFERRED_RELEASE_TIMEOUT, {"room": "4711"}, {"timeout_s": 30}),
        ("Context corruption detected: Request ab12 (bootstrap_room=5) received metadata from bootstrap_room=9. "
         "Metadata buffer index: 3.", Kind.METADATA_CORRUPT, {"rid": "ab12", "room": "5"}, {}),
        ("Metadata corruption detected - bootstrap_room mismatch", Kind.METADATA_CORRUPT, {}, {}),
        ("Some requests timed out when bootstrapping, which means prefill instances fail to receive the KV indices "
         "from the decode instance of this request.", Kind.TIMEOUT_HINT, {"state": "Bootstrapping"}, {}),
        ("Some requests fail to receive KV Cache transfer done signal after bootstrapping. If a greater",
         Kind.TIMEOUT_HINT, {"state": "WaitingForInput"}, {}),
    ],
)  # fmt: skip
def test_trouble_that_is_no_requests_own(
    line: str, kind: Kind, words: dict[str, str], numbers: dict[str, float]
) -> None:
    event = event_of(P + line)
    assert (event.kind, dict(event.words), dict(event.numbers)) == (kind, words, numbers)


def test_a_session_of_anything_else_is_no_event_of_ours() -> None:
    assert event_of(P + "Session pool resized").kind is Kind.OTHER


def test_a_failure_inside_another_servers_words_is_found_behind_them() -> None:
    line = FAILED.format(q="decode_req.req") + "Aborted by AbortReq."
    event = event_of(f"2026-11-12 03:14:00 ERROR engine: Decode transfer failed {line}")
    assert (event.kind, event.words["room"]) == (Kind.DECODE_TRANSFER_FAILED, "8360203925")


def test_thousands_of_failures_are_all_kept() -> None:
    line = f"{P}Decode transfer failed {FAILED.format(q='decode_req.req')}Aborted by AbortReq.\n"
    assert len(log_of(line * 30_000).events) == 30_000
