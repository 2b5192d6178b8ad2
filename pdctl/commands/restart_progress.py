"""How a restart is told while it goes on: lines on stderr for people, a line of JSON each for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pdctl.commands.common import Output

if TYPE_CHECKING:
    from pdctl.execute.events import Happening, Tell
    from pdctl.render.look import Look


@contextmanager
def teller(output: Output, ascii_only: bool) -> Iterator[Tell]:
    """Tells each happening as it comes. At a terminal the state of a wait is one line that is written anew."""
    if output is Output.JSONL:
        yield _tell_program
        return
    from pdctl.render.look import look

    said = _Lines(look(ascii_only), sys.stderr.isatty() and os.environ.get("TERM") != "dumb")
    try:
        yield said.tell
    finally:
        said.wipe()


def _tell_program(happening: Happening) -> None:
    from pdctl import outlet
    from pdctl.render.wire import dumps, text

    step = happening.step
    row = {
        "kind": happening.kind.value,
        "step": step.id if step is not None else None,
        "instance": step.instance if step is not None else None,
        "says": text(happening.says),
        "elapsed_s": round(happening.elapsed, 3) if happening.elapsed is not None else None,
        "log": text(happening.log) if happening.log is not None else None,
    }
    outlet.write_lines([dumps(row)])


class _Lines:
    def __init__(self, look: Look, live: bool) -> None:
        self._look = look
        self._live = live
        self._open = False
        self._logs: dict[str | None, str | None] = {}

    def tell(self, happening: Happening) -> None:
        from pdctl.render.restart_progress import happening_line

        step = happening.step
        line = happening_line(happening.kind.value, happening.says, step, happening.elapsed, self._news(happening))
        shown = self._look.say(line)
        self.wipe()
        if self._live and happening.kind.value == "wait":
            sys.stderr.write(shown[: max(1, self._look.width - 1)])
            self._open = True
        else:
            sys.stderr.write(shown + "\n")
        sys.stderr.flush()

    def _news(self, happening: Happening) -> str | None:
        """What the log says, unless that was told already."""
        whose = happening.step.instance if happening.step is not None else None
        told, self._logs[whose] = self._logs.get(whose), happening.log
        return happening.log if happening.log != told or self._live else None

    def wipe(self) -> None:
        """Takes the line away that would be written anew."""
        if self._open:
            sys.stderr.write("\r\x1b[K")
            self._open = False
