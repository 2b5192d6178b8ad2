"""One run of `pdctl script`: read, propose, show, check, ask, write, verify, say what comes next."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from pdctl.commands.common import find_inventory
from pdctl.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from pdctl.execute.rewrite import Done, Rewriter
    from pdctl.execute.script_edit import Bench, Proposal
    from pdctl.model.cluster import Cluster

SCHEMA = "pdctl.script/1"
LATER = "Nothing changes until the co-restart: prefill, then decode, then router."
Propose = Callable[["Rewriter", "Bench", "datetime"], "Proposal"]


class Form(StrEnum):
    """The forms of the output."""

    HUMAN = "human"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class How:
    """The options all of them share."""

    config: Path | None
    yes: bool
    dry_run: bool
    restart: bool
    timeout: float
    form: Form
    ascii_only: bool


def run(context: typer.Context, what: str, act: str, how: How, propose: Propose) -> NoReturn:
    """Reads, proposes, shows, checks, asks, writes, verifies, says what comes next."""
    from pdctl.execute.script_edit import bench
    from pdctl.reach.clock import SystemClock

    restart = _restart_of(context) if how.restart else None
    cluster = _cluster(how.config)
    with bench(cluster, what, how.timeout) as (rewriter, found):
        proposal = propose(rewriter, found, SystemClock().wall())
        done = _carried_out(rewriter, found, proposal, act, how, cluster)
    follows = restart is not None and done is not None and proposal.writing.raw is not None
    if how.form is Form.HUMAN:
        _tell_end(proposal, done, how)
        if restart is not None and follows:
            restart(how)
        raise typer.Exit(0)
    value, status = _value(what, proposal, done, how), 0
    if restart is not None and follows:
        value["restart"], status = _restarted(restart, how)
    _write(value)
    raise typer.Exit(status)


def _cluster(config: Path | None) -> Cluster:
    """The inventory; none is needed for a file."""
    from pdctl.inventory.toml import read_cluster
    from pdctl.model.cluster import Cluster

    try:
        return read_cluster(*find_inventory(config))
    except UsageError:
        if config is not None:
            raise
        return Cluster("files", ())


def _carried_out(
    rewriter: Rewriter, found: Bench, proposal: Proposal, act: str, how: How, cluster: Cluster
) -> list[Done] | None:
    """The steps that were done; None where none was to be."""
    _show(proposal, how)
    writing = proposal.writing
    if writing.raw is None and writing.backup is None:
        return None
    fault = rewriter.syntax(found.place, writing.raw) if writing.raw is not None else None
    if fault is not None:
        raise UsageError(f"{writing.current.path}: not written: bash -n: {fault}", "The script is as it was.")
    if how.dry_run:
        return None
    _confirm(proposal, how)
    whose = {"cluster": cluster.name} if cluster.instances else {}
    return rewriter.carry_out(writing, act, {**whose, **_about(proposal)})


def _about(proposal: Proposal) -> dict[str, object]:
    """What the journal keeps of a change: which rows, digests before and after. Secrets are masked in the rows."""
    rows = [f"{row.sign} {row.name} {row.before or ''} -> {row.after or ''}".strip() for row in proposal.diff.rows]
    from pdctl.plans.script_write import digest_of

    raw = proposal.writing.raw
    return {
        "changes": rows,
        "sha256_before": proposal.writing.current.digest,
        "sha256_after": digest_of(raw) if raw is not None else None,
    }


def _show(proposal: Proposal, how: How) -> None:
    """What would change, before anything is asked."""
    from pdctl import outlet

    if how.form is Form.HUMAN:
        outlet.write_lines(_lines(proposal, how))


def _lines(proposal: Proposal, how: How) -> Iterator[str]:
    from pdctl.render.diff import diff_lines
    from pdctl.render.look import Mark, look
    from pdctl.render.text import wrap

    as_shown = look(how.ascii_only)
    if proposal.writing.raw is not None:
        yield from diff_lines(proposal.diff, as_shown)
        yield ""
    for note in proposal.notes:
        yield from wrap(as_shown.say(note), as_shown.width, f"{as_shown.mark(Mark.INFO)} ")
    if proposal.writing.backup is not None:
        where = f"{proposal.writing.host.name}: {proposal.writing.current.path} is kept as {proposal.writing.backup}"
        yield from wrap(as_shown.say(where), as_shown.width, "", "  ")
    elif proposal.writing.raw is None:
        yield "Nothing to change."


def _confirm(proposal: Proposal, how: How) -> None:
    """Asks at a terminal; anywhere else --yes is needed. Raises UsageError where nobody said yes."""
    from pdctl import outlet

    if how.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("nobody to ask: nothing was changed", "Say --yes to go ahead, or --dry-run to look only.")
    doing = "Write it" if proposal.writing.raw is not None else "Keep it"
    sys.stderr.write(f"{doing}? Type yes: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        outlet.say("Nothing was changed.")
        raise typer.Exit(0)


def _write(value: dict[str, Any]) -> None:
    from pdctl import outlet
    from pdctl.render.wire import dumps

    outlet.write_lines([dumps(value, indent=2)])


def _tell_end(proposal: Proposal, done: list[Done] | None, how: How) -> None:
    from pdctl import outlet

    if done is None and how.restart and proposal.writing.raw is None:
        outlet.write_lines(["Nothing was restarted either: pdctl restart does that."])
    if done is None:
        outlet.write_lines(["Nothing was written (--dry-run)."] if how.dry_run and proposal.writing.backup else [])
        return
    outlet.write_lines(_end_lines(proposal, how))


def _end_lines(proposal: Proposal, how: How) -> Iterator[str]:
    from pdctl.render.look import Mark, look
    from pdctl.render.text import wrap

    as_shown = look(how.ascii_only)
    mark = f"{as_shown.mark(Mark.OK)} "
    if proposal.writing.raw is None:
        yield from wrap(f"kept: {as_shown.say(proposal.writing.backup or '')}", as_shown.width, mark)
        return
    yield from wrap(f"written and read back: {as_shown.say(proposal.writing.current.path)}", as_shown.width, mark)
    if not how.restart:
        yield from wrap(LATER, as_shown.width)
        yield "  pdctl restart --plan"


def _value(what: str, proposal: Proposal, done: list[Done] | None, how: How) -> dict[str, Any]:
    from pdctl.render.diff import diff_value
    from pdctl.render.wire import text

    writing = proposal.writing
    return {
        "schema": SCHEMA,
        "subject": text(what),
        "host": text(writing.host.name),
        "path": text(writing.current.path),
        "changed": done is not None and writing.raw is not None,
        "dry_run": how.dry_run,
        "backup": None if writing.backup is None else text(writing.backup),
        "diff": diff_value(proposal.diff) if writing.raw is not None else None,
        "notes": [text(note) for note in proposal.notes],
        "steps": [
            {"step": d.step.act.value, "says": text(d.step.says), "took_s": round(d.took, 4)} for d in done or []
        ],
        "next": LATER if done is not None and writing.raw is not None and not how.restart else None,
        "restart": None,
    }


# --- what comes after ----------------------------------------------------------------------------------------------


def _restart_of(context: typer.Context) -> Callable[[How], None]:
    """The co-restart of the same command line. Raises UsageError, before anything is done, where there is none."""
    root = context.find_root()
    try:
        name, command, _ = root.command.resolve_command(root, ["restart"])  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - whatever the reason: there is no such command, and nothing was done yet
        raise UsageError("this pdctl has no restart", "Leave out --restart.") from None

    def go_on(how: How) -> None:
        words = [*(["--config", str(how.config)] if how.config else []), *(["--yes"] if how.yes else [])]
        words += [*(["-o", "json"] if how.form is Form.JSON else []), *(["--ascii"] if how.ascii_only else [])]
        with command.make_context(name, words, parent=root) as inner:
            command.invoke(inner)

    return go_on


def _restarted(restart: Callable[[How], None], how: How) -> tuple[dict[str, Any] | None, int]:
    """What the co-restart told programs, and its status. An error of it is told in the one document there is: the
    script is written by then."""
    import io
    import json
    from contextlib import redirect_stdout, suppress

    from pdctl import outlet
    from pdctl.errors import PdctlError

    told, status = io.StringIO(), 0
    try:
        with redirect_stdout(told):
            restart(how)
    except typer.Exit as end:
        status = end.exit_code
    except PdctlError as error:
        outlet.say(f"pdctl: {error.message}")
        return {"status": "refused", "why": error.message}, error.exit_status
    with suppress(ValueError):
        return json.loads(told.getvalue()), status
    return None, status
