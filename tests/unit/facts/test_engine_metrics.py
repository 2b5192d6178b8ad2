"""Engine pages: recorded ones of seven releases, and the rules by which series are joined."""

from __future__ import annotations

import gzip

import pytest
from http_answers import DECODE, PREFILL, engine_page, recorded, router_page

from pdctl.facts.base import Unreadable
from pdctl.facts.engine_metrics import read_engine
from pdctl.model.answer import Why
from pdctl.model.engine import EngineMetrics, Gauge
from pdctl.model.rank import WHOLE, Rank

R0 = Rank(pp=0, tp=0, ep=0)


def read(body: bytes | str) -> EngineMetrics:
    return read_engine(engine_page(body))


def test_0_5_23_under_load() -> None:
    m = read(recorded("prefill-0.5.23-load.prom"))
    assert (m.engine, m.engine_type, m.model) == ("sglang", "prefill", "tiny")
    assert m.ranks(Gauge.INFLIGHT) == {R0: 0.0}
    assert m.ranks(Gauge.BOOTSTRAP) == {R0: 0.0}
    assert m.ranks(Gauge.MAX_TOKENS) == {R0: 20000.0}
    assert m.ranks(Gauge.UTILIZATION) == {R0: -1.0}
    assert m.ranks(Gauge.DEFERRED_RELEASE) == {R0: 0.0}
    assert m.ranks(Gauge.HOST_RECEIVE) == {R0: 0.0}
    assert m.ranks(Gauge.REALTIME_TOKENS) == {R0: 271478.0 + 932.0}  # both modes
    assert m.ranks(Gauge.GRAPH_PASSES) == {R0: 610.0}
    assert m.ranks(Gauge.TRANSFERS_DONE) == {R0: 682.0}
    assert m.ranks(Gauge.TRANSFER_MS) == {R0: 12966.408153995417}
    assert m.ranks(Gauge.IDLE_SECONDS) == {R0: 165.93306854899998}
    assert m.ranks(Gauge.SCHEDULER_CPU_SECONDS) == {R0: 180.0129666679999}
    assert m.ranks(Gauge.REQUESTS) == {WHOLE: 683.0}  # counted by the tokenizer: of no rank
    assert m.ranks(Gauge.PROMPT_TOKENS) == {WHOLE: 272405.0}
    assert m.stages["process_queue"] == 10.659924949999994
    assert len(m.stages) == 9
    assert m.total(Gauge.STAGE_SECONDS) == pytest.approx(sum(m.stages.values()))
    assert m.http_active == 0.0
    assert m.http_seen == {
        "/health": 7.0, "/model_info": 2.0, "/generate": 1.0, "/freeze_gc": 1.0, "/*": 2.0, "/server_info": 3.0,
        "/v1/completions": 682.0, "/v1/loads": 126.0, "/metrics": 28.0,
    }  # fmt: skip
    assert Gauge.TRANSFER_FAILED not in m.values  # no series before the first failure: absent, not 0
    assert Gauge.ABORTED not in m.values
    assert Gauge.START_TIME not in m.values


def test_0_5_15_with_one_request_pinned() -> None:
    m = read(recorded("prefill-0.5.15-pinned.prom"))
    assert m.total(Gauge.INFLIGHT) == 1.0
    assert m.total(Gauge.USED_TOKENS) == 500.0
    assert m.http_active == 1.0  # on /v1/completions; the one on /metrics is this page's own
    assert m.ranks(Gauge.RETRACTED) == {R0: 0.0}  # carries a pid
    assert Gauge.IDLE_SECONDS not in m.values  # first in 0.5.20
    assert m.stages == {}


def test_0_5_19_decode_of_a_pinned_request() -> None:
    m = read(recorded("decode-0.5.19-pinned.prom"))
    assert m.engine_type == "decode"
    assert m.total(Gauge.TRANSFER) == 0.0  # stale: what the page says is what is read
    assert m.http_active == 1.0
    assert m.http_seen["/health"] == 19.0


