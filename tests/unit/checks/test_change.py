"""unit-flapping, fd-limit-near, changed-since and peer-stale."""

from __future__ import annotations

import json
from datetime import timedelta

from pdctl.checks import changed, fd_limit, peer_stale, unit_flapping
from pdctl.model.answer import Fact
from pdctl.model.events import Event, Kind, Log
from pdctl.model.finding import Confidence, Severity
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import START, D, P, times

UNIT = """Id=decode.service
ActiveState={active}
SubState={sub}
NRestarts={n}
MainPID={pid}
Result=success
ActiveEnterTimestamp={since}
"""
LATELY, LONG_AGO = "Thu 2026-11-12 02:50:00 UTC", "Wed 2026-10-21 02:50:00 UTC"


def unit(scene: HostScene, t: float, n: object, since: str = LATELY, **more: object) -> HostScene:
    filled = {"active": "active", "sub": "running", "pid": 7, **more}
    scene.raw(t, D, Fact.UNIT, UNIT.format(n=n, since=since, **filled))
    return scene


def test_restarts_that_rose_in_the_window() -> None:
    scene = unit(unit(HostScene(), 0, 3, pid=7), 30, 4, pid=99)
    finding = scene.one(unit_flapping.judge)
    assert (finding.subject, finding.confidence) == (D, Confidence.CERTAIN)
    assert "from 3 to 4" in seen_in(finding)
    assert "from 7 to 99" in seen_in(finding)


def test_a_lately_restarted_unit_and_one_that_has_run_for_weeks() -> None:
    assert unit(HostScene(), 0, 2, LATELY).one(unit_flapping.judge).confidence == Confidence.LIKELY
    old = unit(HostScene(), 0, 2, LONG_AGO)
    assert old.found(unit_flapping.judge) == []
    assert len(old.ruled_out(unit_flapping.judge)) == 1


def test_a_start_by_hand_is_no_flapping() -> None:
    assert unit(HostScene(), 0, 0).found(unit_flapping.judge) == []


def test_a_unit_that_waits_to_be_started_again() -> None:
    assert len(unit(HostScene(), 0, 0, sub="auto-restart", active="activating").found(unit_flapping.judge)) == 1


def test_a_start_in_an_unknown_zone_is_taken_from_the_process_or_is_only_possible() -> None:
    scene = unit(HostScene(), 0, 2, "Thu 2026-11-12 11:00:00 CST")
    assert scene.one(unit_flapping.judge).confidence == Confidence.POSSIBLE
    scene.raw(0, D, Fact.PROCESSES, '[{"pid": 7, "title": "x", "started": "2026-11-12T03:00:00Z"}]')
    assert scene.one(unit_flapping.judge).confidence == Confidence.LIKELY
    old = unit(HostScene(), 0, 2, "Thu 2026-11-12 11:00:00 CST")
    old.raw(0, D, Fact.PROCESSES, '[{"pid": 7, "title": "x", "started": "2026-10-01T03:00:00Z"}]')
    assert old.found(unit_flapping.judge) == []


def limits(scene: HostScene, t: float, count: int, soft: object = 1024, pid: int = 7) -> HostScene:
    body = f"Max open files            {soft}                 524288               files\nfd_count {count}\n"
    scene.raw(t, D, Fact.LIMITS, body, pid=pid)
    return scene


def test_near_the_limit() -> None:
    finding = limits(HostScene(), 0, 900).one(fd_limit.judge)
    assert (finding.severity, finding.confidence) == (Severity.WARNING, Confidence.LIKELY)
    assert "900 of 1024" in finding.summary
    growing = limits(limits(HostScene(), 0, 880), 60, 940).one(fd_limit.judge)
    assert growing.confidence == Confidence.CERTAIN
    assert "grew by 60 in 60 s" in seen_in(growing)
    assert "reached in 84 s" in seen_in(growing)


