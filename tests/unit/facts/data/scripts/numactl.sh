#!/bin/bash
ulimit -n 1048576
export OMP_NUM_THREADS=16 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
SGLANG_ENABLE_JIT_DEEPGEMM=1 SGLANG_LOG_MS=true \
numactl --cpunodebind=0 --membind=0 \
/opt/venv/bin/python -m sglang.launch_server --model-path /m --tp-size=4 \
  --disaggregation-mode=prefill --attention-backend=fa3 --schedule-conservativeness=.3
