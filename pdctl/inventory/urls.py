"""A cluster from URLs on the command line, with no file at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.errors import UsageError
from pdctl.inventory.addresses import instance_fault, url_fault
from pdctl.model.cluster import Cluster, Instance, Role


def cluster_of_urls(
    prefills: Sequence[str] = (), decodes: Sequence[str] = (), routers: Sequence[str] = (), proxies: Sequence[str] = ()
) -> Cluster:
    """The cluster of these URLs; instances are named prefill-0, decode-0, router-0, ... in the order given.

    Any URL may carry where its metrics are, as ``URL,METRICS_URL``. A router's metrics are on a port of their own that
    nothing in its URL tells, so where they are not given they are None: not asked, and reported so. Raises UsageError
    for what is no URL, and for a URL given twice."""
    instances: list[Instance] = []
    for role, urls in ((Role.PREFILL, prefills), (Role.DECODE, decodes), (Role.ROUTER, routers), (Role.PROXY, proxies)):
        instances.extend(_instances(role, urls))
    _no_url_twice(instances)
    return Cluster("command line", tuple(instances))


def _instances(role: Role, urls: Sequence[str]) -> Iterator[Instance]:
    for number, text in enumerate(urls):
        url, _, metrics = (part.strip() for part in text.partition(","))
        faults = (instance_fault(url), url_fault(metrics) if "," in text else "")
        for wrong in faults:
            if wrong:
                raise UsageError(f"--{role}: {wrong}", f"For example: --{role} http://10.0.0.1:30000")
        yield Instance(f"{role}-{number}", role, url.rstrip("/"), _page(metrics))


def _page(metrics: str) -> str | None:
    if not metrics:
        return None
    return metrics if "/" in metrics.partition("://")[2].rstrip("/") else f"{metrics.rstrip('/')}/metrics"


def _no_url_twice(instances: Sequence[Instance]) -> None:
    seen: dict[str, Instance] = {}
    for instance in instances:
        url = (instance.url or "").lower()
        if url in seen:
            both = (
                f"--{seen[url].role} and --{instance.role}" if seen[url].role != instance.role else f"--{instance.role}"
            )
            raise UsageError(f"{instance.url} is given twice ({both})", "Each instance has a URL of its own.")
        seen[url] = instance
