"""What the lab's tests share: its units, and small ways of waiting and asking."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

import pytest
from machines import HERE, Machine

from pdctl.model.answer import Answer

Run = Callable[..., Answer]
ROOT = HERE.parent.parent
MUTE = 9000  # where h3 takes connections and says nothing
needs_sudo = pytest.mark.skipif(shutil.which("sudo") is None, reason="no sudo here (apt-get install -y sudo)")
ENGINE = """\
[Unit]
Description={description}
[Service]
Environment=LAB_EPOCH={epoch} PYTHONPATH={path} PYTHONDONTWRITEBYTECODE=1 {more}
ExecStart={python} -m sglang.launch_server --model-path /models/demo --port {port} --tp-size {tp} \
--disaggregation-mode {role} {flags}
Restart=always
RestartSec=1
LimitNOFILE=4096
"""


def engine_unit(role: str, port: int, *, tp: int = 2, flags: str = "", **more: str) -> str:
    return ENGINE.format(
        description=f"{role} engine", epoch=int(time.time()), path=f"{HERE}/fakes:{ROOT}", python=sys.executable,
        port=port, tp=tp, role=role, flags=flags, more=" ".join(f"{key}={value}" for key, value in more.items()),
    )  # fmt: skip


UNITS = {
    "h1": {"pd-prefill.service": engine_unit("prefill", 30000)},
    "h2": {"pd-decode.service": engine_unit("decode", 30001)},
    "h3": {"mute.service": f"[Service]\nExecStart={sys.executable} {HERE}/fakes/mute.py {MUTE}\nRestart=always\n"},
}


def wait_answers(host: Machine, port: int) -> None:
    words = ("bash", "-c", f": < /dev/tcp/127.0.0.1/{port}")
    host.wait_for(*words, seconds=60)
