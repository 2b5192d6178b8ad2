"""The front door: which commands there are, and the one place where what went wrong becomes an exit status.

Only the command that is invoked is imported. ``pdctl --help`` reads the table below; ``--version`` does not even import
typer, because import time is start-up time.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from pdctl import __version__
from pdctl.errors import USAGE, PdctlError, UsageError

TYPE_CHECKING = False  # typing's own costs 6 ms to import
if TYPE_CHECKING:
    from typer import TyperException

    from pdctl.lazy import LazyGroup

# name -> (module:function, one line of help of at most 60 characters). A new command is one file and one row.
COMMANDS: dict[str, tuple[str, str]] = {
    "triage": ("pdctl.commands.triage:triage", "run every check: what is wrong, where, what is ruled out"),
    "pinned": ("pdctl.commands.pinned:pinned", "is a request stuck between prefill and decode?"),
    "check": ("pdctl.commands.check:check", "triage for machines: cron, Nagios, Prometheus, CI"),
    "sample": ("pdctl.commands.sample:sample", "show the gauges that matter over time"),
    "past": ("pdctl.commands.past:past", "judge what a Prometheus server scraped, of any time"),
    "ps": ("pdctl.commands.ps:ps", "show the processes behind each instance"),
    "sockets": ("pdctl.commands.sockets:sockets", "show each instance's connections by peer and condition"),
    "stacks": ("pdctl.commands.stacks:stacks", "show where every scheduler rank is, by py-spy"),
    "probe": ("pdctl.commands.probe:probe", "send real requests: which path, which kind fails"),
    "logs": ("pdctl.commands.logs:logs", "show and filter events of engine and router logs"),
    "changes": ("pdctl.commands.changes:changes", "everything that changed since a moment, on one time line"),
    "script": ("pdctl.commands.script:app", "back up, restore and edit serve scripts"),
    "diff": ("pdctl.commands.diff:diff", "compare serve scripts: backups, processes, roles, files"),
    "restart": ("pdctl.commands.restart:restart", "restart prefill, then decode, then router, each proved"),
    "history": ("pdctl.commands.history:history", "what was changed from here, by whom, and how it ended"),
    "mute": ("pdctl.commands.mute:mute", "silence a finding for a while, with who and why"),
    "compare": ("pdctl.commands.compare:compare", "what differs between two captures, or from now"),
    "explain": ("pdctl.commands.explain:explain", "what a finding means and what to do, offline"),
    "findings": ("pdctl.commands.findings:findings", "list every finding there is, offline"),
    "playbook": ("pdctl.commands.playbook:playbook", "list, show, check and run runbooks that are data"),
    "init": ("pdctl.commands.init:init", "write pdctl.toml from URLs or from what runs on hosts"),
    "demo": ("pdctl.commands.demo:demo", "start a simulated cluster on loopback, with a fault"),
    "completion": ("pdctl.commands.completion:completion", "print the script that completes pdctl in your shell"),
}
COMPLETE = "_PDCTL_COMPLETE"  # set by the shell's completion function
DEBUG = "PDCTL_DEBUG"
# How many objects come before garbage is looked for: importing makes many and drops none.
SELDOM = (50_000, 20, 20)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status (the table is in README.md)."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or os.environ.get(DEBUG, "") not in ("", "0")
    gc.set_threshold(*SELDOM)
    status = _guarded([word for word in words if word != "--debug"], debug)
    if argv is None and not debug:
        _leave(status)
    return status


def _leave(status: int) -> None:
    """Ends the process with everything said and every exit handler run, but without taking it apart object by object:
    that alone costs as much CPU as asking and judging three instances."""
    import atexit

    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _guarded(words: list[str], debug: bool) -> int:
    """The only try/except between a command and its exit status."""
    from pdctl import outlet

    outlet.open_what_is_closed()
    outlet.never_fail_on_characters()
    try:
        status = _run(words)
        outlet.flush()
        return status
    except PdctlError as error:
        return outlet.failed(error, words, debug)
    except KeyboardInterrupt:
        return outlet.interrupted(words)
    except Exception as error:  # noqa: BLE001 - the border: whatever is left is a fault of pdctl itself
        return outlet.crashed(error, words, debug)


def _run(words: list[str]) -> int:
    """Runs the command that ``words`` name; raises PdctlError for wrong usage. Returns the status it asks for."""
    if words in (["--version"], ["-V"]):
        from pdctl import outlet

        outlet.write(f"pdctl {__version__}\n")
        return 0
    import typer

    _end_as_on_ctrl_c()
    group = command_line()
    if COMPLETE in os.environ:
        return _complete(group)
    if not words:
        return _help_to_stderr(group)
    try:
        with group.make_context("pdctl", words) as context:
            group.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except SystemExit as end:  # typer's --install-completion ends this way
        return end.code if isinstance(end.code, int) else 0
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        raise _usage(error) from None
    return 0


def command_line() -> LazyGroup:
    """The whole command line as one group, with no command imported yet."""
    from pdctl.lazy import group_of

    return group_of(COMMANDS)


def _end_as_on_ctrl_c() -> None:
    """Lets SIGTERM (a cron job's timeout, a stopped unit) end a run as Ctrl-C does: with what was seen until then."""
    import signal
    import threading

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _help_to_stderr(group: LazyGroup) -> int:
    """No command is wrong usage, not a cluster that is fine: a script that lost its arguments must not read 0."""
    with group.make_context("pdctl", [], resilient_parsing=True) as context:
        sys.stderr.write(context.get_help() + "\n")
    return USAGE


def _usage(error: TyperException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "pdctl"
    return UsageError(error.format_message(), f"Try '{path} --help'.")


def _complete(group: LazyGroup) -> int:
    """Answers the shell's completion function."""
    from typer.completion import shell_complete

    return shell_complete(group, {}, "pdctl", COMPLETE, os.environ[COMPLETE])
