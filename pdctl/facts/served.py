"""Engines and routers among a host's processes: their main processes, and what tells the settings of each.

A scheduler is none: it belongs to a main process. Routers since sglang-router 0.2.0 hide their command line behind a
title (``sglang::router``, ``smg::router``); their unit's ExecStart, a script or the ports they listen on tell the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from pdctl.facts.flags import ROUTER, SGLANG, read_flags, read_launch
from pdctl.facts.kin import with_descendants
from pdctl.facts.proc_listing import Listed
from pdctl.facts.titles import MAIN, ROUTER_PART, is_retitled, part_of
from pdctl.model.host import ScriptFile, Sockets, Unit
from pdctl.model.served import Served

PROGRAMS = ("python", "pypy", "sglang", "vllm", "smg", "amg")
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_BEFORE = SHELLS | {"env", "nice", "ionice", "nohup", "setsid", "numactl", "taskset", "chrt", "exec", "stdbuf", "time"}
# Units whose cgroup holds what people or other programs started, not what the unit itself is.
_KEEPERS = re.compile(
    r"(?:sshd?|crond?|atd|docker|containerd|podman|kubelet|k3s|slurmd|supervisord?|user|getty|tmux|screen)(?:@.*)?$"
)
_ARGV = re.compile(r"argv\[\]=(.*?) ;")
_FILE = re.compile(r"(?:append|file|truncate):(/.*)")
_CONTAINER = re.compile(r"(?:docker|cri-containerd|crio|libpod)-([0-9a-f]{12})[0-9a-f]*\.scope")


@dataclass(frozen=True, slots=True)
class Main:
    """The main process of an engine or router, with what descends from it (itself included) and what it descends from,
    nearest first. ``is_hidden``: its title shows no flags."""

    row: Listed
    launcher: str
    flags: Mapping[str, str]
    kin: tuple[Listed, ...]
    ancestors: tuple[Listed, ...]
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class Links:
    """Where a process's stderr and stdout go ("" where that is hidden), and whether its network and its files are not
    those of the host (None where that is hidden)."""

    stderr: str = ""
    stdout: str = ""
    own_network: bool | None = None
    own_files: bool | None = None


def mains_of(rows: Sequence[Listed]) -> tuple[Main, ...]:
    """The main processes of engines and routers, by their number."""
    by_pid = {row.pid: row for row in rows}
    found = {row.pid: launch for row in rows if (launch := _launch(row)) is not None}
    out = []
    for pid, (launcher, flags) in found.items():
        row, above = by_pid[pid], _ancestors(by_pid[pid], by_pid)
        if any(found.get(a.pid, ("",))[0] == launcher for a in above):
            continue  # a copy of its parent that has not got its own title yet
        kin = with_descendants([row], rows)
        out.append(Main(row, launcher, flags, kin, above, is_retitled(row.title)))
    return tuple(out)


def _launch(row: Listed) -> tuple[str, dict[str, str]] | None:
    """Which program a process is and with which flags, None for one that is none of ours, or only names it."""
    if row.state == "Z" or not row.argv:
        return None
    if is_retitled(row.title):
        part = part_of(row.title)
        return (ROUTER if part == ROUTER_PART else SGLANG, {}) if part in (MAIN, ROUTER_PART) else None
    if not any(name.startswith(PROGRAMS) for name in (PurePosixPath(row.argv[0]).name, row.comm)):
        return None
    launcher, flags = read_launch(row.argv)
    return (launcher, flags) if launcher is not None else None


def _ancestors(row: Listed, by_pid: Mapping[int, Listed]) -> tuple[Listed, ...]:
    out: list[Listed] = []
    while (parent := by_pid.get(row.ppid)) is not None and parent not in out and parent.pid != row.pid:
        out.append(parent)
        row = parent
    return tuple(out)


def listening_of(main: Main, sockets: Sockets | None) -> tuple[tuple[str, int], ...] | None:
    """Addresses and ports that the process or its descendants listen on; None where the listing names no processes."""
    if sockets is None or not sockets.owners:
        return None
    pids = {row.pid for row in main.kin}
    mine = {(r.local, r.local_port) for r in sockets.rows if r.state == "LISTEN" and r.pid in pids}
    return tuple(sorted(mine, key=lambda place: (place[1], place[0]))) or _hidden(sockets)


def _hidden(sockets: Sockets) -> tuple[tuple[str, int], ...] | None:
    """Nothing at all, where the listing names the owner of every listener."""
    return None if any(r.state == "LISTEN" and r.pid is None for r in sockets.rows) else ()


# --- units, scripts, files of settings -----------------------------------------------------------------------------


def exec_words(unit: Unit) -> tuple[str, ...]:
    """The words of a unit's ExecStart, as far as systemctl shows them (without their quotes)."""
    found = _ARGV.findall(unit.properties.get("ExecStart", ""))
    return tuple(found[-1].replace('"', " ").replace("'", " ").split()) if found else ()


