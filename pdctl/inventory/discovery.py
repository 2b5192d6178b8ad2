"""A cluster from what was found serving on hosts: names, roles, addresses, pairs, and what could not be told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pdctl.inventory.rules import ssh_fault
from pdctl.inventory.workers import LOOPBACK, Target, named_targets
from pdctl.model.cluster import LOCAL, Cluster, Host, Instance, Role
from pdctl.model.served import HostSeen, Served

PORTS = {"sglang": 30000, "router": 30000, "vllm": 8000}
BIND = {"sglang": "127.0.0.1", "router": "0.0.0.0", "vllm": "0.0.0.0"}
PROMETHEUS_PORT = 29000
BOOTSTRAP_PORT = 8998
ANY = frozenset({"*", "0.0.0.0", "::", ""})
_KV_ROLES = {"kv_producer": Role.PREFILL, "kv_consumer": Role.DECODE}
_SIZES = (("--tp-size", "tp"), ("--tensor-parallel-size", "tp"), ("--pp-size", "pp"), ("--dp-size", "dp"))


@dataclass(frozen=True, slots=True)
class Discovered:
    """The cluster that was found. ``notes`` by instance: what it is known by, and after that what could not be told;
    ``remarks`` on what is not in it, and why. ``untold`` are the instances that could not be asked who they are,
    ``otherwise`` those that say they are something else."""

    cluster: Cluster
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    untold: frozenset[str] = frozenset()
    otherwise: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Row:
    """A found program on its way into the inventory."""

    seen: HostSeen
    served: Served
    role: Role
    port: int | None
    address: str
    url: str | None
    notes: tuple[str, ...] = ()


def hosts_of(specs: Sequence[str], become: str | None = None) -> tuple[Host, ...]:
    """The hosts of ``[user@]name[:port]`` and ``local``, each with a name of its own. Raises ValueError for what is
    neither, and for one given twice."""
    out: list[Host] = []
    for spec in specs:
        if spec != LOCAL and (wrong := ssh_fault(spec)):
            raise ValueError(wrong)
        if any(spec == (host.ssh or LOCAL) for host in out):
            raise ValueError(f'"{spec}" is given twice')
        out.append(Host(_free(_host_name(spec), [h.name for h in out]), None if spec == LOCAL else spec, become))
    return tuple(out)


def _host_name(spec: str) -> str:
    bare = spec.rpartition("@")[2]
    bare = bare[1:].partition("]")[0] if bare.startswith("[") else bare.partition(":")[0]
    return bare.lstrip(".-") or "host"


def _free(stem: str, taken: Sequence[str]) -> str:
    if stem not in taken:
        return stem
    return next(f"{stem}-{n}" for n in range(2, len(taken) + 3) if f"{stem}-{n}" not in taken)


def cluster_of_hosts(seen: Sequence[HostSeen], name: str, workers: Sequence[Target] = ()) -> Discovered:
    """The cluster of what was found on hosts. Engines that take no part in prefill/decode disaggregation, and ranks
    that serve no HTTP, are left out with a remark. ``workers``: what routers said of theirs when they were asked."""
    remarks = [f"{s.host.name}: {text}" for s in seen for text in (*([s.failure] if s.failure else []), *s.notes)]
    targets = tuple({(t.role, t.url): t for t in (*workers, *named_targets(seen))}.values())
    rows: list[_Row] = []
    for host in seen:
        for served in host.served:
            row = _row(host, served, targets)
            if isinstance(row, str):
                remarks.append(f"{host.host.name}: {row}")
            else:
                rows.append(row)
    rows = [_known_by(row, targets) for row in rows]
    remarks += _unfound(rows, targets)
    rows.sort(
        key=lambda row: (list(Role).index(row.role), [s.host for s in seen].index(row.seen.host), row.port or 65536)
    )
    return _named(rows, seen, name, remarks)


def _named(rows: Sequence[_Row], seen: Sequence[HostSeen], name: str, remarks: list[str]) -> Discovered:
    counts = dict.fromkeys(Role, 0)
    instances: list[Instance] = []
    notes: dict[str, tuple[str, ...]] = {}
    for row in rows:
        called = f"{row.role.value}-{counts[row.role]}"
        counts[row.role] += 1
        instance, more = _instance(row, called)
        instances.append(instance)
        notes[called] = (_known(row), *row.notes, *more, *row.served.notes)
    used = {i.host for i in instances}
    hosts = tuple(s.host for s in seen if s.host.name in used or s.failure)
    for called, text in _clashes(instances):
        notes[called] = (*notes[called], text)
    return Discovered(Cluster(name, tuple(instances), hosts), notes, tuple(remarks))


def _known(row: _Row) -> str:
    """What an instance is known by, and its sizes."""
    sizes = [f"{word} {row.served.flags[flag]}" for flag, word in _SIZES if row.served.flags.get(flag, "1") != "1"]
    by = row.served.by or "the ports it listens on"
    return ", ".join([f"found as process {row.served.pid} on {row.seen.host.name}", f"known by {by}", *sizes])


# --- one program ---------------------------------------------------------------------------------------------------


def _row(seen: HostSeen, served: Served, targets: Sequence[Target]) -> _Row | str:
    """The program as an instance to be, or why it is none."""
    rank = served.flags.get("--node-rank", "0")
    if served.launcher != "router" and rank not in ("", "0"):
        where = served.flags.get("--dist-init-addr", "another host")
        return f"process {served.pid} is node rank {rank} of an engine led from {where}: it serves no HTTP, left out"
    port, port_notes = _port(served)
    address = _address(served, port)
    role = _role(seen, served, port, targets)
    if not isinstance(role, Role):
        return f"process {served.pid}{f' (port {port})' if port else ''}: {role}"
    url = _url(served, address, port) if port is not None else None
    return _Row(seen, served, role, port, address, url, (*port_notes, *_port_doubts(seen, served, port)))


def _role(seen: HostSeen, served: Served, port: int | None, targets: Sequence[Target]) -> Role | str:
    if served.launcher == "router":
        return Role.ROUTER
    mode = served.flags.get("--disaggregation-mode")
    if mode in (Role.PREFILL, Role.DECODE):
        return Role(mode)
    if served.launcher == "vllm" and (role := _kv_role(served.flags.get("--kv-transfer-config", ""))) is not None:
        return role
    named = [t.role for t in targets if port == t.port and t.host in {*seen.names, seen.host.name}]
    if named:
        return named[0]
    if served.launcher == "vllm":
        return "vLLM whose role no option tells (kv_role is neither kv_producer nor kv_consumer): left out"
    if not served.by:
        return "an engine whose title hides its options: its role cannot be told, left out"
    return "an engine without --disaggregation-mode, no part of prefill/decode disaggregation: left out"


def _kv_role(text: str) -> Role | None:
    """The role of ``--kv-transfer-config``'s JSON; kv_both tells none."""
    try:
        config = json.loads(text)
    except ValueError:
        return None
    return _KV_ROLES.get(str(config.get("kv_role"))) if isinstance(config, dict) else None


