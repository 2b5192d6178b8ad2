"""The settings that prefill and decode must share: why, what an absent one means, how two spellings are one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath


def as_written(value: str) -> str:
    return value


def model_name(value: str) -> str:
    """A model by name: the last part of its path, the repository's name of a snapshot in a Hugging Face cache."""
    cached = re.search(r"models--[\w.-]*?--([\w.-]+)/snapshots/", value + "/")
    return (cached[1] if cached else PurePosixPath(value.rstrip("/")).name).lower()


def dtype_name(value: str) -> str:
    return {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp8": "fp8_e4m3"}.get(
        value.lower(), value.lower()
    )


def connector(value: str) -> str:
    """The connector of vLLM's --kv-transfer-config."""
    try:
        config = json.loads(value)
    except ValueError:
        return value
    return str(config.get("kv_connector", value)) if isinstance(config, dict) else value


@dataclass(frozen=True, slots=True)
class Rule:
    """A setting that must agree, and why. ``default`` is what an absent one means in every release, None where that
    depends on the release, the model or the attention backend."""

    flag: str
    why: str
    default: str | None = None
    form: Callable[[str], str] = as_written

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--")


# Sources: sglang/srt/disaggregation/common/conn.py (page size from 0.5.9, kv dtype by 0.5.19: both are refused there
# with "Both servers must use the same ..."), server_args.py for defaults; vLLM's nixl connector for its block size.
RULES = (
    Rule("--page-size", "KV pages are transferred whole"),
    Rule("--kv-cache-dtype", "KV bytes are copied, not converted", "auto", dtype_name),
    Rule("--model-path", "the KV of one model means nothing to another", None, model_name),
    Rule("--disaggregation-transfer-backend", "both ends must speak the same transfer protocol", "mooncake"),
    Rule("--disaggregation-decode-allocation-policy", "prefill keeps KV for as long as decode expects", "early"),
    Rule("--revision", "another revision has other weights"),
    Rule("--json-model-override-args", "it changes the shape of the model", "{}"),
    Rule("--speculative-algorithm", "the draft model keeps KV of its own"),
    Rule("--block-size", "KV blocks are transferred whole"),
    Rule("--model", "the KV of one model means nothing to another", None, model_name),
    Rule("--kv-transfer-config", "both ends must use the same connector", None, connector),
)
DTYPE = Rule("--dtype", "with a KV dtype of auto, KV has the model's dtype", "auto", dtype_name)
