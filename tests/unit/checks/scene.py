"""Windows built by hand for tests of checks: each method adds what one answer would have said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pdctl.model.answer import Fact, Missed, Observation, Seen, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import EngineMetrics, Gauge, LoadRow, Loads, ServerInfo
from pdctl.model.events import Event, Kind, Log
from pdctl.model.rank import WHOLE, Rank
from pdctl.model.router import AgeBucket, RouterMetrics
from pdctl.model.window import Window

START = datetime(2026, 11, 12, 3, 14, tzinfo=UTC)
P, D, R = "prefill-0", "decode-0", "router-0"
URLS = {P: "http://192.0.2.11:30000", D: "http://192.0.2.21:30000", R: "http://192.0.2.31:30001"}


def pair(*, router: bool = False, decodes: int = 1) -> Cluster:
    """One prefill, decodes, and a router if wanted."""
    rows = [Instance(P, Role.PREFILL, URLS[P], bootstrap_port=8998)]
    rows += [Instance(f"decode-{i}", Role.DECODE, f"http://192.0.2.2{i + 1}:30000") for i in range(decodes)]
    if router:
        rows.append(Instance(R, Role.ROUTER, URLS[R], "http://192.0.2.31:29001/metrics"))
    return Cluster("test", tuple(rows))


class Scene:
    """Collects observations; ``window()`` orders them."""

    def __init__(self, version: str | None = "0.5.23") -> None:
        self.rows: list[Observation[Any]] = []
        self.version = version
        if version:
            for name, mode in ((P, "prefill"), (D, "decode")):
                self.add(0.0, name, Fact.SERVER_INFO, ServerInfo(version, mode))

    def add(self, t: float, subject: str, fact: Fact, value: object, took: float = 0.01) -> None:
        ask = f"GET {URLS.get(subject, subject)}/{fact}"
        self.rows.append(Observation(subject, fact, t, START + timedelta(seconds=t), took, ask, Seen(value), 200))

    def miss(self, t: float, subject: str, fact: Fact, why: Why, detail: str = "", took: float = 5.0) -> None:
        ask = f"GET {URLS.get(subject, subject)}/{fact}"
        self.rows.append(Observation(subject, fact, t, START + timedelta(seconds=t), took, ask, Missed(why, detail)))

    def page(
        self,
        t: float,
        subject: str,
        *,
        dp: int | None = None,
        http: float | None = None,
        seen: dict[str, float] | None = None,
        **values: float,
    ) -> None:
        """A metrics page of one rank: ``inflight=1, generation_tokens=900``."""
        self.ranked_page(t, subject, {Rank(dp=dp): values}, http=http, seen=seen)

    def ranked_page(
        self,
        t: float,
        subject: str,
        ranks: dict[Rank, dict[str, float]],
        *,
        http: float | None = None,
        seen: dict[str, float] | None = None,
    ) -> None:
        """A metrics page with values by rank."""
        out: dict[Gauge, dict[Rank, float]] = {}
        for rank, values in ranks.items():
            for key, value in values.items():
                out.setdefault(Gauge(key.replace("_", "-")), {})[rank] = value
        page = EngineMetrics(out, families=20, http_active=http, http_seen=seen or {})
        self.add(t, subject, Fact.METRICS, page)

    def loads(self, t: float, subject: str, *rows: LoadRow, frozen_at: float | None = None, **counts: float) -> None:
        """An answer of /v1/loads. Its snapshots are as old as ``frozen_at`` says (seconds into the window)."""
        if not rows:
            stamp = START.timestamp() + (t if frozen_at is None else frozen_at)
            rows = (LoadRow(0, timestamp=stamp, **counts),)  # type: ignore[arg-type]
        self.add(t, subject, Fact.LOADS, Loads(rows, self.version, START.timestamp() + t))

    def router(
        self,
        t: float,
        *,
        active: float = 0.0,
        old: float = 0.0,
        breaker: dict[str, float] | None = None,
        workers: tuple[str, ...] = (P, D),
    ) -> None:
        """A router's page: requests under way on each worker, ``old`` of them 300 to 600 s old."""
        urls = [URLS[w] for w in workers]
        ages = (AgeBucket(0, 30, active - old), AgeBucket(300, 600, old))
        states = {URLS[w]: s for w, s in (breaker or {}).items()}
        page = RouterMetrics(
            "smg", dict.fromkeys(urls, active), states, dict.fromkeys(urls, 1.0), ages=ages, families=9
        )
        self.add(t, R, Fact.METRICS, page)

    def log(self, subject: str, *events: Event) -> None:
        self.add(0.0, subject, Fact.LOG, Log(events, len(events)))

    def window(self) -> Window:
        rows = tuple(sorted(self.rows, key=lambda o: o.t))
        return Window(START, rows[-1].at, rows)


def batch(t: float, kind: Kind = Kind.PREFILL_BATCH, rank: Rank = WHOLE, **numbers: float) -> Event:
    """A batch line ``t`` seconds into the window."""
    return Event(kind, "batch", START + timedelta(seconds=t), rank, dict(numbers))


def times(seconds: float, step: float = 2.0) -> list[float]:
    """Instants from 0 to ``seconds`` inclusive."""
    return [i * step for i in range(int(seconds / step) + 1)]