def test_0_5_10_histograms_and_0_5_9_gauges_of_the_same_name() -> None:
    new, old = read(recorded("decode-0.5.10.post1-load.prom")), read(recorded("prefill-0.5.9-idle.prom"))
    assert new.engine_type == "decode"
    assert Gauge.TRANSFERS_DONE not in old.values  # a gauge of the last transfer counts none
    assert Gauge.TRANSFER_MS not in old.values
    assert old.ranks(Gauge.BOOTSTRAP) == {R0: 0.0}  # under its name before 0.5.12
    assert old.http_active == 0.0


def test_0_5_6_has_no_http_gauge_and_names_no_role() -> None:
    m = read(recorded("decode-0.5.6-pinned.prom"))
    assert m.http_active is None
    assert m.http_seen == {}
    assert m.engine_type == "unified"
    assert m.ranks(Gauge.RUNNING) == {Rank(pp=0, tp=0): 2.0}
    assert m.ranks(Gauge.TOKEN_USAGE) == {Rank(pp=0, tp=0): 0.04445}


def test_0_4_6_to_0_5_1_spell_inflight_without_its_l() -> None:
    m = read(
        'sglang:num_prefill_infight_queue_reqs{engine_type="unified",model_name="m"} 5\n'
        'sglang:num_prefill_prealloc_queue_reqs{engine_type="unified",model_name="m"} 2\n'
    )
    assert m.ranks(Gauge.INFLIGHT) == {WHOLE: 5.0}
    assert m.ranks(Gauge.BOOTSTRAP) == {WHOLE: 2.0}


def test_a_priority_total_is_read_and_its_parts_are_not_added() -> None:
    m = read(
        'sglang:num_queue_reqs{priority="7",tp_rank="0"} 2\n'
        'sglang:num_queue_reqs{priority="",tp_rank="0"} 3\n'
        'sglang:num_queue_reqs{priority="None",tp_rank="0"} 1\n'
    )
    assert m.ranks(Gauge.QUEUE) == {Rank(tp=0): 3.0}


def test_a_total_of_zero_is_a_total() -> None:
    m = read('sglang:num_queue_reqs{priority=""} 0\nsglang:num_queue_reqs{priority="7"} 2\n')
    assert m.ranks(Gauge.QUEUE) == {WHOLE: 0.0}


def test_a_series_without_the_label_is_the_total_too() -> None:
    m = read('sglang:num_queue_reqs{tp_rank="0"} 3\nsglang:num_queue_reqs{priority="1",tp_rank="0"} 3\n')
    assert m.ranks(Gauge.QUEUE) == {Rank(tp=0): 3.0}


def test_parts_without_a_total_are_added_rank_by_rank() -> None:
    m = read(
        'sglang:num_queue_reqs{dp_rank="0",priority="1"} 2\n'
        'sglang:num_queue_reqs{dp_rank="0",priority="5"} 3\n'
        'sglang:num_queue_reqs{dp_rank="1",priority=""} 4\n'
    )
    assert m.ranks(Gauge.QUEUE) == {Rank(dp=0): 5.0, Rank(dp=1): 4.0}


def test_counters_are_split_and_not_repeated_by_a_requests_priority() -> None:
    m = read('sglang:num_requests_total{priority=""} 10\nsglang:num_requests_total{priority="5"} 4\n')
    assert m.total(Gauge.REQUESTS) == 14.0


def test_counters_split_by_streaming_are_added() -> None:
    m = read(
        'sglang:generation_tokens_total{is_streaming="false",model_name="m"} 10\n'
        'sglang:generation_tokens_total{is_streaming="true",model_name="m"} 5\n'
    )
    assert m.total(Gauge.GENERATION_TOKENS) == 15.0


def test_one_counter_series_given_twice_counts_once() -> None:
    m = read('sglang:num_requests_total{a="1",b="2"} 10\nsglang:num_requests_total{b="2",a="1"} 11\n')
    assert m.total(Gauge.REQUESTS) == 11.0


def test_gauges_kept_per_process_are_their_greatest_within_a_rank() -> None:
    m = read(
        'sglang:num_retracted_reqs{dp_rank="0",pid="10"} 3\n'  # of a start before
        'sglang:num_retracted_reqs{dp_rank="0",pid="20"} 1\n'
        'sglang:num_retracted_reqs{dp_rank="1",pid="21"} 2\n'
    )
    assert m.ranks(Gauge.RETRACTED) == {Rank(dp=0): 3.0, Rank(dp=1): 2.0}


