#!/bin/bash
docker exec -d sglang bash -c 'cd /sgl-workspace && export MC_FORCE_MNNVL=1 && \
  python3 -m sglang.launch_server --model-path /models/m --disaggregation-mode decode \
  --tp-size 4 --page-size 1 > /var/log/decode.log 2>&1'
