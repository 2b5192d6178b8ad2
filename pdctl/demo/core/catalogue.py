"""The families of an engine's metrics page: names, help, labels and buckets by release, from the engines' own pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pdctl.demo.core.release import Release, Traits, release_of
from pdctl.model.cluster import Role


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. ``scope``: rank (scheduler labels), tokenizer (engine labels), model, cache or plain.
    ``when`` a series is there: from the "start", from a rank's first "report", or once "counted". ``extra`` are the
    further label sets of a constant series, ``value`` its value. ``gauge_until`` names the last release in which a
    histogram of today was a gauge."""

    name: str
    type: str
    help: str
    scope: str
    first: Release
    last: Release | None
    roles: str
    when: str
    extra: tuple[tuple[tuple[str, str], ...], ...]
    value: str
    buckets: tuple[str, ...]
    pid: bool
    streaming: Release | None
    gauge_until: Release | None

    def in_release(self, traits: Traits, role: Role) -> bool:
        if not self.first <= traits.release <= (self.last or traits.release):
            return False
        return ("P" if role is Role.PREFILL else "D") in self.roles

    def is_gauge(self, traits: Traits) -> bool:
        return self.type == "gauge" or (self.gauge_until is not None and traits.release <= self.gauge_until)


def _family(row: Mapping[str, object]) -> Family:
    def release(key: str) -> Release | None:
        return release_of(str(row[key])) if key in row else None

    extra = row.get("extra", [])
    buckets = row.get("buckets", [])
    assert isinstance(extra, list) and isinstance(buckets, list)
    return Family(
        str(row["name"]), str(row["type"]), str(row["help"]), str(row["scope"]), release_of(str(row["first"])),
        release("last"), str(row["roles"]), str(row["when"]), tuple(tuple(sorted(e.items())) for e in extra),
        str(row.get("value", "0.0")), tuple(buckets), bool(row.get("pid")), release("streaming"),
        release("gauge_until"),
    )  # fmt: skip


@cache
def families() -> tuple[Family, ...]:
    """Every family of every release, in page order."""
    text = files("pdctl.demo").joinpath("data/families.json").read_text(encoding="utf-8")
    return tuple(_family(row) for row in json.loads(text))


@cache
def families_of(traits: Traits, role: Role) -> tuple[Family, ...]:
    return tuple(f for f in families() if f.in_release(traits, role))


@cache
def bounds() -> Mapping[str, tuple[float, ...]]:
    """Upper bounds of each histogram, without +Inf."""
    return {f.name: tuple(float(b) for b in f.buckets if b != "+Inf") for f in families() if f.buckets}
