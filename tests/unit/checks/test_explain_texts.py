"""Every finding has a text: whole, readable at 80 columns, and in words of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pdctl
from pdctl.cli import COMMANDS
from pdctl.model.registry import REGISTRY

TEXTS = Path(pdctl.__file__).parent / "checks" / "explain"
# Commands of later chapters that the texts already name.
LATER = {"stacks"}


def text_of(name: str) -> str:
    return (TEXTS / f"{name}.md").read_text("utf-8")


def test_there_is_one_text_for_each_finding_and_none_beside() -> None:
    assert {path.name for path in TEXTS.iterdir()} == {f"{name}.md" for name in REGISTRY}


@pytest.mark.parametrize("name", REGISTRY)
def test_a_text_is_whole_and_fits_the_screen(name: str) -> None:
    text = text_of(name)
    lines = text.rstrip("\n").split("\n")
    assert lines[0] == f"# {name} ({REGISTRY[name].severity.value})"
    assert 15 <= len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert text.isascii()
    titles = [line for line in lines if line.startswith("## ")]
    assert titles[-2:] == ["## What to do", "## Limits"]
    assert len(titles) >= 3


@pytest.mark.parametrize("name", REGISTRY)
def test_a_text_names_only_findings_and_commands_that_exist(name: str) -> None:
    text = text_of(name)
    for said in re.findall(r"\bpdctl ([a-z]+)", text):
        assert said in COMMANDS or said in LATER, said
    for said in re.findall(r"(?:see |look for )([a-z]+(?:-[a-z]+)+)", text):
        assert said in REGISTRY, said
    for said in re.findall(r"^- ([a-z]+-[a-z-]+):", text, re.M):
        assert said in REGISTRY or name == "endpoint-unreadable", said


def test_no_sentence_is_boilerplate() -> None:
    """A long line that stands in many texts says nothing of the finding it stands under."""
    counts: dict[str, int] = {}
    for name in REGISTRY:
        for line in set(text_of(name).split("\n")):
            if len(line) > 40 and not line.startswith("#"):
                counts[line] = counts.get(line, 0) + 1
    assert {line: n for line, n in counts.items() if n > 2} == {}
