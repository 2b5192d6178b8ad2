"""The two output streams, and what is written there when a run fails: people read stderr, programs stdout."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence

from pdctl import __version__
from pdctl.errors import CLOSED_PIPE, INTERNAL, INTERRUPTED, PdctlError

TYPE_CHECKING = False  # typing's own costs 6 ms to import
if TYPE_CHECKING:
    from pdctl.model.finding import Report

REPORT_TO = "PDCTL_REPORT_TO"  # set by a playbook's run: the file in which it wants the report as JSON as well
PROGRAMS_READ = ("json", "jsonl")  # the formats of -o in which a failure is a document, too
NAGIOS = "nagios"
REPORT_IT = "This is a fault of pdctl, not of the cluster. Run it again with --debug and report what it prints"


def write(text: str) -> bool:
    """Writes to stdout at once. False when the reader went away (``| head``): that ends the writing, not the run.
    Raises PdctlError where it cannot be written for another reason (a full disk)."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        return False
    except OSError as error:
        abandon_stdout()
        raise PdctlError(f"the output cannot be written: {error.strerror}") from None
    return True


def write_lines(lines: Iterable[str]) -> None:
    """Writes each line as it comes, so that a pipe sees it when it is said; stops when nobody reads any more."""
    for line in lines:
        if not write(line + "\n"):
            return


def say(text: str) -> None:
    """Writes a line to stderr, for people; secrets are masked, hostile characters shown and not sent."""
    from pdctl.render.escape import mask, safe

    sys.stderr.write(safe(mask(text)) + "\n")
    sys.stderr.flush()


def keep_report(report: Report) -> None:
    """Writes the report as JSON into the file that $PDCTL_REPORT_TO names as well, whatever form it is shown in. Where
    that fails there is no file, which whoever wanted it takes for a report that did not come."""
    path = os.environ.get(REPORT_TO)
    if not path:
        return
    from contextlib import suppress
    from pathlib import Path

    from pdctl.render.wire import report_json

    with suppress(OSError):
        Path(path).write_text(report_json(report), "utf-8")


def open_what_is_closed() -> None:
    """Streams that whoever started this run closed (``>&-``) lead nowhere from now on: the run goes on, its verdict is
    its exit status, and no file it opens takes their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def never_fail_on_characters() -> None:
    """A terminal that cannot show a character gets its number instead; the run goes on."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Hands everything to the system now, while an error can still be told. A closed pipe is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()


def failed(error: PdctlError, words: Sequence[str], debug: bool) -> int:
    """Tells an error that pdctl foresaw; returns its exit status."""
    _traceback(debug)
    return _tell(error.kind, error.message, error.hint, words, error.exit_status)


def interrupted(words: Sequence[str]) -> int:
    return _tell("interrupted", "interrupted", "", words, INTERRUPTED)


def crashed(error: Exception, words: Sequence[str], debug: bool) -> int:
    """Tells an error that nobody foresaw, unless it only says that stdout is closed or full."""
    if isinstance(error, OSError) and (_while_echoing(error) or _stdout_fails()):
        abandon_stdout()
        if isinstance(error, BrokenPipeError):
            return CLOSED_PIPE
        return _tell("output", f"the output cannot be written: {error.strerror}", "", (), INTERNAL)
    _traceback(debug)
    message = f"internal error: {type(error).__name__}: {error}{_place(error)}"
    return _tell("internal", message, f"{REPORT_IT} (pdctl {__version__}).", words, INTERNAL)


def abandon_stdout() -> None:
    """Points stdout at nothing, so that the interpreter's own last flush is quiet as well."""
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
    except (OSError, ValueError):  # a stdout that is no file, as in tests
        return


def wanted_format(words: Sequence[str]) -> str | None:
    """The value of -o/--output on a command line that may not even be valid; None when there is none."""
    wanted = None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--":
            break
        if word in ("-o", "--output"):
            wanted = following
        elif word.startswith("--output="):
            wanted = word.partition("=")[2]
        elif word.startswith("-o") and len(word) > 2:
            wanted = word[2:].lstrip("=")
    return wanted


def _tell(kind: str, message: str, hint: str, words: Sequence[str], status: int) -> int:
    """Tells it to people and, where they asked for it, to programs. Whatever happens here, the status stands: an exit
    status of 1 from an error in the telling would read as a warning about the cluster."""
    from contextlib import suppress

    with suppress(Exception):
        form = wanted_format(words)
        if form in PROGRAMS_READ:
            write(_document(kind, message, hint) + "\n")
        elif form == NAGIOS:
            write(_plugin_line(message) + "\n")
    with suppress(Exception):
        for line in (f"pdctl: {message}", *(f"  {more}" for more in hint.splitlines())):
            say(line)
    return status


def _document(kind: str, message: str, hint: str) -> str:
    """A report that judges nothing and says why, on one line."""
    from pdctl.render.wire import SCHEMA, dumps, text

    return dumps(
        {
            "schema": SCHEMA,
            "pdctl": __version__,
            "cluster": None,
            "status": "unknown",
            "window": None,
            "error": {"kind": kind, "message": text(message), "hint": text(hint)},
            "findings": [],
            "unchecked": [],
            "instances": [],
        }
    )


def _plugin_line(message: str) -> str:
    """What Nagios shows of a plugin that could not judge: it reads stdout alone."""
    from pdctl.render.escape import mask, safe

    return f"PDCTL UNKNOWN - {safe(mask(message), ascii_only=True)}".replace("|", "/")


def _traceback(debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exc()


def _place(error: Exception) -> str:
    """Where in pdctl it happened, as `` (checks/pinned.py:41)``."""
    here, place, step = __file__.removesuffix("outlet.py"), "", error.__traceback__
    while step is not None:
        name = step.tb_frame.f_code.co_filename
        if name.startswith(here):
            place = f" ({name.removeprefix(here)}:{step.tb_lineno})"
        step = step.tb_next
    return place


def _while_echoing(error: BaseException) -> bool:
    """Whether the command line's own echo of a help text raised it. An unbuffered stdout has nothing left to flush."""
    step, name = error.__traceback__, ""
    while step is not None:
        name, step = step.tb_frame.f_code.co_name, step.tb_next
    return name == "echo"


def _stdout_fails() -> bool:
    """Whether it is stdout that cannot be written to, and not something else that raised an error of its kind."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False
