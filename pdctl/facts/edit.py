"""Edits of a serve script: one variable or one option, everything else kept byte for byte.

Every edit is proved before it is handed out: the script is read again, and the meaning must have changed in what was
asked for and in nothing else. What cannot be proved so is refused with the reason: a value made by ``$(...)`` or under
a condition, an option that comes from outside, a variable of another file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pdctl.facts import options
from pdctl.facts.edit_flag import flag_edit, flag_removal
from pdctl.facts.edit_launch import Launch, launch_of
from pdctl.facts.edit_text import Refused, Region, regions_of, spliced
from pdctl.facts.edit_variable import check_name, insertion, places_of, removal, value_edit
from pdctl.facts.flags import ROUTER, SGLANG, canonical, read_flags
from pdctl.facts.script import script_of
from pdctl.model.cluster import Instance
from pdctl.model.host import ScriptFile
from pdctl.model.secrets import mask_value

Span = tuple[int, int, str]
_LINE = re.compile(r"line \d+")


@dataclass(frozen=True, slots=True)
class Source:
    """The script to edit: its bytes as they are, its path, whose it is, the texts of files it reads in (as written)."""

    raw: bytes
    path: str
    instance: Instance | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    def read(self, raw: bytes | None = None) -> ScriptFile:
        """What the script means."""
        text = (self.raw if raw is None else raw).decode("utf-8", "surrogateescape")
        return script_of(self.path, None, text, self.instance, self.files)


@dataclass(frozen=True, slots=True)
class Edited:
    """The new bytes (the old ones where nothing had to change), what the script means now, and what to know of it."""

    raw: bytes
    script: ScriptFile
    notes: tuple[str, ...] = ()


def set_variable(source: Source, name: str, value: str) -> Edited:
    """``NAME=value``: in place of the value the script gives it, else on a new line before the launch command. Raises
    ``Refused``."""
    check_name(name)
    regions, launch, before = _looked_at(source)
    places = places_of(regions, name)
    wanted = mask_value(name, value)
    if before.variables.get(name) == wanted and (before.launcher is None or name in before.exported or places):
        return Edited(source.raw, before, (f"{name} has that value already",))
    if not places:
        _refuse_foreign(source, before, name)
        return _proved(source, before, insertion(regions, name, value, launch), _is_set(before, name, wanted))
    found = [
        edited
        for place in places
        if (edited := _tried(lambda p=place: value_edit(p, name, value, launch), source, before, name, wanted))  # type: ignore[misc]
    ]
    if len(found) == 1:
        default = "${" in before.variables.get(name, "")
        return replace(found[0], notes=("it was a default that the caller could override",)) if default else found[0]
    if len(places) == 1:  # say why
        return _proved(source, before, value_edit(places[0], name, value, launch), _is_set(before, name, wanted))
    lines = ", ".join(str(p.line) for p in places)
    conditional = next((str(e) for e in _reasons(places, name, value, launch)), None)
    raise Refused(conditional or f"{name} is set more than once (lines {lines})", "Edit the script by hand.")


def unset_variable(source: Source, name: str) -> Edited:
    """The script without its assignment of the variable. Raises ``Refused``."""
    check_name(name)
    regions, launch, before = _looked_at(source)
    places = places_of(regions, name)
    if not places:
        if name in before.variables:
            _refuse_foreign(source, before, name)
        return Edited(source.raw, before, (f"{name} is not set in {source.path}",))
    if len(places) > 1:
        lines = ", ".join(str(p.line) for p in places)
        raise Refused(f"{name} is set more than once (lines {lines})", "Edit the script by hand.")

    def is_gone(after: ScriptFile) -> str | None:
        return f"{name} would still be set" if name in after.variables else _beside(before, after, {name}, set())

    return _proved(source, before, removal(regions, places[0], name, launch), is_gone)


def set_flag(source: Source, name: str, values: Sequence[str]) -> Edited:
    """The launch command's option with these values (none: a bare switch), added where it is not there. Raises
    ``Refused``."""
    regions, launch, before = _looked_at(source)
    launch = launch or launch_of(regions, source.instance)
    wanted = canonical(name, launch.launcher)
    value = mask_value(wanted, read_flags([name, *values], launch.launcher).get(wanted, ""))
    if before.flags.get(wanted) == value and wanted not in before.doubtful:
        return Edited(source.raw, before, (f"{name} has that value already",))
    spans = flag_edit(launch, name, values)
    if wanted in before.flags and spans and _is_new(launch, spans) and not _names(launch, wanted):
        raise Refused(f"{name} is given in a way that cannot be edited: the script has it as {before.flags[wanted]!r}")

    def is_set(after: ScriptFile) -> str | None:
        got = after.flags.get(wanted)
        if got != value or wanted in after.doubtful:
            return f"{name} would be {got!r}"
        return _beside(before, after, _holders(launch), {wanted})

    return _proved(source, before, spans, is_set, tuple(_notes(before, launch, name, wanted)))


def _notes(before: ScriptFile, launch: Launch, name: str, wanted: str) -> Iterator[str]:
    if _open_end(before, launch):
        yield "options from outside come after it and may override it"
    known = {SGLANG: options.SGLANG, ROUTER: options.ROUTER}.get(launch.launcher)
    if known is not None and wanted.removeprefix("--") not in known.split() and wanted not in before.flags:
        yield f"{name} is no option that pdctl knows of the {launch.launcher}: check its spelling"


def remove_flag(source: Source, name: str) -> Edited:
    """The launch command without the option. Raises ``Refused``."""
    regions, launch, before = _looked_at(source)
    launch = launch or launch_of(regions, source.instance)
    wanted = canonical(name, launch.launcher)

    def is_gone(after: ScriptFile) -> str | None:
        return f"{name} would still be given" if wanted in after.flags else _beside(
            before, after, _holders(launch), {wanted}
        )  # fmt: skip

    return _proved(source, before, flag_removal(launch, name), is_gone)


# --- proof ---------------------------------------------------------------------------------------------------------


def _looked_at(source: Source) -> tuple[list[Region], Launch | None, ScriptFile]:
    regions = regions_of(source.raw)
    if regions[0].root.has_error:
        raise Refused(f"{source.path} does not parse as shell", "Put its syntax right first: bash -n shows where.")
    before = source.read()
    if before.unsure[:1] == ("not a shell script: flags and variables not read",):
        raise Refused(f"{source.path} is no shell script")
    misread = next((note for note in before.unsure if "escaped blank" in note), None)
    if misread is not None:
        raise Refused(misread, "Write the value in quotes.")
    return regions, launch_of(regions, source.instance) if before.launcher else None, before


def _proved(
    source: Source,
    before: ScriptFile,
    spans: Sequence[Span],
    wrong: Callable[[ScriptFile], str | None],
    notes: tuple[str, ...] = (),
) -> Edited:
    raw = spliced(source.raw, spans)
    if regions_of(raw)[0].root.has_error:
        raise Refused("the script would no longer parse as shell", "Edit the script by hand.")
    after = source.read(raw)
    why = wrong(after) or (None if after.launcher == before.launcher else "it would no longer start the same program")
    if why is not None:
        raise Refused(why, "Edit the script by hand.")
    return Edited(raw, after, notes)


def _is_set(before: ScriptFile, name: str, wanted: str) -> Callable[[ScriptFile], str | None]:
    def wrong(after: ScriptFile) -> str | None:
        got = after.variables.get(name, "")
        if got != wanted and not _same_condition(before.variables.get(name, ""), got, wanted):
            return f"{name} would be {got!r}: something else in the script sets it as well"
        if before.launcher and name not in before.variables and name not in after.exported:
            return f"the engine would not see {name}"
        missing = (before.flags.keys() - after.flags.keys()) | (before.variables.keys() - after.variables.keys())
        return f"{', '.join(sorted(missing))} would be lost" if missing else None

    return wrong


def _same_condition(old: str, new: str, wanted: str) -> bool:
    """In a loop that also holds the launch command every value carries that condition."""
    old, new = _no_lines(old), _no_lines(new)
    return " | " not in new and new.startswith(f"{wanted} (in the loop") and old.endswith(new[len(wanted) :])


def _no_lines(shown: str | None) -> str:
    """A value without the line numbers of its conditions, which move with what is put in above."""
    return _LINE.sub("line", shown or "\0")


def _beside(before: ScriptFile, after: ScriptFile, variables: set[str], flags: set[str]) -> str | None:
    """What else would change, None for nothing."""
    changed = [
        n
        for n in {*before.flags, *after.flags}
        if n not in flags and _no_lines(before.flags.get(n)) != _no_lines(after.flags.get(n))
    ] + [
        n
        for n in {*before.variables, *after.variables}
        if n not in variables and _no_lines(before.variables.get(n)) != _no_lines(after.variables.get(n))
    ]
    return f"{', '.join(sorted(changed))} would change as well" if changed else None


def _tried(
    spans: Callable[[], Sequence[Span]], source: Source, before: ScriptFile, name: str, wanted: str
) -> Edited | None:
    try:
        return _proved(source, before, spans(), _is_set(before, name, wanted))
    except Refused:
        return None


def _reasons(places: Sequence[object], name: str, value: str, launch: Launch | None) -> list[Refused]:
    out = []
    for place in places:
        try:
            value_edit(place, name, value, launch)  # type: ignore[arg-type]
        except Refused as why:
            out.append(why)
    return out


def _refuse_foreign(source: Source, before: ScriptFile, name: str) -> None:
    """A variable that something else than a plain assignment in this file sets."""
    if name not in before.variables:
        return
    for written, text in source.files.items():
        if written in before.sources and name in script_of(written, None, text).variables:
            raise Refused(f"{name} is set in {written}, which {source.path} reads in", "Edit that file.")
    raise Refused(
        f"{name} is not assigned plainly: the script has it as {before.variables[name]!r}", "Edit the script by hand."
    )


def _holders(launch: Launch) -> set[str]:
    return {token.holder for token in launch.tokens if token.holder}


def _names(launch: Launch, wanted: str) -> bool:
    heads = (t.text or t.made_of for t in launch.arguments)
    return any(canonical(h.partition("=")[0], launch.launcher) == wanted for h in heads if h.startswith("-"))


def _is_new(launch: Launch, spans: Sequence[Span]) -> bool:
    return all(start == end for start, end, _ in spans)


def _open_end(before: ScriptFile, launch: Launch) -> bool:
    last = launch.arguments[-1] if launch.arguments else None
    return "*" in before.doubtful and last is not None and last.text is None
