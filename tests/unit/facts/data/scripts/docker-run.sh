#!/bin/bash
# start the prefill container; old one is removed first
IMAGE=lmsysorg/sglang:v0.5.9-cu129
NAME=sglang-prefill
docker rm -f $NAME 2>/dev/null || true
docker run -d --name $NAME \
    --gpus all --shm-size 32g --ipc=host --network=host --privileged \
    --ulimit memlock=-1 --ulimit stack=67108864 \
    -v /data/models:/models -v /etc/localtime:/etc/localtime:ro \
    -e SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT=300 \
    -e HF_TOKEN=hf_abcdefghijklmnop1234 \
    --env NCCL_SOCKET_IFNAME=eth0 \
    $IMAGE \
    python3 -m sglang.launch_server --model-path /models/Qwen3-235B-A22B-FP8 \
        --served-model-name qwen3 \
        --disaggregation-mode prefill --disaggregation-bootstrap-port 8998 \
        --disaggregation-ib-device mlx5_0 \
        --tp 8 --host 0.0.0.0 --port 30000 \
        --chunked-prefill-size 8192 --kv-cache-dtype fp8_e4m3
