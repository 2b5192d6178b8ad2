"""What systemd says of a unit, in its own words."""

from __future__ import annotations

from pdctl.model.host import Unit


def has_job(unit: Unit) -> bool:
    """Whether systemd is still at work on the unit."""
    return unit.properties.get("Job", "0") not in ("", "0") or unit.active in (
        "activating",
        "deactivating",
        "reloading",
    )


def state_of(unit: Unit) -> str:
    """The unit's state in systemd's own words, as "active (running)"."""
    return f"{unit.active or 'unknown'} ({unit.sub})" if unit.sub else unit.active or "unknown"


def ending_of(unit: Unit) -> str:
    """How the unit's process ended, in systemd's own words."""
    says = [state_of(unit)]
    if unit.result and unit.result != "success":
        says.append(f"result {unit.result}")
    status, code = unit.properties.get("ExecMainStatus"), unit.properties.get("ExecMainCode")
    if status and code not in (None, "0"):
        says.append(f"signal {status}" if code in ("2", "3", "killed", "dumped") else f"exit status {status}")
    if unit.restarts:
        says.append(f"started again by systemd {'once' if unit.restarts == 1 else f'{unit.restarts} times'}")
    return ", ".join(says)
