#!/bin/bash
source /opt/nccl.env
mpirun -np 2 -H n1,n2 --allow-run-as-root -x NCCL_DEBUG -x SGLANG_LOG_MS=1 \
  python3 -m sglang.launch_server --model /m --disaggregation-mode prefill --nnodes 2 --tp 16 \
  --dist-init-addr n1:20000 --node-rank $OMPI_COMM_WORLD_RANK
