"""Sizes and speeds of the simulated engines."""

from __future__ import annotations

from dataclasses import dataclass, field

from pdctl.demo.core.release import Traits, traits_of
from pdctl.model.cluster import Role


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds and tokens a second, in the region of one 8-GPU node serving a mid-sized model."""

    loop: float = 0.001  # one turn of an idle scheduler loop
    prefill_base: float = 0.012
    prefill_tokens: float = 24_000.0
    decode_step: float = 0.018
    decode_request: float = 0.000_3  # each running request makes a decode step longer by this
    transfer_base: float = 0.004
    transfer_tokens: float = 150_000.0
    handshake: float = 0.003


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine. ``kv_tokens`` is the KV memory of each data-parallel rank, ``reserve`` what decode keeps free for
    each request's output (--num-reserved-decode-tokens), ``lockstep`` means attention data parallelism: ranks run
    forward passes together. ``address`` is (host, port) as peers and logs name it."""

    name: str
    role: Role
    version: str = "0.5.23"
    dp: int = 1
    tp: int = 1
    lockstep: bool = False
    kv_tokens: int = 160_000
    max_running: int = 2048
    batch_tokens: int = 8_192
    reserve: int = 512
    model: str = "demo-model"
    host: str = "127.0.0.1"
    port: int = 30_000
    bootstrap_port: int | None = None
    all_schedulers: bool = False  # --enable-metrics-for-all-schedulers: every tensor rank writes the same gauges
    priority: bool = False  # --enable-priority-scheduling: queue gauges come as a total and by priority
    extra_labels: tuple[tuple[str, str], ...] = ()
    speed: Speed = field(default_factory=Speed)

    @property
    def traits(self) -> Traits:
        return traits_of(self.version)

    @property
    def is_prefill(self) -> bool:
        return self.role is Role.PREFILL

    @property
    def tensor_ranks(self) -> int:
        """Tensor ranks of each data-parallel rank."""
        return max(self.tp // self.dp, 1) if self.lockstep else self.tp

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"
