"""Who the endpoints are by their own account, joined with what the user said of them. Pure: answers in, cluster out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import urlsplit

from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import EngineMetrics, ServerInfo
from pdctl.model.router import Worker, Workers

T = TypeVar("T")
SeenOf = Mapping[tuple[str, Fact], Observation[object]]
MODES = {"prefill": Role.PREFILL, "decode": Role.DECODE}


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance as it says it is. ``told`` is false where it could not be asked; ``mismatch`` says where it
    contradicts the user; ``facts`` are remarks on what was learnt, ``todo`` on what is left to fill in."""

    instance: Instance
    told: bool
    facts: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()
    mismatch: str | None = None


def identify(instance: Instance, seen: SeenOf) -> Identity:
    """The identity of one instance, from its answers."""
    if instance.role is Role.ROUTER:
        return _router(instance, seen)
    if instance.role is Role.PROXY:
        return Identity(instance, True, ("a proxy does not say who it is: not asked",))
    return _engine(instance, seen)


def missing_workers(cluster: Cluster, seen: SeenOf) -> tuple[tuple[Instance, ...], tuple[str, ...]]:
    """The engines that routers list and the user did not name, and remarks on listed workers that are no such engine.

    A worker's URL is the router's view of it: a loopback one means the router's own host."""
    known = {_place(i.url) for i in cluster.instances if i.url}
    names = [i.name for i in cluster.instances]
    found: list[Instance] = []
    remarks: list[str] = []
    for router in cluster.routers:
        for row in _workers(router, seen):
            url = _worker_url(row.url)
            role = MODES.get(row.kind or "")
            if _place(url) in known:
                continue
            known.add(_place(url))
            if role is None:
                remarks.append(f"{router.name} lists {url} as a {row.kind or 'worker of no kind'}: left out")
                continue
            found.append(Instance(free_name(role, names), role, url, bootstrap_port=row.bootstrap_port))
            names.append(found[-1].name)
    return tuple(found), tuple(remarks)


def bootstrap_ports(cluster: Cluster, seen: SeenOf) -> dict[str, int]:
    """Bootstrap ports that routers give for prefill engines, by place (host:port)."""
    rows = (row for router in cluster.routers for row in _workers(router, seen))
    return {_place(_worker_url(row.url)): row.bootstrap_port for row in rows if row.bootstrap_port is not None}


def settled(identities: Iterable[Identity], ports: Mapping[str, int]) -> tuple[Identity, ...]:
    """The identities by role, with names that fit it and with the bootstrap ports that were learnt."""
    rows = list(identities)
    names = [row.instance.name for row in rows]
    out: list[Identity] = []
    for row in rows:
        if row.mismatch and row.instance.role.value not in row.instance.name:
            row = replace(row, instance=replace(row.instance, name=free_name(row.instance.role, names)))
            names.append(row.instance.name)
        out.append(_with_port(row, ports.get(_place(row.instance.url))))
    return tuple(sorted(out, key=lambda row: list(Role).index(row.instance.role)))


def _with_port(row: Identity, listed: int | None) -> Identity:
    """The identity with the bootstrap port that a router lists for it; its own account of it wins and is compared."""
    own = row.instance.bootstrap_port
    if row.instance.role is not Role.PREFILL or listed is None or listed == own:
        return row
    if own is None:
        return replace(row, instance=replace(row.instance, bootstrap_port=listed))
    return replace(row, todo=(*row.todo, f"its bootstrap port is {own} by its own account, {listed} by a router's"))


def free_name(role: Role, taken: Iterable[str]) -> str:
    """``prefill-2``, where prefill-0 and prefill-1 are taken."""
    names = set(taken)
    return next(name for number in range(len(names) + 1) if (name := f"{role}-{number}") not in names)


# --- engines -----------------------------------------------------------------------------------------------------


def _engine(instance: Instance, seen: SeenOf) -> Identity:
    info = _value(seen, instance, Fact.SERVER_INFO, ServerInfo)
    page = _value(seen, instance, Fact.METRICS, EngineMetrics)
    if page is not None and page.engine == "vllm":
        return Identity(replace(instance, engine="vllm"), True, ("vLLM, which does not tell its role",))
    if info is None:
        return Identity(instance, False, tuple(_metrics_facts(instance, seen)), tuple(_unasked(instance, seen)))
    role = MODES.get(info.mode or "", instance.role)
    mismatch = _mismatch(instance, info)
    known = replace(instance, role=role, bootstrap_port=_bootstrap_port(instance, role, info))
    facts = (*_settings(info), *_metrics_facts(instance, seen))
    return Identity(known, True, facts, tuple(_metrics_todo(instance, seen)), mismatch)


