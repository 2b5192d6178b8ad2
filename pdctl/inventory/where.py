"""Where an inventory is looked for, in which order. Pure: what is there is for the caller to see."""

from __future__ import annotations

from dataclasses import dataclass

FILE = "pdctl.toml"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place to look. ``must_exist``: it was named by somebody, so its absence is an error and not a reason to look
    further. ``shown`` is how to call it in a message."""

    path: str
    shown: str
    must_exist: bool = False


def candidates(env: str | None, config_home: str) -> tuple[Candidate, ...]:
    """The places in order: the working directory, the value of $PDCTL_CONFIG, the user's configuration folder.

    The file at hand comes first, so that a checkout with its own inventory is never judged by another cluster's."""
    named = (Candidate(env, f"$PDCTL_CONFIG ({env})", must_exist=True),) if env else ()
    home = f"{config_home.rstrip('/')}/pdctl/{FILE}"
    unset = () if env else (Candidate("", "$PDCTL_CONFIG (not set)"),)
    return (Candidate(FILE, f"./{FILE}"), *named, *unset, Candidate(home, home))