def test_far_from_it_or_without_one() -> None:
    assert limits(HostScene(), 0, 869).found(fd_limit.judge) == []
    assert limits(HostScene(), 0, 90_000, "unlimited").found(fd_limit.judge) == []
    assert limits(limits(HostScene(), 0, 1000), 60, 100).found(fd_limit.judge) == []


def test_processes_far_from_their_limit_are_told_in_one_line_an_instance() -> None:
    scene = HostScene()
    for pid, (count, limit) in {7: (90, 1024), 8: (640, 1024), 9: (5000, "unlimited"), 10: (900, 65536)}.items():
        limits(scene, 0, count, limit, pid=pid)
    (verdict,) = scene.ruled_out(fd_limit.judge)
    assert (verdict.what, verdict.subject) == ("fd-limit-near", D)
    assert verdict.by == "640 of 1024 open files at most, in 4 processes"
    limits(scene, 0, 1000, pid=11)
    assert scene.one(fd_limit.judge).summary.startswith(f"{D} (pid 11) has 1000 of 1024")
    assert len(scene.ruled_out(fd_limit.judge)) == 1


def test_what_the_open_files_are() -> None:
    scene = limits(HostScene(), 0, 900)
    rows = [f'CLOSE-WAIT 1 0 192.0.2.21:{i} 192.0.2.31:1 users:(("python",pid=7,fd=3))' for i in range(1, 9)]
    scene.ss(0, D, *rows)
    assert "8 of them are TCP sockets: 8 CLOSE-WAIT" in seen_in(scene.one(fd_limit.judge))


def test_changes_of_the_window_newest_first() -> None:
    scene = HostScene()
    scene.raw(0, D, Fact.SCRIPT, "export A=2\n", path="/srv/serve.sh", mtime="2026-11-12T03:20:00Z")
    scene.raw(0, D, Fact.SCRIPT, "export A=1\n", path="/srv/serve.sh.bak", mtime="2026-11-12T01:00:00Z")
    scene.raw(0, D, Fact.FILE, None, path="/etc/nccl.env", mtime="2026-11-12T03:30:00Z")
    scene.raw(0, D, Fact.GIT, json.dumps({"head": "abcdef", "branch": "main", "committed": "2026-11-12T03:16:00Z"}))
    finding = scene.one(changed.judge)
    assert finding.severity == Severity.INFO
    order = [finding.summary.index(word) for word in ("/etc/nccl.env", "/srv/serve.sh", "commit abcdef")]
    assert order == sorted(order)
    assert "A 1 -> 2" in finding.summary
    assert "3 change(s)" in finding.summary


def test_what_is_older_than_the_window_or_only_touched_did_not_change() -> None:
    scene = HostScene()
    scene.raw(0, D, Fact.SCRIPT, "export A=1\n", path="/srv/serve.sh", mtime="2026-11-12T03:20:00Z")
    scene.raw(0, D, Fact.SCRIPT, "export A=1\n", path="/srv/serve.sh.bak", mtime="2026-11-12T01:00:00Z")
    scene.raw(0, D, Fact.FILE, None, path="/etc/nccl.env", mtime="2026-11-12T03:10:00Z")
    assert scene.found(changed.judge) == []
    assert len(scene.ruled_out(changed.judge)) == 1
    assert HostScene("0.5.19").verdicts(changed.judge) == []


def test_bytes_that_changed_under_an_old_time() -> None:
    scene = HostScene()
    for t, body in ((0, "a"), (30, "b")):
        scene.raw(t, D, Fact.FILE, body, path="/etc/x", mtime="2026-11-12T01:00:00Z")
    assert "without a new time" in scene.one(changed.judge).summary


# --- peer-stale -------------------------------------------------------------------------------------------------------

OLD_START, NEW_START = "2026-11-10T22:01:07Z", "2026-11-12T03:08:30Z"
DEAD = "Decode instance could be dead, remote mooncake session 192.0.2.21:16917 is not alive"


