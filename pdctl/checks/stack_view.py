"""An instance's stacks as ``pdctl stacks`` shows them: ranks grouped by where they are, the odd one told apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from pdctl.checks.dumps import RankDumps, groups_of, ranks_of, short_name
from pdctl.checks.ranks_diverged import odd_ranks
from pdctl.checks.stacks_partial import dumped, failures
from pdctl.model.answer import Fact, Missed
from pdctl.model.cluster import Instance
from pdctl.model.host import ProcessStack, Stacks, ThreadStack
from pdctl.model.host_view import StackGroup, StackView, ThreadGroup, UnreadStack
from pdctl.model.window import At, Window

OTHERS = ("main", "router", "detokenizer", "dp-controller", "tokenizer-worker")


def stacks_of(window: Window, instance: Instance) -> StackView:
    """Every dump of the instance's processes in the window."""
    seen = window.seen(instance.name, Fact.STACKS, Stacks)
    ranks = ranks_of(window, instance.name)
    times = [at.t for at in seen]
    return StackView(
        instance.name, instance.role, instance.host, tuple(groups(ranks)), tuple(others(seen)), tuple(threads(seen)),
        tuple(unread(window, instance.name)), max((len(r.seen) for r in ranks), default=len(seen)),
        max(times) - min(times) if times else 0.0, why=None if seen else _why(window, instance.name),
    )  # fmt: skip


def groups(ranks: tuple[RankDumps, ...]) -> Iterator[StackGroup]:
    """Ranks at the same point of the program; the largest group first."""
    odd = {id(r) for alike in groups_of(ranks) if len(alike) > 1 for r in odd_ranks(alike) or ()}
    by_place: dict[tuple[str, ...], list[RankDumps]] = defaultdict(list)
    for rank in ranks:
        by_place[rank.last.path].append(rank)
    for members in sorted(by_place.values(), key=lambda m: -len(m)):
        first = members[0]
        main = _newest_main(first)
        yield StackGroup(
            tuple(m.name for m in members), first.last.words, str(first.last.wait), main.frames if main else (),
            odd=any(id(m) in odd for m in members),
            unmoved=all(m.unmoved for m in members) if all(len(m.seen) > 1 for m in members) else None,
            state=main.state if main else "",
        )  # fmt: skip


def _newest_main(rank: RankDumps) -> ThreadStack | None:
    at, _ = rank.seen[-1]
    return next((p.main for p in at.value.processes if p.pid == rank.pid), None)


def others(seen: Sequence[At[Stacks]]) -> Iterator[tuple[str, ThreadStack]]:
    """The main threads of processes that are no scheduler, by the newest dump of each."""
    newest: dict[int, ProcessStack] = {}
    for at in seen:
        newest.update({p.pid: p for p in at.value.processes if p.part in OTHERS})
    for process in newest.values():
        if process.main is not None:
            yield f"{process.part} (pid {process.pid})", process.main


def threads(seen: Sequence[At[Stacks]]) -> Iterator[ThreadGroup]:
    """The schedulers' further threads, by name and innermost frame, in their newest dumps."""
    newest: dict[int, ProcessStack] = {}
    for at in seen:
        newest.update({p.pid: p for p in at.value.processes if p.part == "scheduler"})
    counted: Counter[tuple[str, str]] = Counter()
    for process in newest.values():
        for thread in process.threads:
            if thread is not process.main and thread.frames:
                counted[(_name(thread), _at(thread))] += 1
    for (name, at_), count in counted.most_common():
        yield ThreadGroup(name, at_, count)


def _name(thread: ThreadStack) -> str:
    """A thread's name without its number: "Thread-3 (transfer_worker)" is transfer_worker."""
    name = thread.name or "unnamed"
    inner = name[name.find("(") + 1 : -1] if name.endswith(")") and "(" in name else ""
    return inner or name


def _at(thread: ThreadStack) -> str:
    return " < ".join(short_name(frame) for frame in thread.frames[:2])


def unread(window: Window, subject: str) -> Iterator[UnreadStack]:
    """Processes that gave no stack in the whole window, by their last attempt."""
    good = dumped(window, subject)
    last = {(f.pid, f.title): f for f in failures(window, subject) if f.pid is None or f.pid not in good}
    for failed in last.values():
        yield UnreadStack(failed.name, failed.why)


def _why(window: Window, subject: str) -> str | None:
    rows = window.timeline(subject, Fact.STACKS)
    got = rows[-1].got if rows else None
    return (got.detail or str(got.why)) if isinstance(got, Missed) else None
