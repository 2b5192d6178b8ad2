"""Captures from elsewhere: other writers, cut short, damaged, hostile."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard
from answers import CLUSTER, EVERY_KIND
from hypothesis import given
from hypothesis import strategies as st

from pdctl.errors import CaptureError
from pdctl.model.answer import Answer, Fact, Why
from pdctl.reach import bundle, capture_index
from pdctl.reach.bundle import pack
from pdctl.reach.capture import open_capture
from pdctl.reach.capture_line import BadLine, read_time, row_of
from pdctl.reach.capture_write import CaptureWriter

TOML = 'name = "handed"\n\n[[instance]]\nname = "prefill-0"\nrole = "prefill"\nurl = "http://192.0.2.11:30000"\n'
AT = "2026-11-12T03:14:00Z"


def line(**keys: object) -> str:
    said = {
        "t": 0.0,
        "at": AT,
        "instance": "prefill-0",
        "fact": "metrics",
        "ask": "GET /metrics",
        "file": "m",
        "took": 0.01,
    }
    return json.dumps({key: value for key, value in {**said, **keys}.items() if value != "absent"})


def capture_of(folder: Path, *lines: str, files: dict[str, bytes] | None = None, end: str = "\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cluster.toml").write_text(TOML)
    (folder / "index.jsonl").write_text("\n".join(lines) + (end if lines else ""))
    for name, body in (files or {"m": b"x 1\n"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder


def read(folder: Path) -> list[Answer]:
    with open_capture(folder) as capture:
        return list(capture.answers())


# --- lines ------------------------------------------------------------------------------------------------------------


def test_a_line_of_another_writer(tmp_path: Path) -> None:
    path = capture_of(tmp_path / "c", line(t=1, status=200, error=None, detail=None, pid=7, title="x", colour={"a": 1}))
    (one,) = read(path)
    assert (one.subject, one.fact, one.t, one.status, one.error, one.body) == (
        "prefill-0",
        Fact.METRICS,
        1.0,
        200,
        None,
        b"x 1\n",
    )
    assert dict(one.more) == {"pid": 7, "title": "x", "colour": {"a": 1}}
    with open_capture(path) as capture:
        assert capture.cut_short
        assert capture.started == datetime(2026, 11, 12, 3, 13, 59, tzinfo=UTC)
        assert capture.cluster.instance("prefill-0") is not None


def test_missing_keys_equal_null(tmp_path: Path) -> None:
    (one,) = read(capture_of(tmp_path / "c", '{"instance": "prefill-0", "fact": "health"}'))
    assert (one.t, one.took, one.status, one.error, one.detail, one.body, dict(one.more)) == (
        0.0,
        0.0,
        None,
        None,
        None,
        None,
        {},
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"t": "soon"}, {"t": True}, {"t": 1e999}, {"at": 5}, {"at": "yesterday"}, {"took": None}, {"took": []},
        {"status": "ok"}, {"status": True}, {"error": 5}, {"detail": {}}, {"ask": None}, {"file": 5},
        {"content_type": 1}, {"t": 10**400}, {"status": 10**400},
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_counts_as_missing(tmp_path: Path, keys: dict[str, object]) -> None:
    (one,) = read(capture_of(tmp_path / "c", line(**keys)))
    assert one.subject == "prefill-0"


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_no_value_of_any_key_ends_the_reading(value: object) -> None:
    for key in ("t", "at", "took", "status", "error", "detail", "ask", "file", "pid"):
        row_of(line(**{key: value}).encode())


@given(st.binary(max_size=200))
def test_no_line_ends_the_reading(data: bytes) -> None:
    with contextlib.suppress(BadLine):
        row_of(data)


def test_an_error_word_not_known_is_other_and_kept(tmp_path: Path) -> None:
    (one,) = read(capture_of(tmp_path / "c", line(error="sunspots", detail="again", file=None)))
    assert (one.error, one.detail) == (Why.OTHER, "sunspots: again")


def test_lines_out_of_order_come_in_order(tmp_path: Path) -> None:
    lines = [line(t=t, file=f"f{t}") for t in (5, 1, 3, 2, 4, 0)]
    path = capture_of(tmp_path / "c", *lines, files={f"f{t}": b"%d" % t for t in range(6)})
    assert [(one.t, one.body) for one in read(path)] == [(float(t), b"%d" % t) for t in range(6)]
    with open_capture(path) as capture:
        assert [one.t for one in capture.answers(since=3.0)] == [3.0, 4.0, 5.0]


def test_lines_of_one_moment_keep_their_order(tmp_path: Path) -> None:
    lines = [line(t=9), *(line(t=1, ask=str(n)) for n in range(20)), line(t=0)]
    assert [one.ask for one in read(capture_of(tmp_path / "c", *lines))][1:21] == [str(n) for n in range(20)]


def test_a_line_without_t_is_placed_by_its_time(tmp_path: Path) -> None:
    lines = [
        line(t=10, at="2026-11-12T03:14:10Z"),
        line(t="absent", at="2026-11-12T03:14:04.5Z"),
        line(t="absent", at="absent"),
    ]
    assert [one.t for one in read(capture_of(tmp_path / "c", *lines))] == [4.5, 4.5, 10.0]


def test_what_stands_for_no_answer_is_passed_over_and_counted(tmp_path: Path) -> None:
    lines = [
        line(),
        "not json",
        "[1, 2]",
        line(instance="absent"),
        line(instance=""),
        "",
        line(fact="aura"),
        line(fact="\x1b[2J"),
        line(t=1),
    ]
    with open_capture(capture_of(tmp_path / "c", *lines)) as capture:
        assert len(list(capture.answers())) == 2
        assert capture.notes == (
            "4 lines of index.jsonl stand for no answer: ignored",
            "2 answers about facts this version does not know: 'aura', '\\x1b[2J'",
        )


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_last_line_half_written_is_passed_over(tmp_path: Path, cut: int) -> None:
    path = capture_of(tmp_path / "c", line(), line(t=1)[:-cut], end="")
    with open_capture(path) as capture:
        assert len(list(capture.answers())) == 1
        assert capture.notes == ("the last line of index.jsonl is half written: ignored",)


def test_a_last_line_without_its_newline_counts(tmp_path: Path) -> None:
    assert len(read(capture_of(tmp_path / "c", line(), line(t=1), end=""))) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-12T03:14:00Z", datetime(2026, 11, 12, 3, 14, tzinfo=UTC)),
        ("2026-11-12T03:14:00.123Z", datetime(2026, 11, 12, 3, 14, 0, 123000, tzinfo=UTC)),
        ("2026-11-12T03:14:00.123456789Z", datetime(2026, 11, 12, 3, 14, 0, 123456, tzinfo=UTC)),
        ("2026-11-12T05:14:00+02:00", datetime(2026, 11, 12, 3, 14, tzinfo=UTC)),
        ("2026-11-12 03:14:00", datetime(2026, 11, 12, 3, 14, tzinfo=UTC)),
        ("noon", None),
        ("0001-01-01T00:00:00+23:00", None),
        (None, None),
    ],
)
def test_times(text: str | None, expected: datetime | None) -> None:
    assert read_time(text) == expected


# --- bodies -----------------------------------------------------------------------------------------------------------


def test_a_missing_body_is_an_error_of_its_answer_alone(tmp_path: Path) -> None:
    gone, good, errs = read(
        capture_of(tmp_path / "c", line(file="gone"), line(t=1), line(t=2, file="gone", error="reset", detail="x"))
    )
    assert (gone.error, gone.body) == (Why.OTHER, None)
    assert gone.detail == "its file in the capture cannot be read: No such file or directory"
    assert good.body == b"x 1\n"
    assert errs.error is Why.RESET
    assert (errs.detail or "").startswith("x; its file")


@pytest.mark.parametrize(
    "file", ["/etc/passwd", "../secret", "a/../../secret", "out", "dir/out/x", "a\x00b", "x" * 5000]
)
def test_no_path_leads_out(tmp_path: Path, file: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "x").write_bytes(b"secret")
    path = capture_of(tmp_path / "c", line(file=file))
    (path / "out").symlink_to(tmp_path / "secret")
    (path / "dir").mkdir()
    (path / "dir" / "out").symlink_to(tmp_path / "secrets")
    (one,) = read(path)
    assert (one.error, one.body) == (Why.OTHER, None)


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    path = capture_of(tmp_path / "c", line(file="fifo"), line(t=1, file="."))
    os.mkfifo(path / "fifo")
    assert [(one.error, one.body) for one in read(path)] == [(Why.OTHER, None)] * 2


def test_an_absurdly_large_body_is_not_read(tmp_path: Path) -> None:
    path = capture_of(tmp_path / "c", line())
    with (path / "m").open("wb") as out:
        out.truncate(10**12)
    (one,) = read(path)
    assert (one.error, one.body) == (Why.TOO_LARGE, None)


# --- what is no capture -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "no such capture"),
        (lambda path: path.mkdir(), "is no capture: it has no index.jsonl"),
        (lambda path: path.write_bytes(b""), "is no capture"),
        (lambda path: path.write_bytes(b"x" * 2000), "is no capture"),
        (lambda path: path.write_bytes(b"\x1f\x8b" + b"x" * 2000), "is no capture"),
        (lambda path: path.write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 2000), "is no capture"),
        (lambda path: path.write_bytes(tar_of([("other/file", b"x")])), "is no capture: it has no index.jsonl"),
    ],
    ids=["nothing", "empty directory", "empty file", "junk", "junk gzip", "junk zstd", "another tar"],
)
def test_what_is_no_capture_says_why(tmp_path: Path, make: Callable[[Path], object], says: str) -> None:
    make(tmp_path / "c")
    with pytest.raises(CaptureError, match=says) as caught:
        open_capture(tmp_path / "c")
    assert str(tmp_path / "c") in caught.value.message
    assert caught.value.exit_status == 64


def test_an_inventory_that_cannot_be_read(tmp_path: Path) -> None:
    path = capture_of(tmp_path / "c", line())
    (path / "cluster.toml").write_text("name = ")
    with pytest.raises(CaptureError, match=r"cluster\.toml"):
        open_capture(path)
    (path / "cluster.toml").unlink()
    with pytest.raises(CaptureError, match=r"it has no cluster\.toml"):
        open_capture(path)


def test_manifests(tmp_path: Path) -> None:
    path = capture_of(tmp_path / "c", line())
    for text, cut in [
        ('{"format": 1, "ended": "2026-11-12T03:15:00Z", "sha256": {}}', False),
        ('{\n "sha256": {"m": "00"},\n "format": 1\n}\n', False),
        ('{"format": 1, "sha256": {"m": "00', True),
        ("", True),
    ]:
        (path / "manifest.json").write_text(text)
        with open_capture(path) as capture:
            assert capture.cut_short is cut
    (path / "manifest.json").write_text('{"format": 2}')
    with pytest.raises(CaptureError, match="format 2"):
        open_capture(path)


# --- bundles ----------------------------------------------------------------------------------------------------------


def tar_of(members: list[tuple[str, bytes] | tarfile.TarInfo]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


GOOD: list[tuple[str, bytes] | tarfile.TarInfo] = [
    ("c/cluster.toml", TOML.encode()),
    ("c/index.jsonl", (line() + "\n").encode()),
    ("c/m", b"x 1\n"),
]


@pytest.mark.parametrize("top", ["", "./", "c/", "a/b/c/"])
@pytest.mark.parametrize("squeeze", ["gz", "zst", "none"])
def test_bundles_of_other_writers(tmp_path: Path, top: str, squeeze: str) -> None:
    import gzip

    members = [(member[0].replace("c/", top, 1), member[1]) for member in GOOD]  # type: ignore[index]
    data = tar_of(members)  # type: ignore[arg-type]
    how = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress, "none": bytes}[squeeze]
    (tmp_path / "a.name.without.meaning").write_bytes(how(data))
    assert [one.body for one in read(tmp_path / "a.name.without.meaning")] == [b"x 1\n"]


def test_hostile_members_are_left_out_and_counted(tmp_path: Path) -> None:
    members = [
        ("../../evil", b"evil"), ("/tmp/pdctl-evil-absolute", b"evil"), ("c/../../evil", b"evil"),
        link("c/link", "/etc/passwd"), link("c/hard", "/etc/passwd", tarfile.LNKTYPE),
        link("c/fifo", "", tarfile.FIFOTYPE), link("c/dev", "", tarfile.CHRTYPE), link("c/dirlink", "/tmp"),
        ("c/dirlink/x", b"evil"), ("c/m/under-a-file", b"x"), ("n" * 5000, b"x"),
    ]  # fmt: skip
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "c.tar").write_bytes(tar_of([*GOOD, *members]))  # type: ignore[list-item]
    with open_capture(tmp_path / "in" / "c.tar") as capture:
        assert [one.body for one in capture.answers()] == [b"x 1\n"]
        assert capture.notes == (
            "3 members with paths that lead out of the bundle: left out",
            "7 members that are no plain files: left out",
        )
        root = capture._root
        assert not (root / "link").is_symlink()
        assert (root / "dirlink").is_dir()
        assert not (root / "dirlink").is_symlink()
    assert not root.exists()
    assert not (tmp_path / "evil").exists()
    assert not Path("/tmp/pdctl-evil-absolute").exists()


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_bundle_cut_short_is_read_as_far_as_it_goes(tmp_path: Path, kind: str) -> None:
    with CaptureWriter(tmp_path / f"c.tar.{kind}", CLUSTER) as writer:
        for each in EVERY_KIND:
            writer.add(each)
        for n in range(200):
            body = os.urandom(1000)
            writer.add(Answer("prefill-0", Fact.METRICS, "GET", 5.0 + n, EVERY_KIND[0].at, 0.1, 200, body=body))
    data = (tmp_path / f"c.tar.{kind}").read_bytes()
    (tmp_path / "short").write_bytes(data[: len(data) // 2])
    with open_capture(tmp_path / "short") as capture:
        answers = list(capture.answers())
        assert capture.cut_short
        assert "cut short or damaged" in capture.notes[0]
    assert len(answers) == 212
    assert 20 < sum(one.body is not None for one in answers) < 200


def test_absurd_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "LARGEST_MEMBER", 10_000)
    monkeypatch.setattr(bundle, "MOST_MEMBERS", 100)
    monkeypatch.setattr(bundle, "MOST_BYTES", 100_000)
    path = tmp_path / "c.tar"
    path.write_bytes(tar_of([*GOOD, ("c/large", bytes(20_000))]))
    with open_capture(path) as capture:
        assert not (capture._root / "large").exists()
        assert "left out" in capture.notes[0]
    path.write_bytes(tar_of([*GOOD, *((f"c/{n}", b"") for n in range(200))]))
    with pytest.raises(CaptureError, match="more than 100 members"):
        open_capture(path)
    path.write_bytes(tar_of([*GOOD, *((f"c/{n}", bytes(9_000)) for n in range(90))]))
    with pytest.raises(CaptureError, match="unpacks to more than"):
        open_capture(path)


def test_no_member_is_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day has millions, and tarfile keeps a kilobyte of each."""
    kept: list[int] = []
    take = bundle._take

    def watched(tar: tarfile.TarFile, member: tarfile.TarInfo, taken: bundle._Taking) -> None:
        kept.append(len(tar.members))  # type: ignore[attr-defined]
        take(tar, member, taken)

    monkeypatch.setattr(bundle, "_take", watched)
    (tmp_path / "c.tar").write_bytes(tar_of([*GOOD, *((f"c/{n}", b"") for n in range(20))]))
    with open_capture(tmp_path / "c.tar"):
        assert len(kept) > 20 and max(kept) <= 1


