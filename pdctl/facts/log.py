"""An instance's log: engine or router, a file or a journal, read into events.

A log may be large. Each line is only looked at; what is kept is read at the end: every record of the rare kinds (up to
``RARE``), the newest ``NOISY`` of the kinds that make up a log's bulk. ``Log.let_go`` says how many were not kept.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from io import BytesIO

from pdctl.facts import engine_log, router_log
from pdctl.facts.base import Unreadable
from pdctl.facts.log_lines import Record, records
from pdctl.facts.log_rule import Rule, event
from pdctl.facts.log_time import Calendar, offset_of, read_stamp
from pdctl.facts.log_trace import Found, Tracebacks
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance, Role
from pdctl.model.events import Event, Kind, Log

NOISY_KINDS = frozenset({
    Kind.PREFILL_BATCH, Kind.DECODE_BATCH, Kind.HTTP_ACCESS, Kind.REQUEST_RECEIVED, Kind.REQUEST_FINISHED,
    Kind.VLLM_STATS, Kind.VLLM_DELAYED_FREE, Kind.ROUTER_STARTED, Kind.ROUTER_FINISHED, Kind.OTHER,
})  # fmt: skip
NOISY = 20_000  # newest records kept of each noisy kind
RARE = 50_000  # newest records kept of each other kind: more is a storm, and its end tells as much
HEAD = 1 << 20  # bytes at the beginning in which a first date is looked for

_PLAIN = Rule("", Kind.OTHER, lambda record: event(Kind.OTHER, record))
_FIGURES = re.compile(r"#[a-z-]+-req: \d|throughput \(token/s\): ")
_NO_JOURNAL = re.compile(r"not seeing messages from (?:other users and )?the system|insufficient permissions")
_NO_ENTRIES = re.compile(rb"\s*(?:-- No entries --\s*)?\Z")

RuleFor = Callable[[Record], "tuple[Rule, Record] | None"]


def read(answer: Answer, instance: Instance | None) -> Log:
    """The events of a log answer, in the order written. Raises Unreadable for an empty log: nothing was logged, or the
    wrong file was read, and neither says that nothing happened."""
    body = answer.body
    if body is None or (len(body) < 64 and _NO_ENTRIES.match(body)):
        if answer.status:  # a command's exit status: nothing came because it failed
            raise Unreadable(Why.OTHER, answer.detail or f"{answer.ask}: exit status {answer.status}")
        if (denied := journal_denial(answer)) is not None:
            raise Unreadable(Why.PERMISSION, denied)
        raise Unreadable(Why.EMPTY, "the log is empty")
    scanner = Scanner(role_of(instance), answer.at, body[:HEAD])
    log = _read_body(body, scanner)
    last = next((e.when for e in reversed(log.events) if e.when is not None and e.when.tzinfo is None), None)
    return replace(log, offset=offset_of(last, _mtime(answer), answer.at))


def journal_denial(answer: Answer) -> str | None:
    """Why journalctl shows nothing, or less than there is, to this user; None where it does not say so. It ends with
    status 0 all the same (systemd 239 to 256)."""
    said = answer.more.get("stderr")
    if not isinstance(said, str) or not _NO_JOURNAL.search(said):
        return None
    return "this user is not shown the system's journal (be root, or in the group systemd-journal or adm)"


def role_of(instance: Instance | None) -> Role | None:
    """The role whose records a log is expected to hold; None where each record is to be judged by its shape."""
    return instance.role if instance is not None and instance.role is not Role.PROXY else None


def _mtime(answer: Answer) -> datetime | None:
    text = answer.more.get("mtime")
    when = read_stamp(text) if isinstance(text, str) else None
    return when if when is not None and when.tzinfo is not None else None


class Scanner:
    """Knows each line's records by their rule, and reads none of them yet. ``asked`` is when the log was read and
    ``beginning`` its first bytes: they supply the years that some prefixes leave out."""

    def __init__(self, role: Role | None, asked: datetime | None = None, beginning: bytes = b"") -> None:
        self._rules: tuple[RuleFor, RuleFor] = (engine_log.rule_for, router_log.rule_for)
        if role is Role.ROUTER:
            self._rules = (router_log.rule_for, engine_log.rule_for)
        self._fixed = role is not None
        self._calendar = Calendar(asked, beginning)
        self._traces = Tracebacks()
        self.lines = 0
        self.dropped = 0

    def scan(self, line: bytes) -> list[Found]:
        """The records of one line with their rules."""
        self.lines += 1
        return [found for record in records(line, self.lines, self._calendar) if (found := self._known(record))]

    def _known(self, record: Record) -> Found | None:
        rule, inside = self._rule_for(record)
        if rule is _PLAIN and _is_headless(record.message):
            self.dropped += 1
            return None
        return self._traces.see(Found(rule, inside))

    @property
    def mid_trace(self) -> bool:
        """Whether the last record's traceback may still go on."""
        return self._traces.is_open

    def made(self, found: Found) -> Event | None:
        """The event of a found record, None (and one more dropped) for one that was cut short."""
        made = found.rule.read(found.record)
        if made is None:
            self.dropped += 1
        elif found.reason is not None and "reason" not in made.words:
            made = replace(made, words={**made.words, "reason": found.reason})
        return made

    def _rule_for(self, record: Record) -> tuple[Rule, Record]:
        first, second = self._rules
        if not self._fixed and not record.text.startswith("[20") and router_log.is_routers(record.text):
            first, second = router_log.rule_for, engine_log.rule_for
        if (found := first(record)) is not None:
            return found
        if first is engine_log.rule_for and not router_log.is_routers(record.text):
            return _PLAIN, record
        return second(record) or (_PLAIN, record)


