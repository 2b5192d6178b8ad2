"""What stands beside a probe's requests that fail: what engines counted meanwhile, which of them are silent, and what
the errors themselves say is to be done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.checks.base import saw
from pdctl.checks.probe_courses import courses_of
from pdctl.checks.probe_parts import parts_of
from pdctl.checks.probe_paths import Path
from pdctl.checks.provenance import timed_out
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Evidence
from pdctl.model.probe import Attempt
from pdctl.model.window import Window

CA = "Name its CA's certificate in the inventory (ca_file), if it is a private one"
KEY = "Name its API key in the inventory (api_key_env or api_key_file)"


def counted_meanwhile(window: Window, cluster: Cluster, path: Path) -> Iterator[Evidence]:
    """What engines and routers counted while the first requests that hang were waited for."""
    for wait, part in list(parts_of(window, path))[:1]:
        counts = [c for c in courses_of(part, cluster) if c.most > 0]
        words = [f"{c.instance} {c.name} {c.least:g} to {c.most:g} ({c.readings} readings)" for c in counts]
        said = "; ".join(words) if words else "nothing"
        yield saw(f"counted while they waited, for {wait.waited:.3g} s: {said}", path.seen)


def silent_engines(window: Window, cluster: Cluster) -> Iterator[Evidence]:
    """Engines of which nothing answers, or not what asks their scheduler: what comes through a router may wait for
    them."""
    for engine in cluster.engines:
        rows = [o for fact in (Fact.METRICS, Fact.LOADS) for o in window.timeline(engine.name, fact)]
        if rows and all(o.missed is not None and o.status is None for o in rows):
            why = rows[-1].missed
            text = f"{engine.name} answers nothing: {why.why if why else 'no answer'}"
            yield Evidence(text, rows[-1].at, engine.name, rows[-1].ask)
            continue
        for row in timed_out(window.timeline(engine.name, Fact.SERVER_INFO))[-1:]:
            text = f"{engine.name}: /server_info, which asks the scheduler, did not answer in {row.took:.0f} s"
            yield Evidence(text, row.at, engine.name, row.ask)


def what_to_do(failed: Iterable[Attempt]) -> tuple[str, ...]:
    """What the errors of requests call for by themselves."""
    rows = tuple(failed)
    told = (CA,) if any(a.error == "tls" for a in rows) else ()
    return (*told, KEY) if any(a.status in (401, 403) for a in rows) else told
