#!/bin/bash
#SBATCH --job-name=sgl-decode
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
MASTER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export GLOO_SOCKET_IFNAME=bond0
export NCCL_SOCKET_IFNAME=bond0
srun --ntasks=2 --ntasks-per-node=1 --output="log/decode-%t.log" \
  python3 -m sglang.launch_server \
    --model-path deepseek-ai/DeepSeek-V3-0324 \
    --disaggregation-mode decode \
    --dist-init-addr "${MASTER}:5757" \
    --nnodes 2 --node-rank $SLURM_PROCID \
    --tp-size 16 --dp-size 16 --enable-dp-attention --moe-a2a-backend deepep \
    --cuda-graph-bs 1 2 4 8 16 \
    --max-running-requests 2048