def event(seconds: float, kind: Kind, reason: str = "", peer: str = "192.0.2.21:16917") -> Event:
    return Event(kind, "x", START + timedelta(seconds=seconds), words={"reason": reason, "peer": peer})


def pair_of(prefill: str = OLD_START, decode: str = NEW_START, tokens: float = 0.0, failed: float = 1.0) -> HostScene:
    scene = HostScene("0.5.19")
    for name, started in ((P, prefill), (D, decode)):
        line = "python -m sglang.launch_server"
        scene.raw(0, name, Fact.PROCESSES, json.dumps([{"pid": 7, "title": line, "started": started}]))
    for i, t in enumerate(times(30, 10)):
        scene.page(t, P, transfer_failed=90 + failed * i)
        scene.page(t, D, generation_tokens=tokens * i)
    return scene


def stale(scene: HostScene, *events: Event, subject: str = P) -> HostScene:
    scene.add(0, subject, Fact.LOG, Log(events, offset=timedelta(0)))
    return scene


GOES_ON = (event(-5, Kind.SESSION_FAILED), event(2, Kind.TRANSFER_FAILED, DEAD), event(9, Kind.TRANSFER_FAILED, DEAD))


def test_a_prefill_that_goes_on_about_a_decode_that_is_gone() -> None:
    finding = stale(pair_of(), *GOES_ON).one(peer_stale.judge)
    assert (finding.subject, finding.confidence) == (f"{P}->{D}", Confidence.CERTAIN)
    assert "decode-0 restarted at 2026-11-12 03:08:30" in finding.summary
    assert "192.0.2.21:16917" in seen_in(finding)
    assert "has not generated a token" in seen_in(finding)


def test_a_later_start_alone_is_nothing() -> None:
    assert pair_of().found(peer_stale.judge) == []
    other = stale(pair_of(), event(2, Kind.TRANSFER_FAILED, "Aborted by AbortReq."), event(3, Kind.MEMORY_LEAK))
    assert other.found(peer_stale.judge) == []


def test_a_restart_that_healed_is_ruled_out() -> None:
    healed = stale(pair_of(tokens=60, failed=0), *GOES_ON)
    assert healed.found(peer_stale.judge) == []
    assert "generates" in healed.ruled_out(peer_stale.judge)[0].by


def test_records_from_before_the_restart_do_not_count() -> None:
    assert (
        stale(pair_of(), event(-400, Kind.SESSION_FAILED), event(-380, Kind.TRANSFER_FAILED, DEAD)).found(
            peer_stale.judge
        )
        == []
    )


def test_an_ordered_start_of_both_is_one_start() -> None:
    assert stale(pair_of(decode="2026-11-10T22:01:20Z"), *GOES_ON).found(peer_stale.judge) == []


def test_old_records_of_a_quiet_cluster_do_not_count() -> None:
    scene = pair_of(decode="2026-11-11T03:08:30Z", failed=0)
    old = [event(-20000, Kind.SESSION_FAILED), event(-19000, Kind.TRANSFER_FAILED, DEAD)]
    assert stale(scene, *old).found(peer_stale.judge) == []


def test_a_decode_that_holds_an_old_prefill() -> None:
    scene = pair_of(prefill=NEW_START, decode=OLD_START)
    records = [event(s, Kind.LOST_PREFILL, peer="192.0.2.11:8998") for s in (1, 2)]
    records += [event(s, Kind.HANDSHAKE_FAILED, "x", peer="") for s in (3, 4)]
    finding = stale(scene, *records, subject=D).one(peer_stale.judge)
    assert "prefill-0 restarted" in finding.summary
    assert "decode-0 still holds" in finding.summary


def test_records_about_another_decode_are_not_this_pairs() -> None:
    about = [event(s, Kind.TRANSFER_FAILED, DEAD, "198.51.100.9:1") for s in (1, 2)]
    assert stale(pair_of(), *about).found(peer_stale.judge) == []
