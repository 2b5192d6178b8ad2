"""Steps of writing a file: their order, their names, how what comes back is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Host
from pdctl.plans.script_write import (
    Current,
    Writing,
    backup_name,
    digest_of,
    read_current,
    steps_of,
    syntax_ask,
    tidy_ask,
    why_failed,
    wrong_after,
)

NOW = datetime(2026, 11, 12, 3, 14, 7, tzinfo=UTC)
HOST = Host("gpu-01", "ops@gpu-01", "sudo")
CURRENT = Current("/l/serve.sh", "/srv/serve.sh", b"old\n", "750", "0", "0", "root:root", NOW)
WRITING = Writing("decode-0", HOST, CURRENT, b"new\n", "/srv/serve.sh.bak", "r1")


def answer(body: bytes = b"", status: int | None = 0, error: Why | None = None, detail: str | None = None) -> Answer:
    return Answer("d", Fact.FILE, "x", 0.0, NOW, 0.1, status, error, detail, body)


def test_a_backup_comes_before_the_writing_and_the_reading_after_it() -> None:
    steps = list(steps_of(WRITING))
    assert [s.act for s in steps] == ["backup", "write", "verify"]
    for step in steps:
        assert step.ask.host == "gpu-01" and step.ask.become and step.ask.subject == "decode-0"
    backup, write, verify = (s.ask for s in steps)
    old, new = digest_of(b"old\n"), digest_of(b"new\n")
    assert backup.argv[4:] == ("/srv/serve.sh", old, "/srv/serve.sh.bak", "r1", "")
    assert write.argv[4:] == ("/srv/serve.sh", old, new, "r1", "") and write.stdin == b"new\n"
    assert verify.argv[4:] == ("/srv/serve.sh",)
    assert "new" not in str(write).replace("new bytes", ""), "the text is never shown"


def test_nothing_to_write_is_a_backup_alone_and_nothing_to_keep_is_nothing() -> None:
    assert [s.act for s in steps_of(Writing("d", HOST, CURRENT, None, "/x.bak", "r"))] == ["backup"]
    assert list(steps_of(Writing("d", HOST, CURRENT, None, None, "r"))) == []


def test_what_an_interrupted_step_may_leave_is_known_by_name() -> None:
    assert tidy_ask(WRITING).argv == ("rm", "-f", "--", "/srv/.serve.sh.pdctl-r1", "/srv/.serve.sh.bak.pdctl-r1")


def test_a_name_that_is_taken_is_not_used() -> None:
    first = backup_name("/srv/serve.sh", NOW.astimezone(timezone(timedelta(hours=9))))
    assert first == "/srv/serve.sh.2026-11-12T03:14:07Z.bak", "always in UTC, and says so"
    second = backup_name("/srv/serve.sh", NOW, frozenset({first}))
    third = backup_name("/srv/serve.sh", NOW, frozenset({first, second}))
    assert second == "/srv/serve.sh.2026-11-12T03:14:07Z.1.bak" and third == "/srv/serve.sh.2026-11-12T03:14:07Z.2.bak"


def test_a_file_with_all_that_is_kept_of_it() -> None:
    got = read_current(answer(b"/srv/serve.sh\x00750 0 4 root:adm 6 1794453247 2\x00a\x00b\xff\n\n"), "/l/serve.sh")
    assert got == Current(
        "/l/serve.sh", "/srv/serve.sh", b"a\x00b\xff\n\n", "750", "0", "4", "root:adm",
        datetime(2026, 11, 12, 3, 14, 7, tzinfo=UTC), 2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"", "holds no file"), (b"a\0b\0c", "holds no file"), (b"/s\x00750 0 0 r:r 9 1 1\x00abc", "changed")],
)
def test_what_is_no_file(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_current(answer(body), "/s")


def test_why_a_step_failed() -> None:
    assert (
        why_failed(answer(status=73, error=Why.OTHER, detail="exit status 73"))
        == "the file has changed since it was read"
    )
    assert why_failed(answer(status=1, error=Why.OTHER, detail="No space left")) == "No space left"
    assert why_failed(answer(status=None, error=Why.SSH)) == "ssh"


def test_what_was_read_back_must_be_what_was_written() -> None:
    after = Current("/l/serve.sh", "/srv/serve.sh", b"new\n", "750", "0", "0", "root:root", NOW)
    assert wrong_after(CURRENT, after, b"new\n") is None
    assert "other bytes" in (wrong_after(CURRENT, after, b"else\n") or "")
    other = Current("/l/serve.sh", "/srv/serve.sh", b"new\n", "644", "0", "0", "root:root", NOW)
    assert wrong_after(CURRENT, other, b"new\n") == "mode and owner were 750 0 0 and are 644 0 0"


def test_syntax_is_asked_with_the_text_on_standard_input() -> None:
    ask = syntax_ask("d", HOST, b"x\n")
    assert ask.argv == ("bash", "-n") and ask.stdin == b"x\n" and not ask.become
