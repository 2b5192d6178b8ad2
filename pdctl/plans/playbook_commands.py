"""Which of pdctl's commands a playbook may run: those that only read, and those that a person must consent to.

A playbook is a file that somebody else may have written. What is not in this table is no step; what changes anything,
or loads the cluster, or stops a process, is asked about each time it comes up, whatever the playbook says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pdctl.plans.playbook_words import closest

# Options that a run itself decides: what is looked at, and the form of what comes out.
_OF_THE_RUN = """
--config -c --prefill --decode --router --proxy --from --demo --release --output -o --ascii --record --no-record
--fail-on --debug --help -h
"""
OF_THE_RUN = frozenset(_OF_THE_RUN.split())
# Consent in writing: no file gives it.
CONSENT = frozenset({"--yes", "-y", "--force", "--apply"})
APART = frozenset({"--restart"})  # one change leads to another
ENDLESS = frozenset({"--follow", "-f", "--watch"})


@dataclass(frozen=True, slots=True)
class Kind:
    """How a playbook may use a command. ``reports``: it judges, so findings can be tested. ``risky``: options with
    which it does more than read. ``always``: it changes something unless its first option is one of ``harmless``,
    or its first word one of ``reading``.
    ``preview`` shows what it would do; ``agreed`` is how it is told that a person agreed; ``named``: the person types
    the cluster's name rather than yes. ``bounds``: it goes on for ever unless one of these is given. ``beside``: a
    recording it is to look at is not named by --from but stands beside what it compares that with. ``goes_on``: the
    words that go on with a change that was cut off."""

    reports: bool = False
    risky: frozenset[str] = frozenset()
    always: bool = False
    harmless: frozenset[str] = frozenset()
    reading: frozenset[str] = frozenset()
    preview: tuple[str, ...] = ()
    agreed: tuple[str, ...] = ()
    named: bool = False
    bounds: frozenset[str] = frozenset()
    beside: bool = False
    goes_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Consent:
    """What a person must agree to before a command is run."""

    why: str
    preview: tuple[str, ...] = ()
    agreed: tuple[str, ...] = ()
    named: bool = False


_JUDGES = Kind(reports=True)
_READS = Kind()
COMMANDS: Mapping[str, Kind] = {
    "triage": _JUDGES,
    "pinned": _JUDGES,
    "check": Kind(reports=True, risky=frozenset({"--out", "--record-on-fail"})),
    "sample": Kind(bounds=frozenset({"--for", "--count", "-n"})),
    "ps": _JUDGES,
    "sockets": _JUDGES,
    "stacks": Kind(reports=True, risky=frozenset({"--native", "--locals"})),
    "logs": _READS,
    "diff": _JUDGES,
    "changes": _JUDGES,
    "past": Kind(reports=True, risky=frozenset({"--key-env"})),  # which sends what a variable holds to the server named
    "compare": Kind(beside=True),
    "history": _READS,
    "explain": _READS,
    "findings": _READS,
    "probe": Kind(reports=True, risky=frozenset({"--load", "--save"}), preview=("--plan",)),
    "restart": Kind(always=True, harmless=frozenset({"--plan", "--rules"}), preview=("--plan",), agreed=("--yes",),
                    named=True, goes_on=("restart", "--resume")),
    "script": Kind(always=True, harmless=frozenset({"--dry-run"}), preview=("--dry-run",), agreed=("--yes",),
                   named=True),
    "mute": Kind(always=True, reading=frozenset({"list"})),
}  # fmt: skip
_PLACE = re.compile(r"\{([^{}]*)\}")
SUBJECT = "subject"


def consent_for(words: Sequence[str]) -> Consent | None:
    """What must be agreed to before these words are run; None where they only read."""
    kind = COMMANDS[words[0]]
    given = {name for word in words[1:] for name in option_names(word)}
    if kind.always and not _is_harmless(words, kind):
        preview = (*words, *kind.preview) if kind.preview else ()
        return Consent("it changes the cluster", preview, kind.agreed, kind.named)
    risky = sorted(given & kind.risky)
    if risky:
        preview = (*words, *kind.preview) if kind.preview and "--load" in risky else ()
        return Consent(f"{' '.join(risky)} does more than read", preview)
    return None


def _is_harmless(words: Sequence[str], kind: Kind) -> bool:
    """Whether the first option is one that makes the command only show. A later one may be the value of another."""
    if words[1:2] and words[1] in kind.reading:
        return True
    return next((word for word in words[1:] if word.startswith("-")), "") in kind.harmless


def option_names(word: str) -> tuple[str, ...]:
    """The options a word may name: ``--for=30s`` one, ``-fn`` each of its letters, any other word none."""
    if word.startswith("--"):
        return (word.partition("=")[0],)
    return tuple(f"-{letter}" for letter in word[1:] if letter.isalpha()) if word.startswith("-") else ()


def places(words: Sequence[str]) -> tuple[str, ...]:
    """The names in braces that these words hold."""
    return tuple(name for word in words for name in _PLACE.findall(word))


def filled(words: Sequence[str], subjects: Sequence[str], given: Mapping[str, str]) -> tuple[str, ...]:
    """The words to run: ``{subject}`` becomes one word for each subject (none where there is none, which means all
    instances), ``{name}`` the value given. Each stays one word, whatever is in it, and none becomes an option: raises
    ValueError for one that would."""
    out: list[str] = []
    for word in words:
        if word == f"{{{SUBJECT}}}":
            out += subjects
        else:
            out.append(_PLACE.sub(lambda match: given[match[1]], word))
    for before, after in zip(_lengthened(words, subjects), out, strict=True):
        if after.startswith("-") and not before.startswith("-"):
            raise ValueError(f"{after!r} would be read as an option")
    return tuple(out)


def _lengthened(words: Sequence[str], subjects: Sequence[str]) -> list[str]:
    out: list[str] = []
    for word in words:
        out += [word] * (len(subjects) if word == f"{{{SUBJECT}}}" else 1)
    return out


def subjects_of(subjects: Sequence[str], instances: Collection[str]) -> tuple[str, ...]:
    """The instances that findings' subjects name ("a->b" names two), each once; what is no instance is left out."""
    named = [part for subject in subjects for part in subject.split("->")]
    return tuple(dict.fromkeys(part for part in named if part in instances))


