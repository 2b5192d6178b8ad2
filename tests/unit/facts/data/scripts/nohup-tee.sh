#!/bin/sh
export CUDA_VISIBLE_DEVICES=0,1,2,3
export SGLANG_API_KEY=sk-1234567890abcdefgh
LOG_DIR=/var/log/sglang
mkdir -p $LOG_DIR
nohup python -u -m sglang.launch_server --model-path /models/Llama-3.1-70B-Instruct --tp 4 --port 30000 --host 0.0.0.0 --disaggregation-mode prefill --disaggregation-ib-device mlx5_0 --mem-fraction-static 0.85 --api-key $SGLANG_API_KEY 2>&1 | tee $LOG_DIR/prefill_$(date +%Y%m%d).log &
echo $! > /run/prefill.pid
