"""What each release calls the values pdctl reads: tables, and nothing else.

Sources: SGLang's metrics collectors of the releases named (``srt/metrics/collector.py``, from 0.5.10 on
``srt/observability/metrics_collector.py``), recorded pages of 0.5.6 to 0.5.23, vLLM's ``v1/metrics/loggers.py`` and
connector metrics, the routers' ``metrics.rs`` and pages. Where several names stand in one row, they never mean
different things on one page; the first one that the page holds is read.
"""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.model.engine import Gauge

# Engines write ``sglang:x``. sglang-router 0.2 to 0.3 republish it on /engine_metrics as ``sglang_x``.
SGLANG_PREFIXES = ("sglang:", "sglang_")
VLLM_PREFIXES = ("vllm:",)
SMG_PREFIXES = ("smg_",)  # sglang-router 0.3 and later, smg
SGL_ROUTER_PREFIXES = ("sgl_router_", "sgl_tokenizer_")  # sglang-router 0.1 and 0.2
ROUTER_PREFIXES = SMG_PREFIXES + SGL_ROUTER_PREFIXES

SGLANG: Mapping[Gauge, tuple[str, ...]] = {
    Gauge.RUNNING: ("num_running_reqs",),
    Gauge.QUEUE: ("num_queue_reqs",),
    # Renamed in 0.5.12.post1.
    Gauge.BOOTSTRAP: ("num_prefill_bootstrap_queue_reqs", "num_prefill_prealloc_queue_reqs"),
    # 0.4.6 to 0.5.1 registered it with the letter l missing, and their scheduler never set it.
    Gauge.INFLIGHT: ("num_prefill_inflight_queue_reqs", "num_prefill_infight_queue_reqs"),
    Gauge.PREALLOC: ("num_decode_prealloc_queue_reqs",),
    Gauge.TRANSFER: ("num_decode_transfer_queue_reqs",),
    Gauge.RETRACTED: ("num_retracted_reqs",),
    Gauge.PAUSED: ("num_paused_reqs",),
    Gauge.GRAMMAR: ("num_grammar_queue_reqs",),
    Gauge.DEFERRED_RELEASE: ("num_decode_deferred_kv_release_reqs",),
    Gauge.HOST_RECEIVE: ("num_decode_host_receive_queue_reqs",),
    Gauge.TOKEN_USAGE: ("token_usage",),
    Gauge.USED_TOKENS: ("num_used_tokens",),
    Gauge.MAX_TOKENS: ("max_total_num_tokens",),
    Gauge.KV_USED_TOKENS: ("kv_used_tokens",),
    Gauge.PENDING_PREALLOC_USAGE: ("pending_prealloc_token_usage",),
    Gauge.GEN_THROUGHPUT: ("gen_throughput",),
    Gauge.UTILIZATION: ("utilization",),
    Gauge.GENERATION_TOKENS: ("generation_tokens_total",),
    Gauge.PROMPT_TOKENS: ("prompt_tokens_total",),
    Gauge.REQUESTS: ("num_requests_total",),
    Gauge.ABORTED: ("num_aborted_requests_total",),
    Gauge.BOOTSTRAP_FAILED: ("num_bootstrap_failed_reqs_total",),
    Gauge.TRANSFER_FAILED: ("num_transfer_failed_reqs_total",),
    Gauge.RETRIES: ("num_prefill_retries_total",),
    Gauge.REALTIME_TOKENS: ("realtime_tokens_total",),  # by mode: prefill_compute, prefill_cache, decode
    Gauge.GRAPH_PASSES: ("cuda_graph_passes_total",),  # by mode; counts passes without a graph too
    # A histogram from 0.5.10.post1 on. Before that a gauge of the last transfer, which counts nothing: not read.
    Gauge.TRANSFERS_DONE: ("kv_transfer_latency_ms_count",),
    Gauge.TRANSFER_MS: ("kv_transfer_latency_ms_sum",),
    Gauge.IDLE_SECONDS: ("scheduler_idle_seconds_total",),
    Gauge.SCHEDULER_CPU_SECONDS: ("scheduler_process_cpu_seconds_total",),
    Gauge.STAGE_SECONDS: ("scheduler_stage_seconds_total",),
}
SGLANG_HTTP_ACTIVE = "http_requests_active"
SGLANG_HTTP_SEEN = "http_requests_total"
STAGE_LABEL = "category"
# A histogram of the seconds a request spent in each stage of its way, by the scheduler, from 0.5.3 on (read in the
# sources of 0.5.3, 0.5.6, 0.5.9, 0.5.10.post1, 0.5.15, 0.5.19, 0.5.23; seen on real pages of 0.5.6 and later).
SGLANG_STAGE_COUNT = "per_stage_req_latency_seconds_count"
SGLANG_STAGE_SUM = "per_stage_req_latency_seconds_sum"
REQUEST_STAGE_LABEL = "stage"
# Those whose differences are lengths of queues: what each observes is told in checks/handoff.py.
REQUEST_STAGES = frozenset(
    {
        "prefill_prepare", "prefill_bootstrap", "prefill_forward", "prefill_transfer_kv_cache",
        "decode_prepare", "decode_bootstrap", "decode_transferred",
    }
)  # fmt: skip