def faults_of_words(words: Sequence[str]) -> tuple[str, str] | None:
    """What is wrong with a step's words, and what would be right; None where nothing is. The run asks this once more of
    the words that it is about to run, with every place filled: what was a value must not have become an option."""
    command = words[0] if words else ""
    if command not in COMMANDS:
        shell = f"{closest(command, COMMANDS)}A playbook runs pdctl's own commands and no others: "
        return f'"{command}" is no command a playbook can run', shell + ", ".join(COMMANDS) + "."
    if "--" in words:
        return "-- hides options from the run", "Leave it out."
    if built := next((word for word in words if word.startswith("-") and places((word.partition("=")[0],))), None):
        return f"{built}: an option is written out, so that anybody sees which it is", "A value may be given: --for={x}"
    names = [name for word in words[1:] for name in option_names(word)]
    for name in names:
        if name in CONSENT:
            return f"{name} is for a person to say", "Leave it out: the run asks before anything is changed."
        if name in OF_THE_RUN:
            return f"{name} is for the run to say", f"Leave it out: pdctl playbook run NAME {name} ..."
        if name in APART:
            return f"{name} is a step of its own", "Make a step with run: [restart]"
        if name in ENDLESS:
            return f"{name} never ends", "Leave it out."
    bounds = COMMANDS[command].bounds
    if bounds and not bounds.intersection(names):
        return f"{command} would go on for ever", "Add [--for, 30s] or [-n, 10]."
    return None
