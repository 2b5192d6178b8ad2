"""What ``pdctl logs`` writes: events, failures, slow requests and latencies, in the form asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdctl.logbook.entries import Entry
    from pdctl.logbook.remote import LogHosts
    from pdctl.logbook.sources import Source
    from pdctl.model.log_filter import Wanted

SCHEMA = "pdctl.logs/1"


class Form(StrEnum):
    """The forms of the output."""

    HUMAN = "human"
    JSON = "json"
    JSONL = "jsonl"


class Page:
    """Writes what the logs hold, in the form asked for."""

    def __init__(
        self, sources: list[Source], wanted: list[Wanted], form: Form, ascii_only: bool, hosts: LogHosts | None = None
    ) -> None:
        from pdctl.render.look import look

        self._hosts = hosts

        self._sources, self._wanted, self._form = sources, wanted, form
        self._look = look(ascii_only)
        self._name_width = max(len(s.name) for s in sources) if len(sources) > 1 else 0

    def events(self, limit: int) -> None:
        from pdctl.logbook.entries import newest

        kept, before = newest(self._all(), limit)
        self._write("events", (self._event(entry) for entry in kept), omitted=before)

    def follow(self) -> None:
        from pdctl.logbook.entries import followed
        from pdctl.reach.clock import SystemClock

        fresh_of = None
        if self._hosts is not None and any(source.follow_by for source in self._sources):
            self._hosts.follow(self._sources)
            fresh_of = self._fresh
        with closing(followed(self._sources, self._wanted, SystemClock(), fresh_of)) as stream:
            self._lines(self._event(entry) for entry in stream)

    def _fresh(self) -> dict[str, list[bytes]] | None:
        """What came from hosts; what there is to say about them is said at once."""
        from pdctl import outlet

        assert self._hosts is not None
        lines = self._hosts.fresh()
        while self._hosts.notes:
            outlet.say(f"pdctl: {self._hosts.notes.pop(0)}")
        return lines

    def failures(self, limit: int) -> None:
        from pdctl.logbook.sums import failures
        from pdctl.render.events import failure_line, failure_value

        found = failures(self._all())
        kept = found[-limit:] if limit else found
        rows = (
            (failure_line(self._look, f.failure, f.sources), failure_value(f.failure, f.sources, f.entry.utc))
            for f in kept
        )
        self._write("failures", rows, omitted=len(found) - len(kept), none="no failed request in the log")

    def slow(self, count: int) -> None:
        from pdctl.logbook.sums import slow_entries
        from pdctl.render.events import event_value, slow_line

        rows = (
            (slow_line(self._look, e.event, e.clock, e.source), event_value(e.event, e.source, e.utc))
            for e in slow_entries(self._all(), count)
        )
        self._write("slow", rows, none="no request with a latency in the log")

    def latency(self) -> None:
        from pdctl.logbook.sums import Tally
        from pdctl.render.events import ends_line, ends_value, latency_lines, spread_value

        tally = Tally()
        for entry in self._all():
            tally.add(entry)
        spreads = [(s.source, s.path, s.latencies) for s in tally.spreads()]
        ends = [(name, tally.ends(name), tally.endless(name)) for name in tally.routers()]
        lines = [*latency_lines(spreads, self._look), *(ends_line(self._look, *row) for row in ends)]
        values = [*(spread_value(*row) for row in spreads), *(ends_value(*row) for row in ends)]
        if self._form is Form.HUMAN:
            self._lines((line, {}) for line in lines)
        else:
            self._write("latency", (("", value) for value in values))

    def _all(self) -> Iterator[Entry]:
        from pdctl.logbook.entries import entries, on_one_line

        return on_one_line(entries(s, w) for s, w in zip(self._sources, self._wanted, strict=True))

    def _event(self, entry: Entry) -> tuple[str, dict[str, Any]]:
        from pdctl.facts.log_lines import message_of
        from pdctl.render.events import event_line, event_value

        name = entry.source.ljust(self._name_width) if self._name_width else ""
        if self._form is Form.HUMAN:
            return event_line(self._look, entry.event, message_of(entry.event.text), entry.clock, name), {}
        return "", event_value(entry.event, entry.source, entry.utc)

    def _write(
        self, view: str, rows: Iterator[tuple[str, dict[str, Any]]], *, omitted: int = 0, none: str = ""
    ) -> None:
        from pdctl import outlet
        from pdctl.render.wire import dumps

        if self._form is Form.JSON:
            values = [value for _, value in rows]
            document = {"schema": SCHEMA, "view": view, "sources": self._told(), "omitted": omitted, "rows": values}
            outlet.write_lines([dumps(document, indent=2)])
            return
        written = self._lines(rows)
        if self._form is Form.HUMAN and not written and none:
            outlet.say(none)
        if omitted:
            outlet.say(f"pdctl: {omitted} earlier ones not shown; --limit 0 shows all")
        for source in self._sources:
            if source.scanner.dropped:
                outlet.say(f"pdctl: {source.name}: {source.scanner.dropped} records were cut short and left out")

    def _lines(self, rows: Iterator[tuple[str, dict[str, Any]]]) -> int:
        from pdctl import outlet
        from pdctl.render.wire import dumps

        count = 0
        for line, value in rows:
            count += 1
            if not outlet.write((dumps(value) if self._form is Form.JSONL else line) + "\n"):
                break
        return count

    def _told(self) -> list[dict[str, Any]]:
        from pdctl.render.events import source_value

        return [source_value(s.name, s.role, s.scanner.lines, s.scanner.dropped, s.offset) for s in self._sources]
