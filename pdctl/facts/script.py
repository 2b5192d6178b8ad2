"""A serve script, or one of its backups: what it would start, with which flags and variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pdctl.facts.base import Unreadable
from pdctl.facts.documents import body_of
from pdctl.facts.flags import ROUTER, SGLANG, launch_at, read_flags, read_launch
from pdctl.facts.stamps import read_stamp, text_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance, Role
from pdctl.model.host import ScriptFile
from pdctl.model.secrets import mask_argv, mask_text, mask_value

if TYPE_CHECKING:
    from pdctl.facts.shell_scope import Held, Ran, Word

_UNKNOWN = re.compile(r"[$`]")
_PASSED_ON = re.compile(r"\$[@*]|\$\{[@*][^}]*\}")
_FRAGMENT = re.compile(r"\$\w+|\$\{\w+(?:\[[@*]\])?(?::?[-+][^}]*)?\}")
_FRAGMENT_NAME = re.compile(r"ARGS|OPT|EXTRA|FLAG", re.I)
_OTHER_SHEBANG = re.compile(r"#!.*\b(?:python|perl|ruby|node)")


def read(answer: Answer, instance: Instance | None) -> ScriptFile:
    """The script an answer holds; ``instance`` tells which launch command of several is meant. An empty file is an
    answer. Raises ``Unreadable`` where the file did not come or has no name."""
    path = text_of(answer.more, "path") or (instance.script if instance else None)
    if path is None:
        raise Unreadable(Why.OTHER, "the answer names no file")
    text = body_of(answer).decode("utf-8", "replace")
    return script_of(path, read_stamp(answer.more.get("mtime")), text, instance)


def script_of(
    path: str,
    mtime: datetime | None,
    text: str,
    instance: Instance | None = None,
    files: Mapping[str, str] | None = None,
) -> ScriptFile:
    """A script from its text. ``files``: texts of files it reads in, by the path it writes."""
    if _OTHER_SHEBANG.match(text):
        return _foreign(path, mtime, mask_text(text))
    from pdctl.facts.shell import read_shell

    scope = read_shell(text, files)
    launch, notes = _chosen(scope.ran, instance)
    variables = dict(launch.variables if launch else scope.held)
    exported = _exported(launch) if launch else set(scope.exported)
    if launch:
        own = _before_program(launch.words)
        variables.update(own)
        exported |= own.keys()
    flags, doubtful_flags = _flags(launch)
    plain = {
        name: held for name, held in variables.items() if not name.isdecimal() and not isinstance(held.value, tuple)
    }
    doubtful = {name for name, held in plain.items() if held.text is None or _UNKNOWN.search(held.text)}
    unsure = (*scope.notes, *notes, *_unsure(flags, doubtful_flags, plain, doubtful & exported))
    argv = tuple(word.text for word in launch.words if word.why is None) if launch else ()
    return ScriptFile(
        path,
        mtime,
        mask_text(text),
        flags={name: mask_value(name, value) for name, value in flags.items()},
        variables={name: mask_value(name, held.shown()) for name, held in plain.items()},
        unsure=tuple(mask_text(note) for note in dict.fromkeys(unsure)),
        command=mask_argv(argv),
        exported=frozenset(exported & plain.keys()),
        sources=tuple(scope.sources),
        launcher=read_launch(argv)[0],
        doubtful=frozenset(doubtful | doubtful_flags),
        others=tuple(mask_text(" ".join(w.text for w in r.words)) for r in scope.ran if r is not launch),
        program=mask_argv(argv[: _program_end(argv)]),
    )


def _program_end(argv: Sequence[str]) -> int:
    """How many words come before the program's own arguments."""
    found = launch_at(argv)
    return found[1] if found else min(1, len(argv))


