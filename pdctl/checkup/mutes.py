"""Mutes on disk: this user's, and those beside the inventory that everybody who reads it shares.

    ~/.local/state/pdctl/mutes.json      this user's, for every cluster; also what is known of mutes since: how the
                                         finding was when it was first seen, and which lifted themselves
    pdctl.toml -> pdctl.mutes.json       beside the inventory (--shared): travels with it, in a repository for instance

A mute hides nothing and fails towards the alarm: one that cannot be read mutes nothing, and that is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdctl.checkup.lastfound import BAD, aware
from pdctl.errors import PdctlError, UsageError
from pdctl.reach.state import Held, locked, own_folder, read_own, replace_whole, state_folder

if TYPE_CHECKING:
    from pdctl.model.cluster import Cluster
    from pdctl.model.finding import Report
    from pdctl.model.mute import Lifted, Mute, Print

SCHEMA = "pdctl.mutes/1"
WAIT_S = 5.0  # for another command that writes mutes
MOST_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Mutes:
    """The mutes of a cluster, and those that lifted themselves before their time, each with why. ``notes`` say what
    could not be read or written."""

    rows: list[Mute] = field(default_factory=list)
    lifted: list[Lifted] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


# --- where -------------------------------------------------------------------------------------------------------


def own_path() -> Path:
    """The file of this user's mutes. Raises OSError where there is no place for it."""
    return state_folder("mutes.json")


def shared_path(cluster: Cluster) -> Path | None:
    """The file beside the inventory, None for a cluster that comes from no inventory file."""
    source = Path(cluster.source)
    return source.with_name(f"{source.stem}.mutes.json") if source.suffix == ".toml" else None


# --- reading -----------------------------------------------------------------------------------------------------


def mutes_of(cluster: Cluster) -> Mutes:
    """Every mute of the cluster, this user's and the shared ones, what is over included."""
    found = Mutes()
    own = _read(found, _own_path(found), own=True)
    shared = _read(found, shared_path(cluster), own=False)
    if not own and not shared:
        return found
    for value, is_shared in ((own, False), (shared, True)):
        for row in _listed(value.get("mutes")):
            mute = _mute(row, is_shared, found)
            if mute is not None and (is_shared or row.get("cluster") == cluster.name):
                found.rows.append(_since(mute, own))
    _set_lifted_apart(found, own.get("lifted"))
    return found


def _set_lifted_apart(found: Mutes, known: object) -> None:
    """Takes those out that this user's runs found lifted."""
    from pdctl.model.mute import Lifted

    known = known if isinstance(known, dict) else {}
    for mute in [m for m in found.rows if m.key in known]:
        row = known[mute.key]
        found.rows.remove(mute)
        found.lifted.append(Lifted(mute, str(row.get("why", "")) if isinstance(row, dict) else ""))


def _own_path(found: Mutes) -> Path | None:
    try:
        return own_path()
    except OSError as error:
        found.notes.append(f"mutes of this user cannot be read: {error.strerror}")
        return None


def _read(found: Mutes, path: Path | None, *, own: bool) -> dict[str, Any]:
    """The document in the file; empty where there is none, or none that can be read."""
    if path is None:
        return {}
    try:
        return _document(path, own=own)
    except (OSError, *BAD) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is damaged"
        found.notes.append(f"{path} mutes nothing: {why}")
        return {}


def _document(path: Path, *, own: bool) -> dict[str, Any]:
    """Raises OSError, or one of ``BAD`` for what is no document of mutes."""
    data = read_own(path) if own else _shared_bytes(path)
    if data is None:
        return {}
    value = json.loads(data)
    if value["schema"] != SCHEMA:
        raise ValueError("another schema")
    return dict(value)