VLLM: Mapping[Gauge, tuple[str, ...]] = {
    Gauge.RUNNING: ("num_requests_running",),
    Gauge.QUEUE: ("num_requests_waiting",),
    Gauge.TOKEN_USAGE: ("kv_cache_usage_perc", "gpu_cache_usage_perc"),  # renamed around 0.10; both for some releases
    Gauge.GENERATION_TOKENS: ("generation_tokens_total",),
    Gauge.PROMPT_TOKENS: ("prompt_tokens_total",),
    Gauge.REQUESTS: ("request_success_total",),  # by finished_reason, aborted ones among them
    # Counted once for each transfer of each tensor rank, all ranks together.
    Gauge.TRANSFERS_DONE: ("nixl_xfer_time_seconds_count", "mooncake_xfer_time_seconds_count"),
    Gauge.TRANSFER_MS: ("nixl_xfer_time_seconds_sum", "mooncake_xfer_time_seconds_sum"),
    Gauge.TRANSFER_FAILED: ("nixl_num_failed_transfers_total", "mooncake_num_failed_transfers_total"),
}
VLLM_FACTORS: Mapping[Gauge, float] = {Gauge.TRANSFER_MS: 1000.0}  # vLLM gives seconds
VLLM_FINISHED = "finished_reason"
VLLM_ABORTED = "abort"

START_TIME = "process_start_time_seconds"  # not on SGLang's multiprocess pages

# Labels of a scheduler's place: data, pipeline, tensor, expert, context parallelism.
RANK_LABELS = ("dp_rank", "pp_rank", "tp_rank", "moe_ep_rank", "attn_cp_rank")
VLLM_DP_LABEL = "engine"  # vLLM's data-parallel index
PRIORITY = "priority"
WORKER = "worker_addr"  # added by a router that merges its workers' pages

# Endpoints that make the scheduler work (routes of srt/entrypoints/http_server.py, 0.5.23 and before).
GENERATE = frozenset(
    {
        "/generate", "/encode", "/classify", "/invocations", "/vertex_generate", "/api/chat", "/api/generate",
        "/generate_from_file", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses",
        "/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/audio/transcriptions",
    }
)  # fmt: skip
# Under /v1/ and yet answered by the HTTP process alone. Any other POST there is taken for work.
NOT_GENERATE = frozenset({"/v1/loads", "/v1/models", "/v1/tokenize", "/v1/detokenize", "/v1/messages/count_tokens"})
NOT_GENERATE_ENDINGS = ("/cancel",)


