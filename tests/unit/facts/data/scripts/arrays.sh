#!/usr/bin/env bash
# Decode side of a 1P1D pair; the prefill side is serve_prefill.sh on the other node.
set -euo pipefail
cd "$(dirname "$0")"

MODEL_PATH=/raid/models/DeepSeek-R1
PORT=${PORT:-30000}

export SGLANG_DISAGGREGATION_WAITING_TIMEOUT=600
export MC_TE_METRIC=true
export NCCL_IB_HCA="mlx5_0,mlx5_1,mlx5_2,mlx5_3"

ARGS=(
  --model-path "$MODEL_PATH"
  --trust-remote-code
  --host 0.0.0.0
  --port "$PORT"
  # parallelism
  --tp-size 8
  --dp-size 8
  --enable-dp-attention
)
PD_ARGS=(
  --disaggregation-mode decode
  --disaggregation-transfer-backend mooncake
  --disaggregation-ib-device ${NCCL_IB_HCA}
)
if [[ "${DEBUG:-0}" == "1" ]]; then
  ARGS+=(--log-level debug)
fi
ARGS+=(--mem-fraction-static .80 --page-size=64)

exec python3 -m sglang.launch_server "${ARGS[@]}" "${PD_ARGS[@]}" "$@"