def _port(served: Served) -> tuple[int | None, tuple[str, ...]]:
    """The port of its HTTP: of its options (or their default), else the one that is left of those it listens on."""
    if served.by:
        text = served.flags.get("--port")
        if text is None or (text.isdecimal() and 0 < int(text) < 65536):
            return int(text or PORTS[served.launcher]), ()
        return None, (f"its port is written as {text!r}: which that is could not be told",)
    ports = sorted({port for _, port in served.listening or ()})
    if served.listening is None:
        return None, ("its title hides its options and no listing says on which ports it listens: add its url",)
    metrics = served.metrics_port or (PROMETHEUS_PORT if PROMETHEUS_PORT in ports and len(ports) > 1 else None)
    left = [port for port in ports if port != metrics]
    if len(left) == 1:
        return left[0], ()
    shown = ", ".join(map(str, ports)) or "none"
    return None, (f"its title hides its options and it listens on {shown}: which is its HTTP could not be told",)


def _port_doubts(seen: HostSeen, served: Served, port: int | None) -> Iterator[str]:
    if port is None:
        return
    if served.apart:
        yield f"its network is not the host's (a container): whether {port} is reached there could not be told"
    elif served.listening is not None and port not in {p for _, p in served.listening}:
        others = ", ".join(str(p) for _, p in served.listening)
        yield f"it does not listen on {port} {f'but on {others}' if others else 'or anything else: is it starting?'}"
    elif served.listening is None and seen.ports is not None and port not in seen.ports:
        yield f"nothing on the host listens on {port}: is it starting, or in a network of its own?"


def _address(served: Served, port: int | None) -> str:
    """The address to reach it at from its own host."""
    bound = [address for address, at in served.listening or () if at == port]
    if not bound:
        bound = [served.flags.get("--host") or BIND[served.launcher]]
    if any(address in ANY or address in LOOPBACK for address in bound):
        only_six = all(address == "::1" for address in bound)
        return "::1" if only_six else "127.0.0.1"
    return bound[0]


def _url(served: Served, address: str, port: int) -> str:
    secure = any(served.flags.get(name) for name in ("--ssl-certfile", "--tls-cert-path"))
    return f"{'https' if secure else 'http'}://{f'[{address}]' if ':' in address else address}:{port}"