def test_all_schedulers_repeat_one_value_and_data_parallel_ranks_add_up() -> None:
    lines = [
        f'sglang:num_prefill_inflight_queue_reqs{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} {value}'
        for dp, tp, value in ((0, 0, 2), (0, 1, 2), (1, 2, 3), (1, 3, 4))
    ]
    m = read("\n".join(lines) + "\n")
    assert len(m.ranks(Gauge.INFLIGHT)) == 4
    assert m.by_dp(Gauge.INFLIGHT) == {0: 2.0, 1: 4.0}
    assert m.total(Gauge.INFLIGHT) == 6.0


def test_nan_is_absent_and_its_family_counts() -> None:
    m = read('sglang:num_running_reqs{tp_rank="0"} NaN\nsglang:num_queue_reqs{tp_rank="0"} 1\n')
    assert Gauge.RUNNING not in m.values
    assert m.total(Gauge.RUNNING) is None
    assert m.families == 2


def test_infinity_is_a_value() -> None:
    assert read("sglang:gen_throughput +Inf\n").total(Gauge.GEN_THROUGHPUT) == float("inf")


@pytest.mark.parametrize("label", ["None", "", "-1", "1.0", "x", "99999999999", "٣"])
def test_a_rank_label_that_is_no_number_names_no_rank(label: str) -> None:
    assert read(f'sglang:num_queue_reqs{{dp_rank="{label}"}} 1\n').ranks(Gauge.QUEUE) == {WHOLE: 1.0}


def test_names_as_a_router_rewrites_them() -> None:
    m = read(
        'sglang_num_prefill_inflight_queue_reqs{worker_addr="http://192.0.2.11:30000",tp_rank="0"} 2\n'
        'sglang_http_requests_active{endpoint="/generate",method="POST",worker_addr="http://192.0.2.11:30000"} 3\n'
    )
    assert m.ranks(Gauge.INFLIGHT) == {Rank(tp=0): 2.0}
    assert m.http_active == 3.0


def test_of_a_page_that_merges_workers_only_this_instance_is_read() -> None:
    page = engine_page(
        'sglang_num_prefill_inflight_queue_reqs{worker_addr="http://192.0.2.11:30000"} 2\n'
        'sglang_num_prefill_inflight_queue_reqs{worker_addr="http://192.0.2.12:30000"} 9\n'
    )
    assert read_engine(page, PREFILL).total(Gauge.INFLIGHT) == 2.0
    with pytest.raises(Unreadable) as caught:
        read_engine(page, DECODE)
    assert caught.value.why is Why.NOT_METRICS
    assert "2 workers" in caught.value.detail
    with pytest.raises(Unreadable):
        read_engine(page)


def test_http_requests_that_count_as_work() -> None:
    rows = {
        ("/generate", "POST"): 1, ("/v1/chat/completions", "POST"): 2, ("/v1/responses", "POST"): 4,
        ("/v1/something_new", "POST"): 8, ("/api/chat", "POST"): 16, ("/encode", "PUT"): 32,
        ("/health", "GET"): 1000, ("/health_generate", "GET"): 1000, ("/metrics", "GET"): 1000,
        ("/v1/loads", "GET"): 1000, ("/v1/models", "GET"): 1000, ("/v1/models/{model:path}", "GET"): 1000,
        ("/v1/responses/{response_id}", "GET"): 1000, ("/v1/responses/{response_id}/cancel", "POST"): 1000,
        ("/v1/messages/count_tokens", "POST"): 1000, ("/server_info", "GET"): 1000, ("/abort_request", "POST"): 1000,
        ("/flush_cache", "POST"): 1000, ("/*", "PRI"): 1000, ("", "PRI"): 1000,
    }  # fmt: skip
    lines = [f'sglang:http_requests_active{{endpoint="{e}",method="{m}"}} {n}' for (e, m), n in rows.items()]
    assert read("\n".join(lines) + "\n").http_active == 63.0


def test_an_engine_that_never_had_a_request_has_none_under_way() -> None:
    assert read('sglang:http_requests_active{endpoint="/metrics",method="GET"} 1\n').http_active == 0.0


