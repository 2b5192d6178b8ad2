"""Finding engines and routers on hosts: one listing of processes and sockets a host, then what each process needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pdctl.facts import asks_discover, asks_host, read
from pdctl.facts.base import Unreadable
from pdctl.facts.proc_listing import read_listing
from pdctl.facts.script import script_of
from pdctl.facts.served import (
    Links,
    Main,
    Told,
    exec_words,
    mains_of,
    read_links,
    script_in,
    script_of_ancestors,
    served_of,
    unit_doubt,
    without_shared_units,
)
from pdctl.looks.hosts import HostLook, HostPlan, looking
from pdctl.model.answer import Answer, Fact, Seen, Why
from pdctl.model.ask import CommandAsk, HttpAsk
from pdctl.model.cluster import Cluster, Host, Instance, Role
from pdctl.model.host import ScriptFile, Sockets, Unit
from pdctl.model.served import HostSeen, Served
from pdctl.reach import local_sockets

PHASE_S = 40.0  # seconds for one phase of asking
METRICS_S = 3.0  # seconds for one answer to whether a port has metrics


@dataclass(slots=True)
class _HostState:
    """What is known of one host so far."""

    host: Host
    mains: tuple[Main, ...] = ()
    sockets: Sockets | None = None
    names: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    failure: str | None = None
    units: dict[str, Unit] = field(default_factory=dict)


def discover(hosts: Sequence[Host], timeout_s: float = PHASE_S) -> tuple[HostSeen, ...]:
    """What serves on each host, or why that is not known. Nothing is changed there, and no engine is asked anything;
    the ports of a router that hides its options are asked for metrics."""
    cluster = Cluster("discovery", (), tuple(hosts))
    with looking(cluster, (), HostPlan(timeout_s)) as look:
        states = [_HostState(host) for host in hosts]
        _list(look, states)
        _ask_units(look, states)
        told = _tell(look, states)
        return tuple(_seen(look, state, told) for state in states)


# --- listings ------------------------------------------------------------------------------------------------------


def _list(look: HostLook, states: Sequence[_HostState]) -> None:
    asks = [
        ask
        for s in states
        for ask in (asks_host.processes_ask(s.host), asks_host.sockets_ask(s.host), asks_discover.names_ask(s.host))
    ]
    answers = {(a.subject, a.fact): a for a in look.ask(asks)}
    for state in states:
        subject = asks_host.host_subject(state.host)
        if state.host.ssh is None and not local_sockets.has_ss():
            ask = asks_host.sockets_ask(state.host)
            answers[subject, Fact.SOCKETS] = local_sockets.listing(ask, clock=look.clock, started=look.clock.now())
        _read_processes(state, answers[subject, Fact.PROCESSES])
        if state.failure is None:
            _read_sockets(state, answers[subject, Fact.SOCKETS])
            state.names = frozenset((answers[subject, Fact.FILE].body or b"").decode("utf-8", "replace").split())


def _read_processes(state: _HostState, answer: Answer) -> None:
    if answer.error is not None or not answer.body:
        state.failure = f"not looked at: {answer.detail or answer.error or 'no answer'}"
        return
    try:
        state.mains = mains_of(read_listing(answer.body))
    except Unreadable as error:
        state.failure = f"its processes could not be listed: {error.detail}"
        return
    if not state.mains:
        state.notes.append("no engine or router runs there, as far as this user is shown its processes")


def _read_sockets(state: _HostState, answer: Answer) -> None:
    got = read(answer, None).got
    if isinstance(got, Seen) and isinstance(got.value, Sockets):
        state.sockets = got.value
        if state.mains and (not got.value.owners or _hides(got.value)):
            state.notes.append(
                "who listens on its ports is not shown to this user (no ss there, or it wants root): log in as "
                "root, or use --become where sudo asks no password"
            )
    elif state.mains:
        state.notes.append(f"its sockets could not be listed: {answer.detail or answer.error}")


def _hides(sockets: Sockets) -> bool:
    listeners = [row for row in sockets.rows if row.state == "LISTEN"]
    return any(row.pid is None for row in listeners)


# --- units, scripts, files of settings -----------------------------------------------------------------------------


def _ask_units(look: HostLook, states: Sequence[_HostState]) -> None:
    asks: dict[str, tuple[_HostState, str, CommandAsk]] = {}
    for state in states:
        for main in state.mains:
            if main.row.unit is not None and main.row.unit.endswith(".service"):
                ask = asks_discover.unit_show_ask(state.host, main.row.unit)
                asks[ask.subject] = (state, main.row.unit, ask)
    for answer in look.ask(ask for _, _, ask in asks.values()):
        state, name, _ = asks[answer.subject]
        row = read(answer, None)
        if isinstance(row.got, Seen) and isinstance(row.got.value, Unit):
            state.units[name] = row.got.value
        else:
            why = row.missed.detail if row.missed is not None else ""
            own = (
                " (a unit of a user's own manager?)"
                if row.missed is not None and row.missed.why is Why.NOT_FOUND
                else ""
            )
            state.notes.append(f"unit {name} could not be asked for: {why or answer.error}{own}")


def _tell(look: HostLook, states: Sequence[_HostState]) -> Mapping[str, Answer]:
    """Every process's links, script and file of settings, by the subject of its ask."""
    asks: list[CommandAsk] = []
    for state in states:
        for main in state.mains:
            asks.append(asks_discover.links_ask(state.host, main.row.pid))
            if (path := main.flags.get("--config") or _unit_of(state, main, "--config")) is not None:
                asks.append(asks_discover.config_ask(state.host, main.row.pid, path))
            path = _script_path(state, main)
            if path is not None and path.startswith("/"):
                asks.append(asks_discover.script_ask(state.host, main.row.pid, path))
    return {answer.subject: answer for answer in look.ask(asks)}


