"""Whole reports as people and programs get them, against files that were read line by line."""

from __future__ import annotations

import golden_write
import pytest

TEXTS = golden_write.golden_texts()


@pytest.mark.parametrize("file", sorted(TEXTS))
def test_shown_as_in_the_golden_file(file: str) -> None:
    assert TEXTS[file] == (golden_write.HERE / file).read_text("utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert {path.name for path in golden_write.HERE.iterdir()} == set(TEXTS)
