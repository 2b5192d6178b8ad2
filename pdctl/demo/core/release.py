"""What a release of the engine does when: the moments it writes its gauges, what it counts, what it can tell.

Boundaries are "first seen" ones, read in the released sources or seen on running engines of 0.5.6, 0.5.9,
0.5.10.post1, 0.5.12.post1, 0.5.15, 0.5.19 and 0.5.23.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from pdctl.model.engine import parse_release

Release = tuple[int, ...]

RELEASES = (
    "0.4.6.post5", "0.4.9", "0.5.1.post3", "0.5.3", "0.5.6", "0.5.9", "0.5.10.post1",
    "0.5.12.post1", "0.5.15", "0.5.16", "0.5.18", "0.5.19", "0.5.20", "0.5.23",
)  # fmt: skip


class PrefillReport(StrEnum):
    """When a prefill engine writes its gauges about a batch."""

    CREATED = "created"  # as the batch is formed: its own requests are not in flight yet
    NEVER = "never"  # 0.5.9: the call sits on a path that a disaggregated prefill does not take
    DONE = "done"  # after its result: its own requests are counted as in flight


class LoadsKind(StrEnum):
    """How ``/v1/loads`` comes by its numbers."""

    ABSENT = "absent"
    RPC = "rpc"  # asks the scheduler loop: exact, and hangs with it
    SNAPSHOT = "snapshot"  # last published: at the start of a batch's result, and when fully idle
    LIVE = "live"  # published every 50 ms while not idle as well


@dataclass(frozen=True, slots=True)
class Traits:
    """One release, as far as an outside observer can tell releases apart."""

    version: str
    release: Release

    def since(self, text: str) -> bool:
        return self.release >= release_of(text)

    # -- gauges ------------------------------------------------------------------------------------------------
    @property
    def prefill_report(self) -> PrefillReport:
        if self.since("0.5.10"):
            return PrefillReport.DONE
        return PrefillReport.NEVER if self.since("0.5.9") else PrefillReport.CREATED

    @property
    def counts_queues(self) -> bool:
        """The scheduler assigns its disaggregation gauges at all; before, they are constant 0."""
        return self.since("0.5.1.post3")

    @property
    def idle_recounts(self) -> bool:
        """The idle report counts the disaggregation queues again; before 0.5.3 it repeats the last numbers."""
        return self.since("0.5.3")

    @property
    def idle_needs_all_queues(self) -> bool:
        """The idle report waits until every queue is empty, not the in-flight (or transfer) queue alone."""
        return self.since("0.5.11")

    @property
    def idle_at_once(self) -> bool:
        """The idle report comes at the first idle loop when the running gauge is wrong, not after 30 s."""
        return self.since("0.5.16")

    @property
    def running_is_batch(self) -> bool:
        """A prefill batch reports its own size as running requests."""
        return self.since("0.5.16")

    @property
    def stage_histogram(self) -> bool:
        """Seconds in each stage of a request are observed at all (0.5.2 has no such histogram, 0.5.3 has)."""
        return self.since("0.5.3")

    @property
    def stage_counts_failures(self) -> bool:
        """The latency histogram of the transfer stage counts failed transfers too."""
        return not self.since("0.5.10")

    @property
    def waiting_stages(self) -> bool:
        """The stages prefill_prepare and prefill_waiting are observed."""
        return not self.since("0.5.10")

    # -- live counts -------------------------------------------------------------------------------------------
    @property
    def loads(self) -> LoadsKind:
        for first, kind in (("0.5.19", LoadsKind.LIVE), ("0.5.13", LoadsKind.SNAPSHOT), ("0.5.8", LoadsKind.RPC)):
            if self.since(first):
                return kind
        return LoadsKind.ABSENT

    @property
    def loads_timestamp(self) -> bool:
        return self.since("0.5.16")

    @property
    def bootstrap_name(self) -> str:
        """What this release calls prefill's bootstrap queue."""
        return "bootstrap" if self.since("0.5.12.post1") else "prealloc"

    # -- request life ------------------------------------------------------------------------------------------
    @property
    def bootstrap_timeout(self) -> float | None:
        """Seconds a prefill request waits for decode's KV indices (mooncake)."""
        if self.since("0.5.3"):
            return 300.0
        return 120.0 if self.since("0.4.9") else None

    @property
    def waiting_timeout(self) -> float | None:
        """Seconds a decode request waits for its KV after it sent its indices."""
        return 300.0 if self.since("0.5.3") else None

    @property
    def aborts_reach_queues(self) -> bool:
        """An abort reaches the bootstrap, in-flight, prealloc and transfer queues."""
        return self.since("0.5.3")

    @property
    def decode_tells_prefill(self) -> bool:
        """A decode that gives a request up tells its prefill."""
        return self.since("0.5.13")

    @property
    def defers_release(self) -> bool:
        """KV of a failed transfer is held until the prefill acknowledges, or for 30 s."""
        return self.since("0.5.19")

    # -- HTTP --------------------------------------------------------------------------------------------------
    @property
    def health_generates(self) -> bool:
        return self.since("0.4.10.post2")

    @property
    def health_always_runs(self) -> bool:
        """A prefill runs the health request even when it is busy."""
        return not self.since("0.5.10")

    @property
    def http_metrics(self) -> bool:
        return self.since("0.5.8")

    @property
    def active_until_headers(self) -> bool:
        """``http_requests_active`` drops a streaming request when its headers are sent."""
        return self.http_metrics and not self.since("0.5.10")

    @property
    def sees_disconnects(self) -> bool:
        """A client that leaves a non-streaming request is noticed."""
        return not self.active_until_headers

    @property
    def server_info_path(self) -> bool:
        return self.since("0.5.6")

    @property
    def get_load(self) -> bool:
        return self.since("0.4.9") and not self.since("0.5.21")

    @property
    def garbage_endpoint(self) -> str:
        """The endpoint label of a request line that is no request (HTTP/2 prior knowledge)."""
        return "/*" if self.since("0.5.16") else ""

    # -- labels ------------------------------------------------------------------------------------------------
    @property
    def rank_labels(self) -> bool:
        return self.since("0.5.1")

    @property
    def true_engine_type(self) -> bool:
        return self.since("0.5.7")

    @property
    def tokenizer_engine_type(self) -> bool:
        return self.since("0.5.13")

    @property
    def streaming_label(self) -> bool:
        return self.since("0.5.16")


def release_of(text: str) -> Release:
    """Comparable form of a release. Raises ValueError for what is none."""
    release = parse_release(text)
    if release is None:
        raise ValueError(f"{text!r} is no release (such as 0.5.23)")
    return release


def is_release(text: str) -> bool:
    """Whether there may be such a release, and what it does is known: from the first to the last of ``RELEASES``."""
    release = parse_release(text) if re.fullmatch(r"\d+(\.\d+){2}(\.post\d+)?", text) else None
    return release is not None and release_of(RELEASES[0]) <= release <= release_of(RELEASES[-1])


def traits_of(version: str) -> Traits:
    return Traits(version, release_of(version))
