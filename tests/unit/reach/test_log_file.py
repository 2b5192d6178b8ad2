"""Log files read, and followed through growth, rotation and truncation."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from pdctl.errors import UsageError
from pdctl.reach.clock import FakeClock
from pdctl.reach.log_file import LONGEST_LINE, Growing, complete_size, follow, head_of, lines, tail_of, written


def test_lines_with_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\r\ntwo\n\nthree")
    assert list(lines(path)) == [b"one\r\n", b"two\n", b"\n", b"three"]
    assert list(lines(path, upto=6)) == [b"one\r\n", b"two\n"]
    assert complete_size(path) == 10


def test_a_packed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert list(lines(path)) == [b"one\n", b"two\n"]
    assert (head_of(path, 3), tail_of(path, 3)) == (b"one", b"")


def test_a_packed_file_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(os.urandom(4000))[:2000])
    with pytest.raises(UsageError, match=r"a\.log\.gz: cannot be read"):
        list(lines(path))


def test_an_endless_line_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * (LONGEST_LINE + 5) + b"\n")
    assert [len(line) for line in lines(path)] == [LONGEST_LINE, 6]


@pytest.mark.parametrize("read", [lambda p: list(lines(p)), lambda p: head_of(p, 1), written])
def test_a_file_that_is_not_there(tmp_path: Path, read: object) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "none.log")  # type: ignore[operator]


def test_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"0123456789")
    assert (head_of(path, 4), tail_of(path, 4), complete_size(path)) == (b"0123", b"6789", 0)


def add(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def test_growth_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    add(path, b"old\npart")
    growing = Growing(path)
    growing.start_at(4)
    assert growing.fresh() == []
    add(path, b" of it\nnext")
    assert growing.fresh() == [b"part of it\n"]
    add(path, b"\n")
    assert growing.fresh() == [b"next\n"]
    growing.close()


def test_rotation_and_truncation(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    add(path, b"one\n")
    growing = Growing(path)
    assert growing.fresh() == [b"one\n"]
    path.rename(tmp_path / "a.log.1")
    assert growing.fresh() == []
    add(path, b"two\n")
    assert growing.fresh() == [b"two\n"]
    path.write_bytes(b"3\n")
    assert growing.fresh() == [b"3\n"]
    growing.close()


def test_a_file_that_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    growing = Growing(path)
    growing.start_at(0)
    assert growing.fresh() == []
    add(path, b"one\n")
    assert growing.fresh() == [b"one\n"]
    growing.close()


def test_following_several(tmp_path: Path) -> None:
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    add(a, b"a1\n")
    add(b, b"b1\n")
    clock = FakeClock()
    looks = follow([(a, 3), (b, 0)], clock)
    assert next(looks) == [[], [b"b1\n"]]
    add(a, b"a2\na3\n")
    assert next(looks) == [[b"a2\n", b"a3\n"], []]
    assert clock.slept == [0.5]
    looks.close()  # type: ignore[attr-defined]
