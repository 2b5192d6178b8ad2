from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.reach.inflate import STEP, CutShort, Damaged, UnknownEncoding, decoded


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@given(body=st.binary(max_size=5000), size=st.integers(1, 700), name=st.sampled_from(["gzip", "deflate", "raw", ""]))
def test_whatever_was_squeezed_comes_back(body: bytes, size: int, name: str) -> None:
    squeezed = {
        "gzip": gzip.compress(body), "deflate": zlib.compress(body), "raw": zlib.compress(body)[2:-4], "": body,
    }[name]  # fmt: skip
    encoding = "deflate" if name == "raw" else name
    assert b"".join(decoded(pieces(squeezed, size), encoding)) == body


def test_no_piece_is_larger_than_a_step_however_well_it_was_squeezed() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    sizes = [len(piece) for piece in decoded(iter([bomb]), "gzip")]
    assert max(sizes) <= STEP
    assert sum(sizes) == 50_000_000


@given(body=st.binary(min_size=1, max_size=2000), data=st.data())
def test_a_body_cut_anywhere_is_never_taken_for_whole(body: bytes, data: st.DataObject) -> None:
    squeezed = gzip.compress(body)
    cut = data.draw(st.integers(1, len(squeezed) - 1))
    with pytest.raises(CutShort):
        b"".join(decoded(iter([squeezed[:cut]]), "gzip"))


def test_damage_is_noticed() -> None:
    squeezed = bytearray(gzip.compress(b"x" * 1000))
    squeezed[-6] ^= 0xFF  # in the checksum
    with pytest.raises(Damaged):
        b"".join(decoded(iter([bytes(squeezed)]), "gzip"))


def test_nothing_at_all_is_an_empty_body() -> None:
    assert b"".join(decoded(iter([]), "gzip")) == b""


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, br"])
def test_an_encoding_not_asked_for_is_named(encoding: str) -> None:
    with pytest.raises(UnknownEncoding, match=encoding.rpartition(" ")[2]):
        b"".join(decoded(iter([b"x"]), encoding))
