"""``pdctl explain NAME``: what a finding means, what it rests on and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

import pdctl
from pdctl.commands.common import AsciiOpt, Output, OutputOpt, entry_value
from pdctl.errors import PdctlError, UsageError
from pdctl.model.registry import REGISTRY, Entry

TEXTS = Path(pdctl.__file__).parent / "checks" / "explain"


def _names(incomplete: str) -> list[tuple[str, str]]:
    return [(entry.name, entry.says) for entry in REGISTRY.values() if entry.name.startswith(incomplete)]


NameArg = Annotated[str, typer.Argument(metavar="NAME", help="A finding, as reports name it.", autocompletion=_names)]


def explain(name: NameArg, output: OutputOpt = Output.HUMAN, ascii_only: AsciiOpt = False) -> None:
    """Explains a finding: what it says, what it rests on, what it is mistaken for, what to do. Needs no cluster.

    All names: pdctl findings.
    """
    from pdctl import outlet

    entry = REGISTRY.get(name.strip().lower())
    if entry is None:
        raise UsageError(f'there is no finding "{name}"', _near(name))
    outlet.write_lines(_lines(entry, text_of(entry), output, ascii_only))


def text_of(entry: Entry) -> str:
    """The words of a finding. They are shipped with pdctl, so that they are there when nothing else is."""
    try:
        return (TEXTS / f"{entry.name}.md").read_text("utf-8")
    except OSError as error:
        raise PdctlError(f"the text on {entry.name} is missing from this installation: {error.strerror}") from None


def _near(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), REGISTRY, n=3, cutoff=0.5)
    near += [known for known in REGISTRY if name.lower() in known and known not in near] if len(name) > 2 else []
    return (f"Did you mean {', '.join(near[:4])}?\n" if near else "") + "All names: pdctl findings"


def _lines(entry: Entry, text: str, output: Output, ascii_only: bool) -> Iterator[str]:
    from pdctl.render.escape import safe
    from pdctl.render.look import look
    from pdctl.render.text import flowed
    from pdctl.render.wire import dumps

    if output in (Output.JSON, Output.JSONL):
        value = {"schema": "pdctl.explain/1", **entry_value(entry), "text": text}
        yield dumps(value, indent=2 if output is Output.JSON else None)
    elif output is Output.SHORT:
        yield safe(f"{entry.name} ({entry.severity}): {entry.says}", ascii_only)
    else:
        yield from (safe(line, ascii_only) for line in flowed(text.rstrip(), look(ascii_only).width))
