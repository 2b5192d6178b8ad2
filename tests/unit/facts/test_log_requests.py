"""Single requests in an engine's log, and vLLM's stats."""

from __future__ import annotations

import pytest

from pdctl.model.cluster import Role
from pdctl.model.events import Kind
from pdctl.model.rank import Rank
from tests.unit.facts.log_answers import event_of

P = "[2026-11-12 03:14:00] "


@pytest.mark.parametrize(
    ("line", "words", "status"),
    [
        ('INFO:     192.0.2.40:41000 - "GET /health HTTP/1.1" 200 OK',
         {"client": "192.0.2.40:41000", "method": "GET", "path": "/health", "status": "200"}, 200),
        ('INFO:     127.0.0.1:53826 - "GET /v1/loads?include=core,disagg HTTP/1.1" 404 Not Found',
         {"client": "127.0.0.1:53826", "method": "GET", "path": "/v1/loads", "query": "include=core,disagg",
          "status": "404"}, 404),
        ('INFO:     2001:db8::1:5 - "POST /a" 200 "b HTTP/1.1" 503 Service Unavailable',
         {"client": "2001:db8::1:5", "method": "POST", "path": '/a" 200 "b', "status": "503"}, 503),
    ],
)  # fmt: skip
def test_an_access(line: str, words: dict[str, str], status: int) -> None:
    for prefix in (P, "", "(APIServer pid=851) "):
        event = event_of(prefix + line)
        assert (event.kind, dict(event.words), dict(event.numbers)) == (Kind.HTTP_ACCESS, words, {"status": status})


@pytest.mark.parametrize(
    ("line", "kind", "words", "numbers"),
    [
        ("Receive: obj=GenerateReqInput(rid='7ebf', text='rid=wrong', bootstrap_room=77)", Kind.REQUEST_RECEIVED,
         {"rid": "7ebf", "room": "77"}, {}),
        ("Finish: obj=GenerateReqInput(rid='7ebf'), out={'meta_info': {'id': '7ebf', 'e2e_latency': 12.25}}",
         Kind.REQUEST_FINISHED, {"rid": "7ebf"}, {"latency_s": 12.25}),
        ('{"timestamp": "2026-11-12T03:14:00.1", "event": "request.received", "rid": "7ebf", "obj": {}}',
         Kind.REQUEST_RECEIVED, {"rid": "7ebf"}, {}),
        ('{"timestamp": "2026-11-12T03:14:00.1", "event": "request.finished", "rid": "7ebf", "out": {"meta_info": '
         '{"e2e_latency": 3.5}}}', Kind.REQUEST_FINISHED, {"rid": "7ebf"}, {"latency_s": 3.5}),
        ('{"timestamp": "2026-11-12T03:14:00.1", "event": "scheduler.status", "rank": 0}', Kind.OTHER, {}, {}),
        ("Req Time Stats(rid=7ebf, bootstrap_room=77, input len=512, output len=9, type=decode): "
         "bootstrap_duration=0.5s, queue_duration=12.50ms", Kind.REQUEST_FINISHED,
         {"rid": "7ebf", "room": "77", "source": "time-stats"},
         {"input_len": 512, "output_len": 9, "bootstrap_duration_s": 0.5, "queue_duration_s": 0.0125}),
        ("ReqTimeStats(rid=7ebf, bootstrap_room=77, input_len=512, cached_input_len=8, output_len=1, attempts=2, "
         "type=prefill): bootstrap_duration=10.00ms, queue_duration=0.00ms, forward_duration=250.00ms, "
         "entry_time=1794453247.250, transfer_speed=1.50 GB/s, transfer_total=64.00 MB", Kind.REQUEST_FINISHED,
         {"rid": "7ebf", "room": "77", "source": "time-stats"},
         {"input_len": 512, "cached_input_len": 8, "output_len": 1, "attempts": 2, "bootstrap_duration_s": 0.01,
          "queue_duration_s": 0, "forward_duration_s": 0.25, "transfer_speed": 1.5, "transfer_total": 64}),
        ("[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='1db6'",
         Kind.DISCONNECTED, {"rid": "1db6"}, {"type": 1}),
        ("Cache not flushed because there are pending requests. #queue-req: 3, #running-req: 2",
         Kind.CACHE_NOT_FLUSHED, {}, {"queue": 3, "running": 2}),
    ],
)  # fmt: skip
def test_request_records(line: str, kind: Kind, words: dict[str, str], numbers: dict[str, float]) -> None:
    event = event_of(P + line)
    assert (event.kind, dict(event.words), dict(event.numbers)) == (kind, words, numbers)


def test_vllm_stats() -> None:
    event = event_of(
        "(APIServer pid=851) INFO 11-12 03:14:16 [loggers.py:257] Engine 003: Avg prompt throughput: 0.5 tokens/s, Avg "
        "generation throughput: 5.4 tokens/s, Running: 1 reqs, Waiting: 14 reqs, GPU KV cache usage: 76.5%, "
        "Prefix cache hit rate: 92.0%, Secret sauce: 3",
        Role.DECODE,
    )
    assert (event.kind, event.rank) == (Kind.VLLM_STATS, Rank(dp=3))
    assert dict(event.numbers) == {
        "prompt_throughput": 0.5, "throughput": 5.4, "running": 1, "queue": 14,
        "token_usage": pytest.approx(0.765), "prefix_hit_rate": pytest.approx(0.92),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("(EngineCore_DP2 pid=603) INFO 11-12 03:14:17 [mooncake_connector.py:1910] Delaying free of 181 blocks for "
         "request chatcmpl-61aa", Kind.VLLM_DELAYED_FREE, {"rid": "chatcmpl-61aa"}),
        ("(EngineCore_DP2 pid=603) ERROR 11-12 03:14:17 [core.py:710] EngineCore encountered a fatal error.",
         Kind.CRASH, {}),
        ("(APIServer pid=851) INFO:     Application startup complete.", Kind.READY, {}),
    ],
)  # fmt: skip
def test_other_vllm_records(line: str, kind: Kind, words: dict[str, str]) -> None:
    event = event_of(line)
    assert (event.kind, dict(event.words)) == (kind, words)
    assert event.rank == (Rank(dp=2) if "DP2" in line else Rank())