def is_generate(endpoint: str, method: str | None = None) -> bool:
    """Whether a request to this endpoint goes through the scheduler (health checks, though they do, left out)."""
    if endpoint in GENERATE:
        return method not in ("GET", "HEAD", "OPTIONS")
    if not endpoint.startswith("/v1/") or method not in (None, "POST"):
        return False
    return (
        endpoint not in NOT_GENERATE
        and not endpoint.startswith("/v1/models/")
        and not endpoint.endswith(NOT_GENERATE_ENDINGS)
    )


# Router pages. Labels: ``worker`` is the worker's URL; breaker 0 closed, 1 open, 2 half-open.
# sglang-router 0.1.9 has neither health, breaker nor running requests; 0.2.4 has no running requests for PD.
ROUTER_ACTIVE = ("smg_worker_requests_active", "sgl_router_running_requests")
ROUTER_BREAKER = ("smg_worker_cb_state", "sgl_router_cb_state")
ROUTER_HEALTHY = ("smg_worker_health", "sgl_router_worker_health")
ROUTER_FAILURES = ("smg_worker_cb_consecutive_failures", "sgl_router_cb_consecutive_failures")
ROUTER_AGES = "smg_http_inflight_request_age_count"
ROUTER_RESPONSES = ("smg_http_responses_total", "sgl_router_http_responses_total")
ROUTER_CONNECTIONS = "smg_http_connections_active"
SMG_REQUESTS = "smg_router_requests_total"  # by backend_type: pd or regular
SMG_ERRORS = "smg_worker_errors_total"
SMG_RETRIES = "smg_worker_retries_total"
SMG_DURATION = "smg_router_request_duration_seconds"
SGL_REQUESTS = "sgl_router_pd_requests_total"  # 0.2.4 counts each try, 0.1.9 has no retries
SGL_ERRORS = "sgl_router_pd_errors_total"
SGL_LEG_ERRORS: Mapping[str, str] = {
    "sgl_router_pd_prefill_errors_total": "prefill/server",
    "sgl_router_pd_decode_errors_total": "decode/server",
    "sgl_router_pd_stream_errors_total": "decode/stream",
}
SGL_RETRIES = "sgl_router_retries_total"
SGL_DURATION = "sgl_router_pd_request_duration_seconds"
PD_BACKEND = "pd"


def _engine_wanted() -> dict[bytes, Gauge | None]:
    names: dict[str, Gauge | None] = {START_TIME: Gauge.START_TIME}
    for prefix in SGLANG_PREFIXES:
        names |= {prefix + name: gauge for gauge, row in SGLANG.items() for name in row}
        names |= {prefix + SGLANG_HTTP_ACTIVE: None, prefix + SGLANG_HTTP_SEEN: None}
        names |= {prefix + SGLANG_STAGE_COUNT: None, prefix + SGLANG_STAGE_SUM: None}
    for prefix in VLLM_PREFIXES:
        names |= {prefix + name: gauge for gauge, row in VLLM.items() for name in row}
    return {name.encode(): gauge for name, gauge in names.items()}


ENGINE_WANTED: Mapping[bytes, Gauge | None] = _engine_wanted()
ROUTER_WANTED: frozenset[bytes] = frozenset(
    name.encode()
    for name in (
        *ROUTER_ACTIVE, *ROUTER_BREAKER, *ROUTER_HEALTHY, *ROUTER_FAILURES, ROUTER_AGES, *ROUTER_RESPONSES,
        ROUTER_CONNECTIONS, SMG_REQUESTS, SMG_ERRORS, SMG_RETRIES, f"{SMG_DURATION}_sum", f"{SMG_DURATION}_count",
        SGL_REQUESTS, SGL_ERRORS, *SGL_LEG_ERRORS, SGL_RETRIES, f"{SGL_DURATION}_sum", f"{SGL_DURATION}_count",
    )
)  # fmt: skip