def script_in(words: Sequence[str]) -> str | None:
    """The script that a command line runs: the path after a shell, env and the like, or the command itself where it is
    a path. A program of ours or an interpreter is none.

    >>> script_in(["/bin/bash", "-l", "/opt/serve/prefill.sh"])
    '/opt/serve/prefill.sh'
    """
    if read_launch(words)[0] is not None:
        return None
    for word in words:
        name = PurePosixPath(word).name
        if word.startswith("-") or name in _BEFORE or ("=" in word and not word.startswith("/")):
            continue
        return None if name.startswith(PROGRAMS) or not ("/" in word or name.endswith(".sh")) else word
    return None


def script_of_ancestors(main: Main) -> str | None:
    """The script among a process's ancestors that a shell runs; None where it has replaced itself by the program."""
    shells = (row for row in main.ancestors if row.argv and PurePosixPath(row.argv[0]).name.lstrip("-") in SHELLS)
    return next((script for row in shells if (script := script_in(row.argv))), None)


def unit_doubt(main: Main, unit: Unit) -> str | None:
    """Why a unit that holds the process is not the one that serves it, None where it is."""
    name = unit.properties.get("Id", "")
    if _KEEPERS.match(name.removesuffix(".service")):
        return f"it was started below {name}, which is no unit of its own"
    if unit.main_pid is not None and unit.main_pid not in {main.row.pid, *(row.pid for row in main.ancestors)}:
        return f"it is in the cgroup of {name}, but did not come from its main process {unit.main_pid}"
    return None


def container_of(row: Listed) -> str | None:
    """The short name of the container whose scope a process is in."""
    found = _CONTAINER.fullmatch(row.unit or "")
    return found[1] if found else None


def config_flags(text: str, launcher: str = SGLANG) -> dict[str, str]:
    """The options in a file given with ``--config``: YAML, keys as the long options without their dashes, true for a
    switch (sglang's server_args_config_parser). Raises ValueError for what is no such file."""
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(document, dict):
        raise ValueError("no mapping of options")
    words: list[str] = []
    for key, value in document.items():
        if value is False or value is None:
            continue
        values = value if isinstance(value, list) else [] if value is True else [value]
        words += [f"--{str(key).replace('_', '-')}", *(str(v) for v in values)]
    return read_flags(words, launcher)


def log_of(links: Links, unit: Unit | None) -> str | None:
    """The file a process writes its log to: where its stderr goes, else what the unit redirects."""
    for target in (links.stderr, links.stdout):
        if target.startswith("/") and not target.startswith("/dev/") and not target.endswith(" (deleted)"):
            return None if links.own_files else target
    for name in ("StandardError", "StandardOutput"):
        found = _FILE.fullmatch(unit.properties.get(name, "")) if unit is not None else None
        if found and not links.stderr:
            return found[1]
    return None


