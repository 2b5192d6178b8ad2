"""Looking at a cluster for a while: rounds of asking until enough was seen, everything kept on disk as it arrives."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pdctl.keep import Keeper, keeping
from pdctl.model.answer import Fact
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import LOCAL, Cluster, Instance, Role
from pdctl.model.window import Window

if TYPE_CHECKING:
    from pdctl.gather import Gatherer
    from pdctl.looks.side import HostSide
    from pdctl.reach.clock import Clock
    from pdctl.reach.hosts import Hosts
    from pdctl.sample import SamplePlan

ENGINE_EACH = (Fact.METRICS, Fact.LOADS)
ENGINE_ONCE = (Fact.SERVER_INFO,)
LOG_BYTES = 8_000_000  # of the end of a log file


@dataclass(frozen=True, slots=True)
class Look:
    """How to look: seconds between rounds and in all, seconds for one answer and for everything, where to keep the raw
    answers (None: nowhere), when to stop before the time is over, and whether to look at the hosts as well."""

    interval_s: float = 2.0
    seconds: float = 30.0
    timeout_s: float = 5.0
    deadline_s: float | None = None
    record: Path | None = None
    stop: Callable[[Window], bool] | None = None
    hosts: bool = False


@dataclass(slots=True)
class Looked:
    """What came of it. ``kept`` is where the raw answers are; ``notes`` say what went wrong with keeping them."""

    window: Window
    interrupted: bool = False
    kept: Path | None = None
    notes: list[str] = field(default_factory=list)


def watch(cluster: Cluster, look: Look, clock: Clock | None = None) -> Looked:
    """Looks at a live cluster. Ctrl-C ends it with what was seen so far."""
    from pdctl.gather import Gatherer
    from pdctl.reach.clock import SystemClock
    from pdctl.reach.hosts import Hosts
    from pdctl.sample import sample

    clock = clock or SystemClock()
    with ExitStack() as stack:
        hosts = stack.enter_context(Hosts(cluster.with_local(), clock=clock))
        keeper = stack.enter_context(keeping(look.record, cluster))
        gatherer = stack.enter_context(
            Gatherer(cluster, clock=clock, commands=hosts, via=hosts.dial, on_answer=keeper.add)
        )
        with progress() as tell:
            side = host_side(cluster, hosts, gatherer, keeper, stack) if look.hosts else None
            if side is not None:
                tell("looking at the hosts")
                side.before()
            sampling = sample(gatherer, plan_of(cluster, look), clock=clock, stop=look.stop)
            window = sampling.window
            for window in sampling:
                tell(f"looked for {window.seconds:.0f} s of at most {look.seconds:.0f} s")
            if side is not None and not sampling.interrupted:
                side.after()
        joined = window if side is None else side.joined(window)
        return Looked(joined, sampling.interrupted, keeper.path, keeper.notes)


def host_side(cluster: Cluster, hosts: Hosts, gatherer: Gatherer, keeper: Keeper, stack: ExitStack) -> HostSide | None:
    """A look at the hosts in step with the gatherer's, None where no instance's host is known."""
    from pdctl.looks.side import HostSide

    side = HostSide(cluster, hosts, gatherer, keeper.add)
    stack.callback(side.close)
    return side if side.placed else None


def plan_of(cluster: Cluster, look: Look) -> SamplePlan:
    """Metrics and live counts each round, settings and logs once: the order that disturbs least. No health check: it is
    a request of its own."""
    from pdctl.sample import SamplePlan

    return SamplePlan(
        interval_s=look.interval_s,
        seconds=look.seconds,
        facts={Role.PREFILL: ENGINE_EACH, Role.DECODE: ENGINE_EACH, Role.ROUTER: (Fact.METRICS,)},
        first={Role.PREFILL: ENGINE_ONCE, Role.DECODE: ENGINE_ONCE, Role.ROUTER: (Fact.WORKERS,)},
        last={Role.PREFILL: ENGINE_ONCE, Role.DECODE: ENGINE_ONCE},
        last_asks=tuple(log_ask(i, cluster) for i in cluster.instances if has_log(i, cluster)),
        via=cluster.via,
        timeout_s=look.timeout_s,
        deadline_s=look.deadline_s,
    )


def log_ask(instance: Instance, cluster: Cluster) -> CommandAsk:
    """The end of an instance's log, on its host or here: its file, else its unit's journal."""
    from pdctl.facts import asks_host
    from pdctl.model.cluster import Host

    host = next((h for h in cluster.hosts if h.name == instance.host), None) or Host(LOCAL)
    if not instance.log:
        return asks_host.log_ask(instance, host)
    argv = ("tail", "-c", str(LOG_BYTES), "--", instance.log)
    return CommandAsk(
        instance.name, Fact.LOG, host.name, argv, cap=2 * LOG_BYTES, become=host.become is not None
    )  # fmt: skip


def has_log(instance: Instance, cluster: Cluster) -> bool:
    """Whether there is a log to ask for: a file, or the journal of a unit on a host that is named."""
    return bool(instance.log) or bool(instance.unit and any(h.name == instance.host for h in cluster.hosts))


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Says on stderr how far it is, at a terminal only, and wipes it when done."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return

    def tell(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text} (Ctrl-C: judge what was seen)")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
