"""Which GPU a scheduler rank runs on, from its engine's launch flags.

``base_gpu_id + pp_local * tp_per_node + tp_local * gpu_id_step`` (release 0.5.23, srt/entrypoints/engine.py): the
number as the engine sees it, so CUDA_VISIBLE_DEVICES counts from there. Plain data parallelism (no DP attention) puts
each replica behind the one before: ``base_gpu_id += tp_size * gpu_id_step`` (data_parallel_controller.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.model.rank import Rank


def gpu_of(rank: Rank, flags: Mapping[str, str], visible: str | None = None) -> str | None:
    """The GPU's number, through CUDA_VISIBLE_DEVICES (``visible``) where that is known; None on another device, for
    pipelines over several nodes, and where the flags cannot be read."""
    if flags.get("--device", "cuda") != "cuda":
        return None
    names = ("--tp-size", "--pp-size", "--dp-size", "--nnodes", "--gpu-id-step")
    numbers = [_whole(flags, name, 1) for name in names]
    base = _whole(flags, "--base-gpu-id", 0)
    if base is None or None in numbers or 0 in numbers:
        return None
    tp, pp, dp, nodes, step = (number or 1 for number in numbers)
    if nodes > 1 and pp > 1:
        return None
    tp_here = max(1, tp // nodes)
    replica = (rank.dp or 0) * tp * step if dp > 1 and "--enable-dp-attention" not in flags else 0
    return _through(visible, base + replica + (rank.pp or 0) * tp_here + (rank.tp or 0) % tp_here * step)


def _whole(flags: Mapping[str, str], name: str, default: int) -> int | None:
    text = flags.get(name, str(default))
    return int(text) if text.isdigit() else None


def _through(visible: str | None, index: int) -> str | None:
    if not visible:
        return str(index)
    names = [name.strip() for name in visible.split(",")]
    return names[index] if index < len(names) else None