def _is_headless(message: str) -> bool:
    """Whether a line's beginning was cut off, as that of a tail's first line is: it has figures or an ending, and not
    the words that name them."""
    if message.endswith(" processing request"):
        return True
    return ("-req: " in message or "(token/s): " in message) and _FIGURES.search(message) is not None


def _read_body(body: bytes, scanner: Scanner) -> Log:
    kept: dict[Kind, deque[Found]] = {}
    let_go = 0
    for line in BytesIO(body):
        for found in scanner.scan(line):
            kind = found.rule.kind
            rows = kept.get(kind)
            if rows is None:
                rows = kept[kind] = deque(maxlen=NOISY if kind in NOISY_KINDS else RARE)
            let_go += len(rows) == rows.maxlen
            rows.append(found)
    ordered = sorted((f for rows in kept.values() for f in rows), key=lambda f: (f.record.line, f.record.part))
    events = tuple(made for found in ordered if (made := scanner.made(found)) is not None)
    return Log(events, scanner.lines, scanner.dropped, let_go)


def events_of(lines: Iterable[bytes], scanner: Scanner) -> Iterator[Event]:
    """Every event of the lines, as they come and without end: for showing and filtering, in constant memory. An event
    that a traceback follows comes after the traceback, with its last line as the reason."""
    held: list[Found] = []
    for line in lines:
        held.extend(scanner.scan(line))
        if not scanner.mid_trace:
            yield from _made(held, scanner)
            held = []
    yield from _made(held, scanner)


def _made(held: Iterable[Found], scanner: Scanner) -> Iterator[Event]:
    return (made for found in held if (made := scanner.made(found)) is not None)


def read_log_end(end: bytes, role: Role | None, asked: datetime | None) -> datetime | None:
    """The last time in a log's last bytes: naive, as its own clock showed it; aware UTC in a log that names its zone;
    None where there is none."""
    scanner = Scanner(role, asked, end)
    times = [f.record.when for line in BytesIO(end) for f in scanner.scan(line) if f.record.when is not None]
    return next((when for when in reversed(times) if when.tzinfo is None), times[-1] if times else None)