def _instance(row: _Row, called: str) -> tuple[Instance, tuple[str, ...]]:
    served, notes = row.served, list[str]()
    metrics = _metrics_url(row, notes) if row.role is Role.ROUTER else None
    bootstrap = _bootstrap_port(row, notes) if row.role is Role.PREFILL else None
    if "--api-key" in served.flags:
        notes.append("it wants an API key: name a variable with api_key_env, or a file with api_key_file")
    is_sglang = row.role is not Role.ROUTER and served.launcher == "sglang" and served.by
    if is_sglang and "--enable-metrics" not in served.flags:
        notes.append("start it with --enable-metrics: without, most of what pdctl judges by is not there")
    script = served.script if served.script is None or served.script.startswith("/") else None
    if script is None and served.script is not None:
        notes.append(f"its script was started as {served.script}: in which folder could not be told")
    engine = "vllm" if served.launcher == "vllm" else "sglang"
    return Instance(
        called, row.role, row.url, metrics, row.seen.host.name, served.unit, script, served.log, bootstrap, engine
    ), tuple(notes)  # fmt: skip


def _metrics_url(row: _Row, notes: list[str]) -> str | None:
    """Where a router's metrics are: on a port of their own (29000 unless given; sglang-router 0.1.9 to smg 1.13)."""
    served = row.served
    text = served.flags.get("--prometheus-port", "")
    port = int(text) if text.isdecimal() else served.metrics_port
    ports = None if served.listening is None else {p for _, p in served.listening}
    if port is None and (ports is None or PROMETHEUS_PORT in ports):
        port = PROMETHEUS_PORT if served.by or ports else None
    if port is None or (ports is not None and port not in ports and not served.apart):
        notes.append(f"where its metrics are could not be told{f': it does not listen on {port}' if port else ''}")
        return None
    address = _address(replace(served, flags={"--host": served.flags.get("--prometheus-host", "0.0.0.0")}), port)
    return f"{_url(Served(0, 'router'), address, port)}/metrics"


def _bootstrap_port(row: _Row, notes: list[str]) -> int | None:
    """Where decode engines ask a prefill engine for its address (8998 unless given, all releases)."""
    if row.served.launcher != "sglang" or not row.served.by:
        return None
    text = row.served.flags.get("--disaggregation-bootstrap-port", str(BOOTSTRAP_PORT))
    if not text.isdecimal() or not 0 < int(text) < 65536:
        notes.append(f"its bootstrap port is written as {text!r}")
        return None
    if row.served.listening is not None and int(text) not in {p for _, p in row.served.listening}:
        notes.append(f"it does not listen on its bootstrap port {text}: decode engines cannot find it there")
    return int(text)


def _clashes(instances: Iterable[Instance]) -> Iterator[tuple[str, str]]:
    """Prefill engines of one host with one bootstrap port: only one of them can have it."""
    first: dict[tuple[str | None, int], str] = {}
    for i in instances:
        if i.bootstrap_port is None:
            continue
        other = first.setdefault((i.host, i.bootstrap_port), i.name)
        if other != i.name:
            yield i.name, f"its bootstrap port {i.bootstrap_port} is that of {other} on the same host as well"


# --- routers and their workers -------------------------------------------------------------------------------------


def _is(row: _Row, target: Target) -> bool:
    return row.port == target.port and target.host in {row.seen.host.name, *row.seen.names}


def _known_by(row: _Row, targets: Sequence[Target]) -> _Row:
    """An engine under the address that its routers use, so that what they say of it is known to be about it."""
    mine = [t for t in targets if row.role in (Role.PREFILL, Role.DECODE) and _is(row, t)]
    if not mine:
        return row
    notes = [*row.notes, *(f"a router sends it to {t.role} work" for t in mine if t.role is not row.role)]
    text = row.served.flags.get("--disaggregation-bootstrap-port", str(BOOTSTRAP_PORT))
    for target in mine:
        port = target.bootstrap_port
        if row.role is Role.PREFILL and port is not None and row.served.by and str(port) != text:
            notes.append(f"a router says its bootstrap port is {port}, its own options say {text}")
    return replace(row, url=mine[0].url, notes=tuple(notes))


def _unfound(rows: Sequence[_Row], targets: Sequence[Target]) -> Iterator[str]:
    for target in targets:
        if any(_is(row, target) for row in rows):
            continue
        like = [r for r in rows if r.role is target.role and r.port == target.port]
        maybe = f"; it may be the one on {like[0].seen.host.name}" if len(like) == 1 else ""
        yield (
            f"a router sends {target.role} work to {target.url}, which was found on none of these hosts{maybe}: "
            "name its host with --host, or its URL"
        )
