#!/bin/bash
cat > /tmp/decode_run.sh <<'INNER'
#!/bin/bash
export MC_GID_INDEX=3
python3 -m sglang.launch_server --model-path /m --disaggregation-mode decode --port 30001 --page-size 32
INNER
chmod +x /tmp/decode_run.sh
bash /tmp/decode_run.sh