def _shared_bytes(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read(MOST_BYTES)


def _listed(value: object) -> Iterator[Mapping[str, Any]]:
    return (row for row in (value if isinstance(value, list) else ()) if isinstance(row, dict))


def _mute(row: Mapping[str, Any], shared: bool, found: Mutes) -> Mute | None:
    from pdctl.model.mute import Mute, prints_in

    try:
        return Mute(
            str(row["finding"]), str(row["on"]), aware(row["made"]), aware(row["until"]), str(row["who"]),
            str(row["why"]), bool(row.get("sticky", False)), prints_in(row.get("was")), shared,
        )  # fmt: skip
    except BAD as error:
        found.notes.append(f"a mute is left out: {type(error).__name__}: {error}")
        return None


def _since(mute: Mute, own: Mapping[str, Any]) -> Mute:
    """The mute with how its finding was when this user's runs first saw it, where it was muted unseen."""
    from pdctl.model.mute import prints_in

    if mute.was is not None:
        return mute
    try:
        return replace(mute, was=prints_in(own["first_seen"][mute.key]["was"]))
    except BAD:
        return mute


# --- judging -----------------------------------------------------------------------------------------------------


def applied(report: Report, cluster: Cluster) -> tuple[Report, tuple[str, ...]]:
    """The report with its mutes applied, and what to say of them. What lifted itself, and how a finding was when it was
    first seen muted, is kept where the disk takes it; where not, each run finds it out anew."""
    found = mutes_of(cluster)
    if not found.rows:
        return report, tuple(found.notes)
    from pdctl.model.mute import apply

    muted = apply(report, found.rows)
    if muted.lifted or muted.first_seen:
        _learn(muted.lifted, muted.first_seen)
    return muted.report, (*found.notes, *map(str, muted.lifted))


def _learn(lifted: Iterable[Lifted], first: Iterable[tuple[Mute, tuple[Print, ...]]]) -> None:
    from pdctl.model.mute import rows_of

    try:
        with _own_document() as value:
            told = {row.mute.key: {"why": row.why, "until": row.mute.until.isoformat()} for row in lifted}
            seen = {m.key: {"was": rows_of(prints), "until": m.until.isoformat()} for m, prints in first}
            value["lifted"] = {**value.get("lifted", {}), **told}
            value["first_seen"] = {**value.get("first_seen", {}), **seen}
    except (OSError, Held, *BAD):
        return


# --- writing -----------------------------------------------------------------------------------------------------


def add(mutes: Iterable[Mute], cluster: Cluster, now: datetime, *, shared: bool) -> Path:
    """Puts the mutes with the others and returns the file; those of the same finding and subject give way, those that
    are over are left out. Raises PdctlError where they cannot be kept."""
    new = tuple(mutes)
    taken = {(m.finding, m.on) for m in new}
    with _document_to_change(cluster, shared=shared) as (path, value):
        rows = [r for r in _listed(value.get("mutes")) if not _is_over(r, now)]
        kept = [r for r in rows if (r["finding"], r["on"]) not in taken or not _is_of(r, cluster, shared)]
        value["mutes"] = [*kept, *(_document_row(m, cluster, shared) for m in new)]
        _forget(value, now)
    return path


def lift(cluster: Cluster, finding: str, ons: tuple[str, ...]) -> list[Mute]:
    """Ends the mutes of the finding on these instances (all, when none is named), and returns them. Raises PdctlError
    where a file cannot be changed."""
    gone = [m for m in mutes_of(cluster).rows if m.finding == finding and (not ons or m.on in ons)]
    for shared in sorted({m.shared for m in gone}):
        keys = {(m.finding, m.on) for m in gone}
        with _document_to_change(cluster, shared=shared) as (_, value):
            rows = _listed(value.get("mutes"))
            value["mutes"] = [r for r in rows if (r["finding"], r["on"]) not in keys or not _is_of(r, cluster, shared)]
    return gone


@contextmanager
def _document_to_change(cluster: Cluster, *, shared: bool) -> Iterator[tuple[Path, dict[str, Any]]]:
    path: Path | None = None
    try:
        if shared:
            path = shared_path(cluster)
            if path is None:
                raise UsageError("--shared keeps mutes beside the inventory, and there is no inventory file")
            value = _document(path, own=False) or {"schema": SCHEMA}
            yield path, value
            replace_whole(path, (json.dumps(value, indent=1) + "\n").encode(), 0o644)
        else:
            path = own_path()
            with _own_document() as value:
                yield path, value
    except Held:
        raise PdctlError("another command is changing the mutes", "Try again in a moment.") from None
    except OSError as error:
        raise PdctlError(f"mutes cannot be kept in {path}: {error.strerror or error}") from None
    except BAD as error:
        raise PdctlError(
            f"{path} is no file of mutes: {error}", "Move it away; nothing in it mutes anything."
        ) from None


@contextmanager
def _own_document() -> Iterator[dict[str, Any]]:
    """This user's document, changed by one process at a time and written back whole."""
    path = own_path()
    own_folder(path.parent)
    with locked(path.with_suffix(".lock"), "", WAIT_S):
        value = _document(path, own=True) or {"schema": SCHEMA}
        yield value
        replace_whole(path, (json.dumps(value, indent=1) + "\n").encode())


def _is_over(row: Mapping[str, Any], now: datetime) -> bool:
    return aware(row["until"]) <= now


def _is_of(row: Mapping[str, Any], cluster: Cluster, shared: bool) -> bool:
    return shared or row.get("cluster") == cluster.name


def _forget(value: dict[str, Any], now: datetime) -> None:
    """Leaves out what is known of mutes that are over."""
    for key in ("lifted", "first_seen"):
        rows = value.get(key)
        if isinstance(rows, dict):
            value[key] = {k: row for k, row in rows.items() if isinstance(row, dict) and not _is_over(row, now)}


def _document_row(mute: Mute, cluster: Cluster, shared: bool) -> dict[str, Any]:
    from pdctl.model.mute import rows_of

    row: dict[str, Any] = {} if shared else {"cluster": cluster.name}
    row |= {"finding": mute.finding, "on": mute.on, "who": mute.who, "why": mute.why}
    row |= {"made": mute.made.isoformat(), "until": mute.until.isoformat()}
    if mute.sticky:
        row["sticky"] = True
    return row | {"was": rows_of(mute.was) if mute.was is not None else None}
