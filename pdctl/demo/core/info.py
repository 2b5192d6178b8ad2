"""What an engine says of its settings: /server_info and /model_info."""

from __future__ import annotations

from pdctl.demo.core.engine import SimEngine


def render_server_info(engine: SimEngine) -> dict[str, object]:
    """Resolved arguments at top level, as the engine answers them; a selection of the some 500 real ones."""
    spec = engine.spec
    args: dict[str, object] = {
        "model_path": f"/srv/models/{spec.model}", "tokenizer_path": f"/srv/models/{spec.model}",
        "tokenizer_mode": "auto", "skip_tokenizer_init": False, "load_format": "auto", "trust_remote_code": False,
        "context_length": 32_768, "is_embedding": False, "host": spec.host, "port": spec.port,
        "skip_server_warmup": False, "dtype": "bfloat16", "quantization": None, "kv_cache_dtype": "auto",
        "mem_fraction_static": 0.85, "max_running_requests": spec.max_running, "max_total_tokens": None,
        "chunked_prefill_size": spec.batch_tokens, "max_prefill_tokens": 16_384, "schedule_policy": "fcfs",
        "page_size": 1, "device": "cuda", "tp_size": spec.tp, "pp_size": 1, "dp_size": spec.dp, "ep_size": 1,
        "enable_dp_attention": spec.lockstep, "watchdog_timeout": 300, "enable_metrics": True,
        "enable_metrics_for_all_schedulers": spec.all_schedulers, "decode_log_interval": 40,
        "log_level": "info", "log_requests": False, "api_key": None, "served_model_name": spec.model,
        "load_balance_method": "round_robin", "nnodes": 1, "node_rank": 0, "disable_radix_cache": False,
        "disable_overlap_schedule": False, "enable_priority_scheduling": spec.priority,
        "disaggregation_mode": "prefill" if spec.is_prefill else "decode",
        "disaggregation_transfer_backend": "mooncake",
        "disaggregation_bootstrap_port": spec.bootstrap_port or 8998,
        "disaggregation_ib_device": None, "num_reserved_decode_tokens": spec.reserve,
        "status": "ready", "max_total_num_tokens": spec.kv_tokens,
    }  # fmt: skip
    state = {"last_gen_throughput": 0.0, "effective_max_running_requests_per_dp": spec.max_running}
    return {**args, "internal_states": [dict(state) for _ in engine.ranks], "version": spec.version}


def render_model_info(engine: SimEngine) -> dict[str, object]:
    spec = engine.spec
    info: dict[str, object] = {
        "model_path": f"/srv/models/{spec.model}", "tokenizer_path": f"/srv/models/{spec.model}",
        "is_generation": True, "preferred_sampling_params": None, "weight_version": "default",
        "has_image_understanding": False, "has_audio_understanding": False, "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    if engine.traits.since("0.5.23"):
        info |= {"disaggregation_mode": "prefill" if spec.is_prefill else "decode", "served_model_name": spec.model}
    return info


def render_models(engine: SimEngine) -> dict[str, object]:
    name = engine.spec.model
    card = {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "sglang", "root": name,
            "parent": None, "max_model_len": 32_768}  # fmt: skip
    return {"object": "list", "data": [card]}
