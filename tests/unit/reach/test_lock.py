"""A host's lock, with the scripts as a host runs them: never two owners, stale ones told from live ones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from on_this_machine import HERE, run

from pdctl.model.answer import Why
from pdctl.model.plan import Hold, Lock, Owner
from pdctl.reach import lock


@pytest.fixture
def path(tmp_path: Path) -> str:
    return lock.lock_path(str(tmp_path))


def owner(who: str = "alice@ops", run_id: str = "r1", machine: str = "elsewhere 1") -> Owner:
    return replace(lock.new_owner(who, "prod", run_id), machine=machine)


def take(path: str, own: Owner, stale: Owner | None = None) -> Lock:
    return lock.read_lock(run(lock.take_ask(HERE, path, own, stale)), own)


def look(path: str, own: Owner | None = None) -> Lock:
    return lock.read_lock(run(lock.look_ask(HERE, path)), own)


def test_a_lock_is_free_then_ours_then_free(path: str) -> None:
    mine = owner()
    assert look(path, mine).hold is Hold.FREE
    assert take(path, mine).hold is Hold.OURS
    assert look(path, mine).owner == mine
    assert lock.read_lock(run(lock.release_ask(HERE, path, mine)), mine).hold is Hold.FREE
    assert list(Path(path).parent.iterdir()) == []


def test_another_sees_who_holds_it_and_cannot_take_it(path: str) -> None:
    mine, other = owner(), owner("bob@ops2", "r2")
    take(path, mine)
    seen = take(path, other)
    assert seen.hold is Hold.HELD and seen.owner == mine
    assert seen.age_s is not None and 0 <= seen.age_s < 60
    assert seen.quiet_s is not None and seen.quiet_s < 60
    assert look(path, mine).hold is Hold.OURS


def test_nobody_gives_up_anothers_lock(path: str) -> None:
    mine, other = owner(), owner("bob@ops2", "r2")
    take(path, mine)
    run(lock.release_ask(HERE, path, other))
    assert look(path, mine).hold is Hold.OURS


def test_a_quiet_holder_is_stale_and_a_sign_of_life_keeps_it(path: str) -> None:
    mine, other = owner(), owner("bob@ops2", "r2")
    take(path, mine)
    long_ago = Path(path).stat().st_mtime - lock.STALE_AFTER - 5
    os.utime(path, (long_ago, long_ago))
    seen = look(path, other)
    assert seen.hold is Hold.STALE and seen.why is not None and "no sign of life" in seen.why
    assert lock.read_lock(run(lock.beat_ask(HERE, path, mine)), mine).hold is Hold.OURS
    assert look(path, other).hold is Hold.HELD


def test_a_sign_of_life_of_another_does_not_keep_it(path: str) -> None:
    mine, other = owner(), owner("bob@ops2", "r2")
    take(path, mine)
    os.utime(path, (1000, 1000))
    run(lock.beat_ask(HERE, path, other))
    assert look(path).hold is Hold.STALE


def test_a_stale_lock_is_taken_over_whole(path: str) -> None:
    mine, other = owner(), owner("bob@ops2", "r2")
    take(path, mine)
    assert take(path, other, stale=mine).hold is Hold.OURS
    assert look(path, mine).owner == other
    assert [p.name for p in Path(path).parent.iterdir()] == [lock.NAME]


def test_the_lock_seen_as_stale_is_the_only_one_taken_over(path: str) -> None:
    """Between the look and the taking another took it over: that one's stays."""
    first, second, third = owner(), owner("bob@ops2", "r2"), owner("eve@ops3", "r3")
    take(path, first)
    take(path, second, stale=first)
    assert take(path, third, stale=first).hold is Hold.HELD
    assert look(path, second).hold is Hold.OURS


def test_of_many_who_take_it_at_once_one_has_it(path: str) -> None:
    owners = [owner(f"user{n}@ops", f"r{n}") for n in range(12)]
    seen: dict[str, Lock] = {}
    threads = [threading.Thread(target=lambda o=o: seen.update({o.run: take(path, o)})) for o in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [o for o in owners if seen[o.run].hold is Hold.OURS]
    assert len(winners) == 1
    assert all(seen[o.run].owner == winners[0] for o in owners)


def test_of_many_who_take_over_a_stale_one_at_most_one_has_it(path: str) -> None:
    dead = owner("gone@ops", "r0")
    take(path, dead)
    owners = [owner(f"user{n}@ops", f"r{n}") for n in range(1, 10)]
    threads = [threading.Thread(target=take, args=(path, o, dead)) for o in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holders = [o for o in owners if look(path, o).hold is Hold.OURS]
    assert len(holders) == 1


def test_a_holder_of_this_machine_that_ended_is_stale_at_once(path: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        born = lock._born(child.pid)
        assert born is not None
        mine = replace(owner(), machine=lock.this_machine(), pid=child.pid, born=born)
        take(path, mine)
        assert look(path).hold is Hold.HELD
    assert look(path).hold is Hold.STALE


def test_a_process_that_got_the_number_of_the_holder_is_not_it(path: str) -> None:
    mine = replace(owner(), machine=lock.this_machine(), pid=os.getpid(), born=1.0)
    take(path, mine)
    assert look(path).hold is Hold.STALE


def test_a_lock_from_before_the_hosts_boot_is_stale(path: str) -> None:
    take(path, owner())
    text = Path(path).read_text()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    Path(path).write_text(text.replace(boot, "0" * 36))
    seen = look(path)
    assert seen.hold is Hold.STALE and seen.why is not None and "booted" in seen.why


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"owner {}\n", b'owner {"who": 1}\nsince x y\n', b"none\n"])
def test_a_lock_without_an_owner_is_nobodys_to_take(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    assert look(path).hold is Hold.UNKNOWN
    assert take(path, owner()).hold is not Hold.OURS


def test_an_answer_that_did_not_come_is_not_a_free_lock(path: str) -> None:
    answer = run(lock.look_ask(HERE, path))
    for broken in (replace(answer, error=Why.SSH, body=None), replace(answer, body=None), replace(answer, body=b"")):
        assert lock.read_lock(broken).hold is Hold.UNKNOWN


def test_a_folder_that_takes_no_file_gives_no_lock(tmp_path: Path) -> None:
    seen = take(str(tmp_path / "none" / "pdctl.lock"), owner())
    assert seen.hold is Hold.UNKNOWN and seen.why


def test_hostile_names_in_an_owner_are_read_as_they_are(path: str) -> None:
    mine = owner('x"; rm -rf $(pwd); \n`id`@ops')
    assert take(path, mine).hold is Hold.OURS
    assert look(path).owner == mine