def _foreign(path: str, mtime: datetime | None, text: str) -> ScriptFile:
    """A script in another language: its lines, and that nothing else is known of it."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    kept = tuple(line for line in lines if line and not line.startswith("#"))
    return ScriptFile(path, mtime, text, unsure=("not a shell script: flags and variables not read",), others=kept)


def _chosen(ran: Sequence[Ran], instance: Instance | None) -> tuple[Ran | None, list[str]]:
    """The launch command that is the instance's, and what there is to say about the choice."""
    launches = [r for r in ran if launch_at(_texts(r.words)) is not None]
    if not launches:
        likely = [r for r in ran if sum(w.text.startswith("--") for w in r.words) >= 2]
        if not likely:
            return None, ["no launch command found"]
        return likely[-1], [f"no known launch command: flags are those of line {likely[-1].line}"]
    best = max(launches, key=lambda r: (_fits(r, instance), r.why is None))
    notes = []
    if len(launches) > 1:
        lines = ", ".join(str(r.line) for r in launches)
        notes.append(f"{len(launches)} launch commands (lines {lines}): one of line {best.line} is taken")
    if best.why:
        notes.append(f"line {best.line}: started only {best.why}")
    return best, notes


def _fits(ran: Ran, instance: Instance | None) -> int:
    """How well a launch command fits an instance: by role, then by port."""
    if instance is None:
        return 0
    launcher, flags = read_launch(_texts(ran.words))
    role = Role.ROUTER if launcher == ROUTER else flags.get("--disaggregation-mode")
    port = urlsplit(instance.url).port if instance.url else None
    return 2 * (role == instance.role) + (port is not None and flags.get("--port") == str(port))


def _texts(words: Iterable[Word]) -> list[str]:
    return [word.text for word in words if word.why is None]


def _exported(launch: Ran) -> set[str]:
    """What the launch command's process gets of the script's exports: nothing in a container or on another machine."""
    from pdctl.facts.shell_inner import is_elsewhere

    return set() if is_elsewhere(launch.words) else set(launch.exported)


def _before_program(words: Sequence[Word]) -> dict[str, Held]:
    """Variables given in front of the program: ``env X=1 python ...``, ``docker run -e X=1 ...``."""
    from pdctl.facts.shell_inner import environment_of
    from pdctl.facts.shell_scope import Held

    found = launch_at(_texts(words))
    head = [word for word in words if word.why is None][: found[1]] if found else []
    return {name: Held(value) for name, value in environment_of(head).items()}


def _flags(launch: Ran | None) -> tuple[dict[str, str], set[str]]:
    """The launch command's options, and which of them cannot be known: those shown with a condition or with a variable
    nobody set. "*" stands for options that may be added from outside (``$@``, ``$EXTRA_ARGS``)."""
    if launch is None:
        return {}, set()
    texts = _texts(launch.words)
    found = launch_at(texts)
    launcher, start = found if found else (SGLANG, 1)
    words = [w for i, w in enumerate(texts) if i < start or not _adds_options(w, texts[i - 1])]
    flags = read_flags(words[start:], launcher)
    doubtful = {name for name, value in flags.items() if _UNKNOWN.search(value)}
    doubtful |= {"*"} if len(words) < len(texts) else set()
    for why in dict.fromkeys(word.why for word in launch.words if word.why):
        maybe = read_flags([w.text for w in launch.words if w.why == why], launcher)
        for name, value in maybe.items():
            said = f"{value} ({why})".strip()
            flags[name] = f"{flags[name]} | {said}" if name in flags else said
            doubtful.add(name)
    return flags, doubtful


def _adds_options(word: str, before: str) -> bool:
    """Whether a word stands for options from outside rather than for the value of the option before it."""
    if _PASSED_ON.fullmatch(word):
        return True
    takes_value = before.startswith("--") and "=" not in before
    return _FRAGMENT.fullmatch(word) is not None and (not takes_value or _FRAGMENT_NAME.search(word) is not None)


def _unsure(
    flags: Mapping[str, str], doubtful_flags: set[str], variables: Mapping[str, Held], doubtful: set[str]
) -> list[str]:
    notes = [f"{name} is {flags[name]}" for name in flags if name in doubtful_flags]
    notes += ["the launch command takes further options from outside the script"] if "*" in doubtful_flags else []
    notes += [f"{name} is {variables[name].shown()}" for name in variables if name in doubtful]
    return notes
