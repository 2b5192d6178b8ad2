"""The stable names of findings: group, severity and the one line each stands for. Fuller words: checks/explain/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pdctl.model.finding import Severity

FLOW = "Request flow"
DEVICES = "Stacks and devices"
ROUTER = "Router and connections"
CHANGE = "Change and configuration"
SEEING = "Seeing"


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    group: str
    severity: Severity
    says: str


C, W, N, U = Severity.CRITICAL, Severity.WARNING, Severity.INFO, Severity.UNKNOWN
_ROWS = (
    Entry("request-pinned", FLOW, C, "requests sit between prefill and decode and will not leave by themselves"),
    Entry("transfer-stuck", FLOW, C, "many decode transfer slots are held without progress while memory is free"),
    Entry("decode-starved", FLOW, W, "prefill waits because decode KV memory is full: capacity, not a leak"),
    Entry("prealloc-wedged", FLOW, C, "requests parked in decode prealloc although memory is free and nothing runs"),
    Entry("queue-head-blocked", FLOW, C, "the waiting queue grows while the engine is empty: its head is not admitted"),
    Entry("queue-leaked", FLOW, W, "entries remain in one rank's queue with no traffic, its siblings agree on zero"),
    Entry("rank-stuck", FLOW, C, "one rank makes no progress while its siblings do; sums over ranks hide it"),
    Entry("engine-wedged", FLOW, C, "requests run but no token comes out"),
    Entry("scheduler-stopped", FLOW, C, "the scheduler loop does not turn, although HTTP answers"),
    Entry("draining", FLOW, N, "queues fall by themselves: wait"),
    Entry("gauge-stale", FLOW, U, "a gauge holds a value that is not today's: not evidence in either direction"),
    Entry("gauge-unavailable", FLOW, U, "this engine version can't report the gauge"),
    Entry("watchdog-silent", FLOW, W, "a configured timeout has long passed for a pinned request and nothing fired"),
    Entry("transfer-pair-broken", FLOW, C, "transfers of one prefill->decode pair fail, other pairs work"),
    Entry("peer-stale", FLOW, C, "one role restarted and its peers still hold state of the old process"),
    Entry("engine-restarted", FLOW, N, "an engine restarted inside the window; rates don't cross it"),
    Entry("heartbeat-starved", FLOW, W, "a peer was declared lost while it was alive: its HTTP loop was starved"),
    Entry("ranks-diverged", DEVICES, C, "one rank waits in another collective than all others"),
    Entry("device-hang", DEVICES, C, "all readable ranks sit in the same device wait across samples"),
    Entry("stacks-partial", DEVICES, U, "some ranks could not be dumped"),
    Entry("router-holds-requests", ROUTER, C, "requests age in the router while engines are idle"),
    Entry("router-circuit-open", ROUTER, C, "the router refuses a worker that is healthy"),
    Entry("slow-responses", ROUTER, W, "completions took very long, although they ended 200"),
    Entry("connection-scoped-hang", ROUTER, C, "engines and router idle, fresh requests work, clients hang"),
    Entry("keepalive-stale", ROUTER, W, "fresh connections work, reused ones fail after some idle time"),
    Entry("connection-leak", ROUTER, C, "one process's CLOSE-WAIT sockets grow without bound"),
    Entry("accept-queue-full", ROUTER, C, "a listener's accept queue is full: its HTTP front end is blocked"),
    Entry("responses-lost", ROUTER, C, "requests are outstanding on old sockets, no queue holds them, new ones work"),
    Entry("half-open", ROUTER, W, "one end holds a connection that the other end no longer has"),
    Entry("script-drift", CHANGE, W, "a serve script differs from the baseline backup"),
    Entry("live-drift", CHANGE, W, "the running process differs from its script"),
    Entry("role-mismatch", CHANGE, C, "flags that must agree between prefill and decode do not"),
    Entry("changed-since", CHANGE, N, "what changed in the window asked about"),
    Entry("unit-flapping", CHANGE, W, "systemd restarted a unit by itself"),
    Entry("engine-crashed", CHANGE, C, "the log shows a crash, a child's death or a watchdog kill"),
    Entry("fd-limit-near", CHANGE, W, "a process is near its file-descriptor limit"),
    Entry("endpoint-unreadable", SEEING, U, "a needed answer did not come or was no answer"),
)
REGISTRY: Mapping[str, Entry] = {entry.name: entry for entry in _ROWS}