def test_an_index_may_be_larger_than_other_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "LARGEST_MEMBER", 10)
    (tmp_path / "c.tar").write_bytes(tar_of([("c/index.jsonl", line().encode()), ("c/m", b"x" * 11)]))
    with pytest.raises(CaptureError, match=r"no cluster\.toml"):
        open_capture(tmp_path / "c.tar")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([line(), *[""] * 9], "more than 5 lines that are blank or stand for no answer"),
        ([line(), *["x"] * 9], "more than 5 lines that are blank or stand for no answer"),
        ([line(), *["", "x"] * 4], "more than 5 lines that are blank or stand for no answer"),
        ([line()] * 21, "more than 20 lines"),
        ([line(fact="unheard-of")] * 21, "more than 20 lines"),
        ([line(note="x" * 10_000)], "over 9000 bytes long"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_absurd_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], says: str, packed: bool
) -> None:
    monkeypatch.setattr(capture_index, "MOST_EMPTY", 5)
    monkeypatch.setattr(capture_index, "MOST_LINES", 20)
    monkeypatch.setattr(capture_index, "LARGEST_INDEX", 9_000)
    path = capture_of(tmp_path / "c", *lines)
    if packed:
        pack(path, tmp_path / "c.tar.zst")
        path = tmp_path / "c.tar.zst"
    with pytest.raises(CaptureError, match=says) as told:
        open_capture(path)
    assert told.value.message.startswith(f"{path}/index.jsonl ")
    assert told.value.exit_status == 64