def _unit_of(state: _HostState, main: Main, flag: str) -> str | None:
    unit = state.units.get(main.row.unit or "")
    return unit.flags.get(flag) if unit is not None and main.is_hidden else None


def _script_path(state: _HostState, main: Main) -> str | None:
    """The script a process came from: of its unit's ExecStart, else of a shell above it."""
    unit = state.units.get(main.row.unit or "")
    if unit is not None and unit_doubt(main, unit) is None and (path := script_in(exec_words(unit))) is not None:
        return path
    return script_of_ancestors(main)


def _seen(look: HostLook, state: _HostState, told: Mapping[str, Answer]) -> HostSeen:
    rows = without_shared_units(served_of(main, _told(state, main, told), state.sockets) for main in state.mains)
    rows = tuple(_with_metrics_port(look, state.host, row) for row in rows)
    ports = (
        None if state.sockets is None else frozenset(r.local_port for r in state.sockets.rows if r.state == "LISTEN")
    )
    return HostSeen(state.host, rows, state.names, ports, tuple(state.notes), state.failure)


def _told(state: _HostState, main: Main, answers: Mapping[str, Answer]) -> Told:
    pid, host = main.row.pid, state.host.name
    links = answers.get(f"{host}/pid:{pid}")
    config = answers.get(f"{host}/config:{pid}")
    path, notes = _script_path(state, main), list[str]()
    script = _script(path, answers.get(f"{host}/script:{pid}"), main, notes)
    return Told(
        unit=state.units.get(main.row.unit or ""),
        script=script,
        script_path=path if script is not None or (path is not None and not path.startswith("/")) else None,
        config=(config.body or b"").decode("utf-8", "replace") if config is not None and config.error is None else None,
        config_failure=(config.detail or str(config.error)) if config is not None and config.error else None,
        links=read_links(links.body or b"") if links is not None else Links(),
        notes=tuple(notes),
    )  # fmt: skip


def _script(path: str | None, answer: Answer | None, main: Main, notes: list[str]) -> ScriptFile | None:
    """The script as it reads, None where it is none (a program), or could not be read."""
    if path is None or answer is None:
        return None
    if answer.error is not None or not answer.body:
        notes.append(f"its script {path} could not be read: {answer.detail or answer.error or 'empty'}")
        return None
    if answer.body.startswith(b"\x7fELF") or b"\0" in answer.body[:4096]:
        return None
    role = Role.ROUTER if main.launcher == "router" else Role.PREFILL
    as_who = Instance("x", role) if main.launcher == "router" else None
    return script_of(path, None, answer.body.decode("utf-8", "replace"), as_who)


def _with_metrics_port(look: HostLook, host: Host, served: Served) -> Served:
    """A router without known options: which of the ports it listens on answers with metrics."""
    if served.launcher != "router" or served.by or not served.listening:
        return served
    via = host.name if host.ssh is not None else None
    asks = {port: _metrics_ask(served, port, via) for port in sorted({port for _, port in served.listening})}
    answered = {a.subject for a in look.ask(asks.values()) if a.status == 200}
    ports = [port for port, ask in asks.items() if ask.subject in answered]
    return replace(served, metrics_port=ports[0]) if len(ports) == 1 else served


def _metrics_ask(served: Served, port: int, via: str | None) -> HttpAsk:
    bound = next(address for address, at in served.listening or () if at == port)
    address = "127.0.0.1" if bound in ("*", "0.0.0.0", "::") else f"[{bound}]" if ":" in bound else bound
    return HttpAsk(f"{served.pid}:{port}", Fact.METRICS, f"http://{address}:{port}/metrics", METRICS_S, via=via)
