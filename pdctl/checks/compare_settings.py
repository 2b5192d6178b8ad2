"""What instances are made of, compared: releases, settings, environments, scripts, files, checkouts, restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from pdctl.checks.provenance import last_restart, version_of
from pdctl.checks.settings import Change, differences
from pdctl.checks.view import engine_view
from pdctl.model.answer import Fact
from pdctl.model.cluster import Instance
from pdctl.model.comparison import Difference, Kind
from pdctl.model.engine import EngineMetrics, Gauge, ServerInfo
from pdctl.model.host import Checkout, Cmdline, Environ, Processes, ScriptFile, Unit, WatchedFile
from pdctl.model.secrets import is_masked
from pdctl.model.window import Window

# Of what a server says of itself: no setting, or another at each start.
NO_SETTINGS = frozenset({"version", "random_seed", "nccl_port", "last_gen_throughput", "status", "uptime"})
# Of an environment: set anew by shells, sessions and systemd at each start.
NO_VARIABLES = frozenset(
    {
        "_", "PWD", "OLDPWD", "SHLVL", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MAINPID", "TERM",
        "LS_COLORS", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "XDG_SESSION_ID", "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS", "TMUX", "TMUX_PANE", "STY", "WINDOW", "COLUMNS", "LINES", "MEMORY_PRESSURE_WATCH",
    }
)  # fmt: skip
TOLD_S = 1.0  # seconds by which two readings of one start may differ
MOST = 60  # characters of a value


@dataclass(frozen=True, slots=True)
class Told:
    """What a comparison of plain things brought: the differences, and how many things were alike."""

    differences: tuple[Difference, ...] = ()
    alike: int = 0


def compare_versions(a: Window, b: Window, name: str) -> Told | None:
    """The releases; None where one side does not say."""
    old, new = version_of(a, name), version_of(b, name)
    if old is None or new is None:
        return None
    return Told(alike=1) if old == new else Told((Difference(Kind.VERSION, name, "release", old, new),))


def compare_settings(a: Window, b: Window, name: str) -> Told | None:
    """The settings in force by /server_info, else the command lines; None where one side does not say. A secret is
    known by its masked form alone, which each run makes anew: such are left out."""
    for read in (_resolved, _started_with):
        old, new = read(a, name), read(b, name)
        if old is not None and new is not None:
            return _mapped(Kind.SETTING, name, "flag", old, new)
    return None


def compare_environments(a: Window, b: Window, name: str) -> Told | None:
    old, new = (w.last(name, Fact.ENVIRON, Environ) for w in (a, b))
    if old is None or new is None:
        return None
    sides = ({k: v for k, v in at.value.values.items() if k not in NO_VARIABLES} for at in (old, new))
    return _mapped(Kind.SETTING, name, "variable", *sides)


def _resolved(window: Window, name: str) -> dict[str, str] | None:
    info = window.last(name, Fact.SERVER_INFO, ServerInfo)
    if info is None or not info.value.args:
        return None
    return {f"--{k.replace('_', '-')}": str(v) for k, v in info.value.args.items() if k not in NO_SETTINGS}


def _started_with(window: Window, name: str) -> dict[str, str] | None:
    line = window.last(name, Fact.CMDLINE, Cmdline)
    return dict(line.value.flags) if line is not None and line.value.launcher else None


def _mapped(kind: Kind, name: str, word: str, old: Mapping[str, str], new: Mapping[str, str]) -> Told:
    hidden = {k for side in (old, new) for k, v in side.items() if is_masked(v) or "***" in v}
    old, new = ({k: v for k, v in side.items() if k not in hidden} for side in (old, new))
    changes = tuple(differences(word, old, new))
    return Told(tuple(_changed(kind, name, c) for c in changes), len({*old, *new}) - len(changes))


def _changed(kind: Kind, name: str, change: Change) -> Difference:
    return Difference(kind, name, change.name, _short(change.before), _short(change.after))


def _short(value: str | None) -> str | None:
    if value is None or len(value) <= MOST:
        return value
    return f"{value[: MOST - 4]} ..."


# --- files -------------------------------------------------------------------------------------------------------


def compare_scripts(a: Window, b: Window, name: str) -> Told | None:
    """Serve scripts by what they set, and where that is the same by their text."""
    old, new = (_newest(w, name) for w in (a, b))
    both = [path for path in old if path in new]
    if not both:
        return None
    found: list[Difference] = []
    for path in both:
        found += _script(name, path, old[path], new[path])
    return Told(tuple(found), sum(1 for path in both if old[path].text == new[path].text))


def _newest(window: Window, name: str) -> dict[str, ScriptFile]:
    return {at.value.path: at.value for at in window.seen(name, Fact.SCRIPT, ScriptFile)}


def _script(name: str, path: str, old: ScriptFile, new: ScriptFile) -> Iterator[Difference]:
    if old.text == new.text:
        return
    changes = [*differences("flag", old.flags, new.flags), *differences("variable", old.variables, new.variables)]
    for change in changes:
        yield Difference(
            Kind.SCRIPT, name, f"{path}: {change.name}", _short(change.before), _short(change.after)
        )  # fmt: skip
    if not changes:
        yield Difference(Kind.SCRIPT, name, path, "its text", "another text that sets the same")


def compare_files(a: Window, b: Window, subject: str) -> Told | None:
    """Watched files by their digest, checkouts by their commit."""
    old, new = (
        {at.value.path: at.value for at in w.seen(subject, Fact.FILE, WatchedFile)} for w in (a, b)
    )  # fmt: skip
    both = [p for p in old if p in new and old[p].sha256 is not None and new[p].sha256 is not None]
    found = [
        Difference(Kind.SCRIPT, subject, path, _dated(old[path].mtime), _dated(new[path].mtime))
        for path in both
        if old[path].sha256 != new[path].sha256
    ]
    heads = [_heads(w, subject) for w in (a, b)]
    checked = [path for path in heads[0] if path in heads[1]]
    found += [
        Difference(Kind.SCRIPT, subject, f"checkout {path}", heads[0][path], heads[1][path])
        for path in checked
        if heads[0][path] != heads[1][path]
    ]
    count = len(both) + len(checked)
    return Told(tuple(found), count - len(found)) if count else None


def _heads(window: Window, subject: str) -> dict[str, str]:
    out = {}
    for at in window.seen(subject, Fact.GIT, Checkout):
        dirty = f" and {len(at.value.dirty)} uncommitted file(s)" if at.value.dirty else ""
        out[at.value.path or "?"] = f"{(at.value.head or 'no commit')[:12]}{dirty}"
    return out


def _dated(when: datetime | None) -> str:
    return f"of {when:%Y-%m-%d %H:%M:%S}" if when else "of unknown date"


# --- restarts ----------------------------------------------------------------------------------------------------


def compare_restarts(a: Window, b: Window, instance: Instance) -> Told | None:
    """Whether the process of one side is another than that of the other, and restarts seen within each; None where
    nothing tells."""
    found = list(_within(a, b, instance))
    same = _same_process(a, b, instance)
    if same is False:
        found.append(Difference(Kind.RESTART, instance.name, "process", "one process", "another: restarted between"))
    units = [w.last(instance.name, Fact.UNIT, Unit) for w in (a, b)]
    counts = [u.value.restarts if u else None for u in units]
    if None not in counts and counts[0] != counts[1]:
        before, after = map(str, counts)
        found.append(Difference(Kind.RESTART, instance.name, "NRestarts of its unit", before, after))
    if same is None and not found:
        return None
    return Told(tuple(found), 0 if found else 1)


def _within(a: Window, b: Window, instance: Instance) -> Iterator[Difference]:
    if not instance.is_engine:
        return
    inside = [engine_view(w, instance).restarted is not None for w in (a, b)]
    if inside[0] != inside[1]:
        before, after = ("restarted in the window" if seen else "went on" for seen in inside)
        yield Difference(Kind.RESTART, instance.name, "within the window", before, after)


def _same_process(a: Window, b: Window, instance: Instance) -> bool | None:
    starts = [_started(w, instance.name) for w in (a, b)]
    if starts[0] is not None and starts[1] is not None:
        return abs(starts[0] - starts[1]) <= TOLD_S
    earlier, later = (a, b) if a.start <= b.start else (b, a)
    pages = [w.seen(instance.name, Fact.METRICS, EngineMetrics) for w in (earlier, later)]
    if not pages[0] or not pages[1] or earlier.end > later.start:
        return None
    return last_restart((pages[0][-1], pages[1][0])) is None


def _started(window: Window, name: str) -> float | None:
    """When its main process started, in epoch seconds: by its page, else by the list of its processes."""
    page = window.last(name, Fact.METRICS, EngineMetrics)
    told = page.value.total(Gauge.START_TIME) if page else None
    if told is not None:
        return told
    listed = window.last(name, Fact.PROCESSES, Processes)
    pids = {p.pid for p in listed.value.rows} if listed else set()
    roots = [p for p in listed.value.rows if p.ppid not in pids] if listed else []
    return roots[0].started.timestamp() if len(roots) == 1 and roots[0].started is not None else None
