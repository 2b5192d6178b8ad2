"""What runs found in the last hour, reduced to what tells whether it got worse: a mute starts from it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdctl.reach.state import own_folder, read_own, replace_whole, state_folder

if TYPE_CHECKING:
    from pdctl.model.cluster import Cluster
    from pdctl.model.finding import Report
    from pdctl.model.mute import Print

SCHEMA = "pdctl.found/1"
LAST = "last"  # the folder, a file a cluster
KEEP_FOUND = timedelta(hours=1)
BAD = (TypeError, ValueError, KeyError, AttributeError, RecursionError)


def note_found(report: Report) -> None:
    """Keeps how each finding was, for a mute to start from, and for an hour those of earlier runs that looked longer
    or at more. Where the disk does not take it, a mute starts from the next run that sees its finding."""
    rows: list[dict[str, Any]] = []
    if report.findings:  # what mutes are made of is not imported for nothing
        from pdctl.model.mute import print_of, rows_of

        at, prints = report.end.isoformat(), rows_of(print_of(f) for f in report.findings)
        named = ({"finding": f.name, "on": f.subject, "at": at} for f in report.findings)
        rows = [{**name, **row} for name, row in zip(named, prints, strict=True)]
    known = {(row["finding"], row["on"]) for row in rows}
    try:
        path = _last_path(report.cluster)
        old = [r for r in _found_before(path, report.end - KEEP_FOUND) if (r["finding"], r["on"]) not in known]
        if rows or old:
            own_folder(path.parent)
            replace_whole(path, json.dumps({"schema": SCHEMA, "found": [*old, *rows]}).encode())
    except OSError:
        return


def last_found(cluster: Cluster, finding: str, on: str, now: datetime) -> tuple[tuple[Print, ...], datetime] | None:
    """How the finding was in the newest run of the last hour that saw it, and when that was; None where none did."""
    from pdctl.model.mute import prints_in

    try:
        rows = _found_before(_last_path(cluster.name), now - KEEP_FOUND)
    except OSError:
        return None
    about = [r for r in rows if r["finding"] == finding and on in (r["on"], *r["on"].split("->"))]
    newest = max((r["at"] for r in about), default=None)
    try:
        prints = prints_in([r for r in about if r["at"] == newest])
    except BAD:
        return None
    return None if prints is None or newest is None else (prints, aware(newest))


def _found_before(path: Path, since: datetime) -> list[dict[str, Any]]:
    """What runs found since then; nothing where the file cannot be made out."""
    data = read_own(path)
    try:
        value = json.loads(data) if data is not None else {}
        return [dict(r) for r in value.get("found", ()) if aware(r["at"]) >= since and r["finding"] and r["on"]]
    except BAD:
        return []


def _last_path(cluster: str) -> Path:
    safe = "".join(c if (c.isalnum() and c.isascii()) or c in "-_" else f"%{ord(c):x}" for c in cluster)
    return state_folder(LAST, f"{safe[:100] or 'cluster'}.json")


def aware(text: object) -> datetime:
    """The time that a file of ours holds. Raises ValueError for what is none, or has no zone."""
    when = datetime.fromisoformat(str(text))
    if when.tzinfo is None:
        raise ValueError(f"{text}: a time without zone")
    return when
