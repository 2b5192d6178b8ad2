#!/bin/bash
NODE=gpu-07
PORT=30100
ssh $NODE bash -s <<EOF
export SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE=5
python3 -m sglang.launch_server --model-path /m --disaggregation-mode decode --port $PORT --tp 2
EOF
