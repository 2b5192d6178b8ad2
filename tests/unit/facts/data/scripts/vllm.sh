#!/bin/bash
VLLM_NIXL_SIDE_CHANNEL_PORT=5600 UCX_TLS=all vllm serve Qwen/Qwen3-32B --port 8100 -tp 2 --block-size 128 \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'
