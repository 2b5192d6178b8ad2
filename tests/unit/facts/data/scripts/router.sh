#!/bin/bash
# 路由: 两个 prefill, 一个 decode
exec python3 -m sglang_router.launch_router --pd-disaggregation \
  --prefill http://10.0.0.1:30000 8998 \
  --prefill http://10.0.0.2:30000 8998 \
  --decode http://10.0.0.3:30000 \
  --policy cache_aware --host 0.0.0.0 --port 8000 \
  --prometheus-port 29000 --request-timeout-secs 1800
