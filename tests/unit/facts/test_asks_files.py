"""What is asked of a host's files, and how it is read."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pdctl.facts import asks_changes, asks_files
from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Host, Instance, Role

SINCE = datetime(2026, 11, 12, 3, 14, tzinfo=UTC)
HOST = Host("here")
DECODE = Instance("d", Role.DECODE, unit="decode.service")


def ran(ask: CommandAsk) -> Answer:
    done = subprocess.run([str(word) for word in ask.argv], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    return Answer(ask.subject, ask.fact, str(ask), 0.0, SINCE, 0.1, done.returncode, body=done.stdout)


def said(body: bytes, fact: Fact = Fact.FILE) -> Answer:
    return Answer("d", fact, "x", 0.0, SINCE, 0.1, 0, body=body)


def test_a_script_is_listed_with_what_may_be_its_backups_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "odd [name]*"
    wanted = ["serve.sh", "serve.sh.bak", "serve.sh~", "serve.sh.TAG_132203.bak", "serve.bak.sh", "backups/serve.sh",
              "serve.sh.new\nline"]  # fmt: skip
    for name in (*wanted, "other.sh", "serves.txt", "plain/serve.sh", "backups/deep/serve.sh"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    entries = asks_files.read_entries(ran(asks_files.backups_listing_ask("d", HOST, f"{folder}/serve.sh")).body or b"")
    assert sorted(e.path for e in entries) == sorted(f"{folder}/{name}" for name in wanted)
    main = next(e for e in entries if e.path == f"{folder}/serve.sh")
    assert main.size == len("serve.sh") and main.kind == "f" and main.mtime.tzinfo is UTC
    assert dict(main.about())["path"] == main.path


def test_names_with_wildcards_in_them_mean_themselves(tmp_path: Path) -> None:
    for name in ("s[1]*.sh", "s[1]*.sh.bak", "s1x.sh.bak"):
        (tmp_path / name).touch()
    entries = asks_files.read_entries(
        ran(asks_files.backups_listing_ask("d", HOST, f"{tmp_path}/s[1]*.sh")).body or b""
    )
    assert sorted(Path(e.path).name for e in entries) == ["s[1]*.sh", "s[1]*.sh.bak"]


def test_what_changed_in_a_watched_folder(tmp_path: Path) -> None:
    import os

    for name, when in (("new.env", SINCE.timestamp() + 60), ("old.env", 1.0), (".git/index", SINCE.timestamp() + 60)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (when, when))
    entries = asks_files.read_entries(ran(asks_files.changed_ask("d", HOST, str(tmp_path), SINCE)).body or b"")
    assert {Path(e.path).name for e in entries} == {tmp_path.name, "new.env"}


@given(st.binary(max_size=300))
def test_a_hostile_listing_is_no_reason_to_fail(body: bytes) -> None:
    for entry in asks_files.read_entries(body):
        assert entry.path
    asks_files.read_digests(body)
    asks_files.read_times(said(body))
    list(asks_changes.system_answers(said(body)))
    list(asks_changes.package_answers(said(body), SINCE))
    list(asks_changes.checkout_answers(said(body, Fact.GIT)))
    asks_changes.with_messages(said(b"Id=x\n", Fact.UNIT), said(body))


def test_digests_of_names_with_spaces(tmp_path: Path) -> None:
    file = tmp_path / "a  b"
    file.write_bytes(b"x")
    digests = asks_files.read_digests(ran(asks_files.digests_ask("d", HOST, [str(file)])).body or b"")
    assert digests == {str(file): "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}


def test_a_hosts_clock_and_zone() -> None:
    told = asks_files.read_times(said(b"1794453247.25 +0530\n\n/usr/share/zoneinfo/Asia/Kolkata\nEtc/UTC\n"))
    assert told == asks_files.HostTime(1794453247.25, 330, "Asia/Kolkata")
    assert asks_files.read_times(said(b"1794453247 -0800\n:America/Los_Angeles\n\n\n")) == asks_files.HostTime(
        1794453247.0, -480, "America/Los_Angeles"
    )
    bare = asks_files.read_times(said(b"1794453247 +0000\n\n/etc/localtime\n\n"))
    assert bare is not None and bare.zone is None
    assert asks_files.read_times(said(b"no time\n")) is None
    own = asks_files.read_times(ran(asks_files.times_ask("host:h", HOST)))
    assert own is not None and abs(own.epoch - datetime.now(UTC).timestamp()) < 60


def test_kernel_and_drivers_are_files_with_times() -> None:
    body = b"kernel 6.8.0-45\nbtime 1794450000\ninstalled 1794440000\n"
    body += b"driver nvidia 580.1 1794430000\ndriver ib_core 5.1 \n"
    rows = [
        (dict(a.more).get("path"), a.body, dict(a.more).get("mtime")) for a in asks_changes.system_answers(said(body))
    ]
    assert rows == [
        ("/proc/version", b"kernel 6.8.0-45\n", "2026-11-12T02:20:00+00:00"),
        ("/lib/modules/6.8.0-45", b"kernel 6.8.0-45\n", "2026-11-11T23:33:20+00:00"),
        ("/sys/module/nvidia/version", b"driver nvidia 580.1\n", "2026-11-11T20:46:40+00:00"),
        ("/sys/module/ib_core/version", b"driver ib_core 5.1\n", None),
    ]


def listing(*rows: tuple[str, float]) -> bytes:
    return b"".join(f"{when}\t4096\t755\troot\troot\td\t{path}\0".encode() for path, when in rows)


def test_packages_that_changed_or_matter_and_how_many_there_are() -> None:
    site, late = "/proc/77/root/venv/lib/python3.11/site-packages", SINCE.timestamp() + 5
    rows = list(asks_changes.package_answers(
        said(listing((f"{site}/idna-3.10.dist-info", 5.0), (f"{site}/numpy-2.3.dist-info", late),
                     (f"{site}/sglang-0.5.9.dist-info", 6.0))), SINCE,
    ))  # fmt: skip
    paths = [str(a.more["path"]).removeprefix("/venv/lib/python3.11/site-packages") for a in rows]
    assert paths == ["/numpy-2.3.dist-info", "/sglang-0.5.9.dist-info", ""]
    assert rows[-1].body == b"3 packages\n"
    assert asks_changes.package_of("/x/sgl_kernel-0.3.9.dist-info") == ("sgl_kernel", "0.3.9")
    assert asks_changes.package_of("/x/sglang") is None


def test_a_checkout_with_what_is_not_committed(tmp_path: Path) -> None:
    top = tmp_path / "repo"
    git = ["git", "-C", str(top), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(top)], check=True)
    for name in ("kept.sh", "edit me.sh", "gone.sh"):
        (top / name).write_text(name)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    (top / "edit me.sh").write_text("other")
    (top / "new\nname").touch()
    subprocess.run([*git, "mv", "gone.sh", "moved.sh"], check=True)
    hook = top / ".git" / "hooks" / "post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    index = (top / ".git" / "index").stat().st_mtime_ns
    (answer,) = asks_changes.checkout_answers(
        ran(asks_changes.checkouts_ask("d", HOST, [str(top / "kept.sh"), str(top), "/"]))
    )
    value = json.loads(answer.body or b"")
    assert value["path"] == str(top) and value["branch"] == "main" and len(value["head"]) == 40
    assert sorted(value["dirty"]) == ["edit me.sh", "moved.sh", "new\nname"]
    assert [m["what"] for m in value["moves"]] == ["commit (initial): first"]
    assert datetime.fromisoformat(value["committed"]).tzinfo is not None
    assert (top / ".git" / "index").stat().st_mtime_ns == index and not (tmp_path / "ran").exists(), "only looked at"
    tracked = ran(asks_changes.tracked_ask("d", HOST, str(top), [f"{top}/kept.sh", f"{top}/nope"])).body
    assert tracked == b"kept.sh\0"


def test_what_systemd_said_goes_with_the_unit() -> None:
    rows = [
        {"__REALTIME_TIMESTAMP": "1794453247250000", "MESSAGE": "Started decode.service."},
        {"__REALTIME_TIMESTAMP": "x", "MESSAGE": "no time"},
        {"__REALTIME_TIMESTAMP": "1", "MESSAGE": [1, 2]},
    ]
    body = b"\n".join(json.dumps(row).encode() for row in rows) + b"\nnot json\n"
    whole = asks_changes.with_messages(said(b"Id=decode.service\nNRestarts=1\n", Fact.UNIT), said(body))
    assert whole.body == (b"Id=decode.service\nNRestarts=1\nSystemdMessage0=@1794453247.250 Started decode.service.\n")


def test_become_is_asked_for_where_the_host_has_it() -> None:
    root = Host("h", "ops@h", "sudo")
    assert asks_files.backups_listing_ask("d", root, "/srv/serve.sh").become
    assert not asks_files.backups_listing_ask("d", HOST, "/srv/serve.sh").become
    assert asks_changes.unit_messages_ask(DECODE, root, SINCE).become
