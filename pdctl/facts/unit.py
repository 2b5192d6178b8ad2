"""What systemd says of a unit."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import text_of
from pdctl.facts.flags import read_launch
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.host import Unit
from pdctl.model.secrets import mask_argv, mask_text

_PROPERTY = re.compile(r"([A-Z][A-Za-z0-9]*)=(.*)")
_STAMP = re.compile(r"(?:\w{3} )?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? ?(\S+)?$")
_ARGV = re.compile(r"argv\[\]=(.*?) ;")
_STARTS = ("ActiveEnterTimestamp", "ExecMainStartTimestamp", "InactiveExitTimestamp")
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?$")
# Zone names that mean one offset everywhere; the others (CST, IST, ...) leave a time unread rather than wrong.
_ZONES = {"UTC": 0, "GMT": 0, "Z": 0, "CET": 60, "CEST": 120, "EET": 120, "EEST": 180, "MSK": 180, "JST": 540,
          "KST": 540, "EDT": -240, "PDT": -420, "PST": -480, "SGT": 480, "HKT": 480}  # fmt: skip


def read(answer: Answer, instance: Instance | None) -> Unit:
    """The properties of ``systemctl show UNIT``. Raises ``Unreadable`` for a unit that is not loaded, and for output
    without properties."""
    properties = _properties(text_of(answer))
    if not properties:
        raise Unreadable(Why.OTHER, "no property in systemctl's output")
    if properties.get("LoadState") == "not-found":
        raise Unreadable(Why.NOT_FOUND, "systemd knows no such unit")
    launcher, flags = read_launch(_argv(properties.get("ExecStart", "")))
    return Unit(
        properties,
        restarts=_whole(properties.get("NRestarts")),
        main_pid=_whole(properties.get("MainPID")) or None,
        active=properties.get("ActiveState"),
        sub=properties.get("SubState"),
        since=next((when for name in _STARTS if (when := read_systemd_time(properties.get(name)))), None),
        result=properties.get("Result"),
        launcher=launcher,
        flags=flags,
    )


def _argv(exec_start: str) -> tuple[str, ...]:
    """The words of ``{ path=... ; argv[]=... ; ... }``; of several commands the last one's."""
    found = _ARGV.findall(exec_start)
    return mask_argv(tuple(found[-1].split())) if found else ()


def _properties(text: str) -> dict[str, str]:
    out: dict[str, str] = {}
    name = None
    for line in text.splitlines():
        found = _PROPERTY.match(line)
        if found:
            name = found[1]
            out[name] = mask_text(found[2].strip())
        elif name is not None and line.strip():  # a value of several lines
            out[name] += "\n" + mask_text(line)
    return out


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def read_systemd_time(text: str | None) -> datetime | None:
    """``Thu 2026-11-12 03:10:00 UTC``, ``@1794453000`` or RFC 3339 as an aware time; None where the zone's name does
    not say its offset."""
    text = (text or "").strip()
    try:
        if text.startswith("@") and text[1:].replace(".", "", 1).isdecimal():
            return datetime.fromtimestamp(float(text[1:]), UTC)
        found = _STAMP.match(text)
        moment = datetime.fromisoformat(found[1] if found else text)
        zone = _zone(found[2] or "") if found else moment.tzinfo
    except (ValueError, OverflowError, OSError):
        return None
    return moment.replace(tzinfo=zone) if zone else None


def _zone(name: str) -> timezone | None:
    offset = _OFFSET.match(name)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    return timezone(timedelta(minutes=_ZONES[name])) if name in _ZONES else None
