from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.model.cluster import KeySource
from pdctl.reach.keys import KeyUnreadable, read_key


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", " abc-123 \n")
    key = read_key(KeySource(env="ENGINE_KEY"))
    assert key.value == "abc-123"
    assert "abc" not in f"{key} {key!r}"


def test_from_a_file_with_its_newline(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"abc-123\r\n")
    assert read_key(KeySource(file=str(tmp_path / "key"))).value == "abc-123"


def test_a_file_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").write_text("abc")
    assert read_key(KeySource(file="~/key")).value == "abc"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"a\nb", "no HTTP header"),
        (b"x" * 70_000, "not a key"),
    ],
)
def test_a_key_that_is_none_names_its_file_and_not_itself(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(KeyUnreadable) as caught:
        read_key(KeySource(file=str(path)))
    assert str(path) in caught.value.message
    assert says in caught.value.message
    assert "xxx" not in caught.value.message


@pytest.mark.parametrize(("value", "says"), [(None, "is not set"), ("", "is not set"), ("  ", "is empty")])
def test_a_variable_without_a_key(monkeypatch: pytest.MonkeyPatch, value: str | None, says: str) -> None:
    monkeypatch.delenv("ENGINE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("ENGINE_KEY", value)
    with pytest.raises(KeyUnreadable, match=f"environment variable ENGINE_KEY {says}"):
        read_key(KeySource(env="ENGINE_KEY"))


def test_a_source_that_names_nothing() -> None:
    with pytest.raises(KeyUnreadable):
        read_key(KeySource())