def test_a_blank_line_after_each_is_no_absurd_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_index, "MOST_EMPTY", 5)
    assert len(read(capture_of(tmp_path / "c", *[line(), ""] * 50))) == 50


def test_a_header_that_would_fill_the_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("c/m")
    info.pax_headers = {"comment": "x" * 3_000_000}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    (tmp_path / "c.tar").write_bytes(out.getvalue())
    with pytest.raises(CaptureError, match="holds a header of"):
        open_capture(tmp_path / "c.tar")


def test_unpacked_bundles_go_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "c.tar").write_bytes(tar_of(GOOD))
    capture = open_capture(tmp_path / "c.tar")
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    del capture
    assert list((tmp_path / "tmp").iterdir()) == []
    (tmp_path / "c.tar").write_bytes(tar_of(GOOD[1:]))
    with pytest.raises(CaptureError):
        open_capture(tmp_path / "c.tar")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_packing_says_what_it_cannot_do(tmp_path: Path) -> None:
    path = capture_of(tmp_path / "c", line())
    with pytest.raises(CaptureError, match="a bundle is named"):
        pack(path, tmp_path / "c.zip")
    with pytest.raises(CaptureError, match="cannot be written"):
        pack(path, tmp_path / "nowhere" / "c.tar.gz")
    pack(path, tmp_path / "c.tar.gz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "c.tar.gz"]
