"""Where playbooks are: the user's own before those that pdctl brings along."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pdctl
from pdctl.errors import UsageError
from pdctl.model.playbook import Playbook, Problem
from pdctl.plans.playbook import Faulty, read_playbook
from pdctl.plans.playbook_words import closest

ENDINGS = (".yaml", ".yml")
LARGEST = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shelved:
    """A playbook's file. ``own``: it is the user's; ``hides``: a shipped one of the same name stands behind it."""

    name: str
    path: Path
    own: bool
    hides: bool = False


def shipped() -> Path:
    """The folder of the playbooks that come with pdctl: inside the package when installed, beside it in a checkout."""
    package = Path(pdctl.__file__).parent
    inside = package / "playbooks"
    return inside if inside.is_dir() else package.parent / "playbooks"


def own() -> Path:
    """The folder of the user's own playbooks, whether it is there or not; as it is written where the user has no home
    (a container's nameless user)."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    with suppress(RuntimeError):
        home = home.expanduser()
    return home / "pdctl" / "playbooks"


def shelved() -> tuple[Shelved, ...]:
    """Every playbook that can be found by name, by name."""
    brought = {path.stem: path for path in _files(shipped())}
    mine = {path.stem: path for path in _files(own())}
    names = sorted({*brought, *mine})
    return tuple(
        Shelved(name, mine.get(name) or brought[name], name in mine, name in mine and name in brought) for name in names
    )


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in ENDINGS and path.is_file())
    except OSError:
        return []


def find(name: str) -> Path:
    """The file of a playbook, by name or by path. Raises UsageError where there is none."""
    if "/" in name or name.endswith(ENDINGS):
        return Path(name)
    known = {row.name: row.path for row in shelved()}
    if name not in known:
        hint = f"{closest(name, known)}There are: {', '.join(known)}.\nYour own: a file's path, or {own()}/NAME.yaml"
        raise UsageError(f'there is no playbook "{name}"', hint)
    return known[name]


def text_of(path: Path) -> str:
    """The text of a playbook's file. Raises UsageError where it cannot be read, Faulty where it is no text."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        wrong = Problem(line, "", f"not UTF-8 text (byte {error.start})", "Save it as UTF-8.")
        raise Faulty(str(path), (wrong,)) from None


def opened(path: Path) -> Playbook:
    """The playbook in a file. Raises UsageError that says everything wrong with it, by line and key."""
    try:
        return read_playbook(text_of(path), path.stem, str(path))
    except Faulty as faulty:
        raise faulty_error(faulty) from None


def faulty_error(faulty: Faulty) -> UsageError:
    """The error for people: the first problem in the message, the others and what would be right below it."""
    lines: list[str] = []
    for number, problem in enumerate(faulty.problems):
        key = f"{problem.key}: " if problem.key else ""
        if number:
            lines.append(f"{faulty.source}:{problem.line}: {key}{problem.wrong}")
        lines += [f"  {line}" if number else line for line in problem.right.splitlines()]
    first = faulty.problems[0]
    message = f"{faulty.source}:{first.line}: {f'{first.key}: ' if first.key else ''}{first.wrong}"
    return UsageError(message, "\n".join(lines))
