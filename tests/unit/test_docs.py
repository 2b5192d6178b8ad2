"""The documents say what is so: every command and finding is in them, and what they show to type works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pdctl
from pdctl import __version__
from pdctl.cli import COMMANDS, main
from pdctl.exits import OF_STATUS
from pdctl.inventory.schema import HOST, INSTANCE
from pdctl.inventory.toml import read_cluster
from pdctl.model.registry import REGISTRY

PROJECT = Path(pdctl.__file__).parents[1]
README = (PROJECT / "README.md").read_text("utf-8")
EXPLAIN = PROJECT / "pdctl" / "checks" / "explain"


def blocks(language: str) -> list[str]:
    """The README's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def shell_lines() -> Iterator[str]:
    """Every command the README shows in a shell block, joined over line ends, without its comment."""
    for block in blocks("sh"):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.partition("  #")[0].strip()
            if command and not command.startswith("#"):
                yield command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_readme_with_its_line_of_help(name: str) -> None:
    assert re.search(rf"^\| `pdctl {name}[^|]*\| {re.escape(COMMANDS[name][1])}", README, re.M), name


def test_the_readme_names_no_command_that_is_not_there() -> None:
    named = set(re.findall(r"`pdctl ([a-z]+)", README)) | {
        words[1] for line in shell_lines() if (words := shlex.split(line)) and words[0] == "pdctl" and len(words) > 1
    }
    assert {name for name in named if not name.startswith("-")} <= set(COMMANDS)


def test_every_exit_status_is_in_the_readme() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| ([^|]+) \|", README, re.M))
    assert {int(code) for code in rows} == {*OF_STATUS.values(), 64, 70, 75, 130}
    for status, code in OF_STATUS.items():
        assert rows[str(code)].split()[0].strip(":") == status


def test_the_options_the_readme_shows_are_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    for line in shell_lines():
        for command in line.split("&&"):
            words = shlex.split(command)
            if words[0] != "pdctl" or len(words) < 2 or words[1] not in COMMANDS:
                continue
            main([words[1], "--help"])
            known = capsys.readouterr().out
            if re.search(r"^Usage: .* COMMAND", known, re.M):  # a group: the options are its command's
                main([words[1], words[2], "--help"])
                known += capsys.readouterr().out
            for option in (word.partition("=")[0] for word in words[2:] if word.startswith("-") and word != "-"):
                assert re.search(rf"(?<!\S){option}\b", known), f"{line}: {words[1]} has no {option}"


@pytest.mark.parametrize(
    "command", [line for line in shell_lines() if line.startswith(("pdctl explain", "pdctl findings"))]
)
def test_what_needs_no_cluster_runs_as_shown(command: str, elsewhere: Path) -> None:
    words = shlex.split(command)
    done = subprocess.run([sys.executable, "-m", *words], cwd=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.slow
def test_the_readmes_first_command_finds_what_the_readme_shows(elsewhere: Path) -> None:
    """All but times, ports and counts: those of the moment are masked on both sides."""
    (shown,) = blocks("text")
    words = [sys.executable, "-m", "pdctl", "triage", "--demo", "pinned"]
    done = subprocess.run(words, cwd=elsewhere, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2, done.stderr
    said = done.stdout.partition("\n\nRuled out")[0]
    assert headings(said) == headings(shown)


def headings(text: str) -> list[str]:
    """The words of a report's verdict, finding and section titles, numbers masked; where lines break does not count."""
    lines = (line for line in text.strip().splitlines() if not line.startswith("    "))
    return re.sub(r"\d+(?:\.\d+)?", "N", " ".join(lines)).split()


def test_the_inventory_in_the_readme_is_read_and_shows_every_key() -> None:
    (text,) = blocks("toml")
    cluster = read_cluster(text, "README.md")
    assert cluster.prefills and cluster.decodes and cluster.routers
    assert set(re.findall(r"^#? ?([a-z_]+) = ", text, re.M)) == {*HOST, *INSTANCE}


def test_paths_the_readme_names_exist() -> None:
    for path in re.findall(r"`((?:pdctl|tests|playbooks|\.ci)/[^`\s]*)`", README):
        assert (PROJECT / path).exists(), path


# --- findings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTRY)
def test_every_finding_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == f"# {name} ({REGISTRY[name].severity})"
    assert len(text.split()) > 60, "a text that only repeats the one line is none"
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_no_text_is_left_over() -> None:
    assert {path.stem for path in EXPLAIN.glob("*.md")} == set(REGISTRY)


# Commands that texts may name before they are there.
STILL_TO_COME = frozenset({"restart"})


def test_an_explanation_only_sends_people_to_commands_that_are_there() -> None:
    texts = (path.read_text("utf-8") for path in EXPLAIN.glob("*.md"))
    named = {word for text in texts for word in re.findall(r"`pdctl ([a-z]+)", text)}
    assert named <= set(COMMANDS) | STILL_TO_COME


def test_findings_lists_all_of_them_in_the_registrys_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", "-o", "short"]) == 0
    assert capsys.readouterr().out.split() == list(REGISTRY)


# --- the package -------------------------------------------------------------------------------------------------


def test_the_changelog_begins_with_this_version() -> None:
    first = re.search(r"^## (\S+)", (PROJECT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert first is not None and first[1] == __version__


def test_the_licence_is_the_one_the_package_names() -> None:
    text = (PROJECT / "LICENSE").read_text("utf-8")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in text and "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text


def test_ci_is_executable_shell() -> None:
    script = PROJECT / ".ci" / "run"
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    assert os.access(script, os.X_OK)
