#!/bin/bash
source ~/miniconda3/etc/profile.d/conda.sh
conda activate sglang
export HF_HOME=/mnt/hf
SPEC="--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1"
COMMON="--trust-remote-code --page-size 64"
sglang serve /models/m $COMMON $SPEC --disaggregation-mode decode --max-running-requests 256
