#!/usr/bin/env bash
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
set -a
source "$HERE/nccl.env"
. "$HERE/secrets.env"
set +a
exec python3 -m sglang.launch_server \
  --model-path "${MODEL}" \
  --disaggregation-mode decode \
  --page-size "${PAGE_SIZE:-64}" \
  --tp "$TP"