def _mismatch(instance: Instance, info: ServerInfo) -> str | None:
    if info.mode is None or info.mode == instance.role.value:
        return None
    said = f"named as {instance.role}, but says disaggregation_mode {info.mode}"
    return said if info.mode in MODES else f"{said}: it takes no part in prefill/decode disaggregation"


def _bootstrap_port(instance: Instance, role: Role, info: ServerInfo) -> int | None:
    port = info.args.get("disaggregation_bootstrap_port")
    if role is not Role.PREFILL:
        return None
    return port if isinstance(port, int) and 1 <= port <= 65535 else instance.bootstrap_port


def _settings(info: ServerInfo) -> Iterator[str]:
    yield f"SGLang {info.version}" if info.version else "SGLang of unknown release"
    if info.mode:
        yield info.mode
    for key, word in (("tp_size", "tp"), ("pp_size", "pp"), ("dp_size", "dp")):
        size = info.args.get(key)
        if isinstance(size, int) and not isinstance(size, bool):
            yield f"{word} {size}"
    model = info.args.get("served_model_name")
    if isinstance(model, str) and model:
        yield f"model {model}"


def _metrics_facts(instance: Instance, seen: SeenOf) -> Iterator[str]:
    row = seen.get((instance.name, Fact.METRICS))
    if row is not None and isinstance(row.got, Seen):
        yield "metrics on"
    elif row is not None and isinstance(row.got, Missed):
        yield "metrics off" if row.got.why is Why.METRICS_DISABLED else f"metrics not readable ({row.got.why})"


def _metrics_todo(instance: Instance, seen: SeenOf) -> Iterator[str]:
    row = seen.get((instance.name, Fact.METRICS))
    if row is not None and isinstance(row.got, Missed) and row.got.why is Why.METRICS_DISABLED:
        yield "start it with --enable-metrics: without, most of what pdctl judges by is not there"


def _unasked(instance: Instance, seen: SeenOf) -> Iterator[str]:
    row = seen.get((instance.name, Fact.SERVER_INFO))
    missed = row.got if row is not None and isinstance(row.got, Missed) else Missed(Why.NOT_ASKED)
    if missed.why is Why.AUTH:
        yield "it wants an API key: name a variable with api_key_env, or a file with api_key_file"
    if _value(seen, instance, Fact.WORKERS, Workers) is not None:
        yield "it lists workers, as a router does: give it as --router"
        return
    yield f"could not be asked who it is: {missed.detail or missed.why}"
    yield from _metrics_todo(instance, seen)


# --- routers -----------------------------------------------------------------------------------------------------


def _router(instance: Instance, seen: SeenOf) -> Identity:
    row = seen.get((instance.name, Fact.WORKERS))
    workers = _value(seen, instance, Fact.WORKERS, Workers)
    todo = list(_router_todo(instance, seen))
    if workers is None:
        missed = row.got if row is not None and isinstance(row.got, Missed) else Missed(Why.NOT_ASKED)
        todo.insert(0, f"could not be asked for its workers: {missed.detail or missed.why}")
        return Identity(instance, False, tuple(_metrics_facts(instance, seen)), tuple(todo))
    return Identity(instance, True, (_counted(workers), *_metrics_facts(instance, seen)), tuple(todo))


def _counted(workers: Workers) -> str:
    kinds = [row.kind or "unknown" for row in workers.rows]
    parts = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    sick = sum(row.healthy is False for row in workers.rows)
    return f"workers: {', '.join(parts) or 'none'}{f' ({sick} unhealthy by its account)' if sick else ''}"


def _router_todo(instance: Instance, seen: SeenOf) -> Iterator[str]:
    if instance.metrics_url is None:
        yield (
            "where its metrics are cannot be told from its URL: they are on a port of their own (--prometheus-port, "
            "29000 unless given); add a line metrics, or give --router URL,METRICS_URL"
        )


def _workers(router: Instance, seen: SeenOf) -> tuple[Worker, ...]:
    workers = _value(seen, router, Fact.WORKERS, Workers)
    return workers.rows if workers is not None else ()


def _worker_url(url: str) -> str:
    """The address alone: data-parallel-aware routers append @RANK, and some list workers without a scheme."""
    bare = url.rpartition("@")[0] if url.rpartition("@")[2].isdigit() and "@" in url else url
    return (bare if "://" in bare else f"http://{bare}").rstrip("/")


def _place(url: str | None) -> str:
    """host:port of a URL, by which two spellings of one address are told to be one."""
    try:
        parts = urlsplit(url or "")
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return url or ""
    host = (parts.hostname or "").replace("localhost", "127.0.0.1")
    return f"{host}:{port}"


def _value(seen: SeenOf, instance: Instance, fact: Fact, kind: type[T]) -> T | None:
    row = seen.get((instance.name, fact))
    return row.got.value if row is not None and isinstance(row.got, Seen) and isinstance(row.got.value, kind) else None