def test_an_engine_just_back_has_counters_and_no_gauges() -> None:
    m = read(
        'sglang:http_requests_total{endpoint="/metrics",method="GET"} 1\nsglang:failed_session_recoveries_total 0\n'
    )
    assert m.values == {}
    assert m.families == 2


def test_vllm() -> None:
    m = read(
        'vllm:num_requests_running{engine="0",model_name="m"} 1.0\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 2.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 14.0\n'
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.765\n'
        'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.765\n'
        'vllm:generation_tokens_total{engine="0",model_name="m"} 900.0\n'
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 7.0\n'
        'vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 2.0\n'
        'vllm:nixl_xfer_time_seconds_count{engine="0",model_name="m"} 4.0\n'
        'vllm:nixl_xfer_time_seconds_sum{engine="0",model_name="m"} 0.5\n'
        'vllm:nixl_num_failed_transfers_total{engine="0",model_name="m"} 3.0\n'
        "process_start_time_seconds 1.7e9\n"
    )
    assert m.engine == "vllm"
    assert m.ranks(Gauge.RUNNING) == {Rank(dp=0): 1.0, Rank(dp=1): 2.0}
    assert m.total(Gauge.QUEUE) == 14.0
    assert m.total(Gauge.TOKEN_USAGE) == 0.765
    assert m.total(Gauge.REQUESTS) == 9.0
    assert m.total(Gauge.ABORTED) == 2.0
    assert m.total(Gauge.TRANSFERS_DONE) == 4.0
    assert m.total(Gauge.TRANSFER_MS) == 500.0
    assert m.total(Gauge.TRANSFER_FAILED) == 3.0
    assert m.total(Gauge.START_TIME) == 1.7e9
    assert m.http_active is None


def test_vllm_before_its_cache_gauge_was_renamed() -> None:
    assert read('vllm:gpu_cache_usage_perc{engine="0"} 0.5\n').total(Gauge.TOKEN_USAGE) == 0.5


@pytest.mark.parametrize("body", ["python_gc_objects_collected_total 1\n", "# TYPE a gauge\n", "hello world\n"])
def test_a_page_without_any_engine_family(body: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(body)
    assert caught.value.why is Why.NOT_METRICS


def test_a_routers_page_is_named_as_what_it_is() -> None:
    with pytest.raises(Unreadable) as caught:
        read_engine(router_page(recorded("router-0.3.2-pinned.prom")))
    assert "router" in caught.value.detail


def test_nan_among_http_requests_hides_no_other() -> None:
    m = read(
        'sglang:http_requests_active{endpoint="/generate",method="POST"} NaN\n'
        'sglang:http_requests_active{endpoint="/v1/completions",method="POST"} 2\n'
        'sglang:http_requests_total{endpoint="/generate",method="POST"} NaN\n'
    )
    assert m.http_active == 2.0
    assert m.http_seen == {}


def test_request_stages_of_0_5_23_under_load() -> None:
    m = read(gzip.decompress(recorded("prefill-0.5.23-load-whole.prom.gz")))
    assert m.stage_counts == {
        "prefill_bootstrap": {R0: 688.0}, "prefill_forward": {R0: 688.0}, "prefill_transfer_kv_cache": {R0: 688.0},
    }  # fmt: skip
    assert m.stage_sums == {
        "prefill_bootstrap": {R0: 5.206949100995189}, "prefill_forward": {R0: 14.151969752999776},
        "prefill_transfer_kv_cache": {R0: 12.929821399995944},
    }  # fmt: skip


def test_request_stages_keep_their_ranks_and_leave_out_what_is_no_queue() -> None:
    row = 'sglang:per_stage_req_latency_seconds_%s{dp_rank="%d",stage="%s"} %s\n'
    page = 'sglang:num_running_reqs{dp_rank="0"} 0.0\n'
    page += row % ("count", 0, "prefill_forward", 4.0) + row % ("count", 1, "prefill_forward", 7.0)
    page += row % ("count", 0, "chunked_prefill", 9.0)
    page += row % ("sum", 0, "prefill_forward", 0.25)
    m = read(page)
    assert m.stage_counts == {"prefill_forward": {Rank(dp=0): 4.0, Rank(dp=1): 7.0}}
    assert m.stage_sums == {"prefill_forward": {Rank(dp=0): 0.25}}
