#!/bin/bash
MODEL=/models/Qwen2.5-7B-Instruct
for i in 0 1 2 3; do
  PORT=$((30000 + i))
  CUDA_VISIBLE_DEVICES=$i python -m sglang.launch_server \
    --model-path $MODEL --port $PORT --base-gpu-id $i \
    --disaggregation-mode prefill --disaggregation-bootstrap-port $((9000 + i)) \
    --mem-fraction-static 0.7 > prefill_$i.log 2>&1 &
done
wait