def read_links(body: bytes) -> Links:
    """What ``asks_discover.links_ask`` brings: six lines."""
    rows = (*(line.strip() for line in body.decode("utf-8", "replace").splitlines()), *[""] * 6)[:6]
    stderr, stdout, network, ours, files, our_files = rows
    differs = [a != b if a and b else None for a, b in ((network, ours), (files, our_files))]
    return Links(stderr, stdout, differs[0], differs[1])


# --- all of it -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """What else is known of a main process: its unit, the script it came from, the text of its file of settings (or why
    there is none), its links."""

    unit: Unit | None = None
    script: ScriptFile | None = None
    script_path: str | None = None
    config: str | None = None
    config_failure: str | None = None
    links: Links = Links()
    notes: tuple[str, ...] = ()


def served_of(main: Main, told: Told, sockets: Sockets | None) -> Served:
    """A main process with everything that is known of it."""
    doubt = unit_doubt(main, told.unit) if told.unit is not None else None
    unit = told.unit if doubt is None else None
    flags, by = _settings(main, unit, told.script)
    flags, more = _with_config(flags, main.launcher, told)
    box = container_of(main.row)
    notes = [*told.notes, *more, *([doubt] if doubt else []), *_log_notes(told.links, unit)]
    if box is not None or told.links.own_files:
        notes.append(f"it runs in a container{f' ({box})' if box else ''}: paths of its files are those inside")
    return Served(
        main.row.pid, main.launcher, flags, by, listening_of(main, sockets),
        unit=unit.properties.get("Id") if unit is not None else None,
        script=told.script_path,
        log=log_of(told.links, unit),
        apart=bool(told.links.own_network),
        notes=tuple(notes),
    )  # fmt: skip


def _settings(main: Main, unit: Unit | None, script: ScriptFile | None) -> tuple[Mapping[str, str], str]:
    """The flags and what told them: the process itself, else its unit, else its script."""
    if not main.is_hidden:
        return main.flags, "its command line"
    if unit is not None and unit.launcher == main.launcher:
        return unit.flags, f"ExecStart of {unit.properties.get('Id', 'its unit')}"
    if script is not None and script.launcher == main.launcher:
        sure = {name: value for name, value in script.flags.items() if name not in script.doubtful}
        return sure, f"its script {script.path}"
    return {}, ""


def _with_config(flags: Mapping[str, str], launcher: str, told: Told) -> tuple[Mapping[str, str], list[str]]:
    """The flags with those of the file of settings, which the command line overrides."""
    path = flags.get("--config")
    if path is None:
        return flags, []
    if told.config is None:
        return flags, [f"{path} holds settings of its own and could not be read: {told.config_failure or 'no answer'}"]
    try:
        return {**config_flags(told.config, launcher), **flags}, [f"settings partly from {path}"]
    except ValueError as error:
        return flags, [f"{path} could not be read: {error}"]


def _log_notes(links: Links, unit: Unit | None) -> list[str]:
    if log_of(links, unit) is not None:
        return []
    if links.stderr.startswith("/") and links.own_files:
        return [f"it writes to {links.stderr} inside its container: not reachable by that path from the host"]
    if links.stderr.startswith("pipe:"):
        return ["its output goes into a pipe (tee? a container's runtime?): where the log is cannot be told"]
    if links.stderr.startswith("/dev/") and unit is None:
        return [f"its output goes to {links.stderr}: there is no log"]
    if not links.stderr and unit is None:
        return ["where its output goes is hidden from this user: where the log is cannot be told"]
    return []


def without_shared_units(served: Iterable[Served]) -> tuple[Served, ...]:
    """The same, but a unit that starts several of them is no unit of any: all of its processes would be each one's."""
    rows = tuple(served)
    names = [row.unit for row in rows if row.unit is not None]
    shared = {name for name in names if names.count(name) > 1}
    return tuple(
        replace(row, unit=None, notes=(*row.notes, f"{row.unit} starts others as well: it is named for none of them"))
        if row.unit in shared
        else row
        for row in rows
    )
