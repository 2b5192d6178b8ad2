"""The workers of routers: as their options name them, and as they list them themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pdctl.model.cluster import Role
from pdctl.model.router import Worker
from pdctl.model.served import HostSeen

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Target:
    """A worker as a router's options name it. ``bootstrap_port`` None: not given."""

    role: Role
    url: str
    host: str
    port: int
    bootstrap_port: int | None = None


def named_targets(seen: Sequence[HostSeen]) -> tuple[Target, ...]:
    """Every worker that routers name, a loopback address made their own host's name."""
    out = []
    for host in seen:
        for served in host.served:
            if served.launcher != "router":
                continue
            for flag, role in (("--prefill", Role.PREFILL), ("--decode", Role.DECODE)):
                texts = served.flags.get(flag, "").split(" | ")
                out += [t for text in texts if (t := _target(role, text.split(), host.host.name)) is not None]
    return tuple(dict.fromkeys(out))


def targets_of(rows: Iterable[Worker], own: str) -> tuple[Target, ...]:
    """The workers that a router on the host ``own`` lists; data-parallel-aware ones append @RANK to their URL."""
    out = []
    for row in rows:
        if row.kind in (Role.PREFILL, Role.DECODE):
            url, _, rank = row.url.rpartition("@")
            words = [url if rank.isdecimal() and url else row.url, str(row.bootstrap_port or "")]
            out.append(_target(Role(row.kind), words, own))
    return tuple(dict.fromkeys(target for target in out if target is not None))


def _target(role: Role, words: Sequence[str], own: str) -> Target | None:
    if not words:
        return None
    url = words[0] if "://" in words[0] else f"http://{words[0]}"
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    bootstrap = int(words[1]) if len(words) > 1 and words[1].isdecimal() else None
    host = parts.hostname or ""
    return Target(role, url.rstrip("/"), own if host in LOOPBACK else host, port, bootstrap)
