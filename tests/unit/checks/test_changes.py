"""The time line of what changed: who is suspect, who is not, and why."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from pdctl.checks.changes import timeline_of
from pdctl.model.answer import Fact, Why
from pdctl.model.change_view import Event, Timeline
from tests.unit.checks.host_scene import HostScene
from tests.unit.checks.scene import START, D, P

LAUNCH = "exec python3 -m sglang.launch_server --disaggregation-mode decode --page-size {}\n"
SCRIPT = "/srv/serve.sh"


def at(minutes: float) -> str:
    """A moment so many minutes after the one asked about, as captures write it."""
    return (START + timedelta(minutes=minutes)).isoformat()


def line_of(scene: HostScene, **more: object) -> Timeline:
    return timeline_of(scene.window(), scene.cluster, **more)  # type: ignore[arg-type]


def one(line: Timeline, kind: str) -> Event:
    (event,) = [e for e in line.events if e.kind == kind]
    return event


def runs(scene: HostScene, minutes: float, subject: str = D) -> HostScene:
    """A main process that started then."""
    words = ["python3", "-m", "sglang.launch_server", "--port", "30000"]
    row = {"pid": 7, "ppid": 1, "title": " ".join(words), "cmdline": words, "started": at(minutes)}
    scene.raw(600, subject, Fact.PROCESSES, json.dumps([row]))
    return scene


def script(scene: HostScene, minutes: float, text: str, path: str = SCRIPT, subject: str = D) -> HostScene:
    scene.raw(600, subject, Fact.SCRIPT, text, path=path, mtime=at(minutes))
    return scene


def edited(started: float) -> Timeline:
    """A script edited at 10 minutes; the process started at ``started``."""
    scene = script(HostScene(), 10, LAUNCH.format(64))
    script(scene, -60, LAUNCH.format(32), f"{SCRIPT}.bak")
    return line_of(runs(scene, started))


def test_an_edit_that_a_process_started_with_is_the_first_suspect() -> None:
    line = edited(started=12)
    first = line.suspects[0]
    assert (first.kind, first.subject, first.when) == ("script", D, START + timedelta(minutes=10))
    assert "--page-size 32 -> 64" in first.what and "serve.sh.bak" in first.what
    assert "in effect since" in first.effect
    start = one(line, "process")
    assert start.weight == 0 and start.when == START + timedelta(minutes=12), (
        "a start that brought a change is no suspect"
    )


def test_an_edit_that_nothing_has_started_with_is_no_suspect_and_says_so() -> None:
    line = edited(started=-5)
    assert line.suspects == ()
    event = one(line, "script")
    assert "no effect yet" in event.why and "has run since" in event.why


def test_an_edit_without_a_known_process_is_suspect() -> None:
    scene = script(HostScene(), 10, LAUNCH.format(64))
    script(scene, -60, LAUNCH.format(32), f"{SCRIPT}.bak")
    event = one(line_of(scene), "script")
    assert event.weight > 0 and "not known" in event.effect


def test_the_same_bytes_as_the_backup_are_touched_not_changed() -> None:
    scene = script(HostScene(), 10, LAUNCH.format(64))
    script(scene, -60, LAUNCH.format(64), f"{SCRIPT}.bak")
    event = one(line_of(runs(scene, 12)), "script")
    assert event.touched and event.weight == 0 and event.why == "byte-identical to serve.sh.bak"


def test_a_copy_made_after_the_edit_says_nothing_of_what_it_was() -> None:
    scene = script(HostScene(), 10, LAUNCH.format(64))
    script(scene, 11, LAUNCH.format(64), f"{SCRIPT}.bak")
    line = line_of(runs(scene, 12))
    event = one(line, "script")
    assert not event.touched and event.weight > 0 and "no backup from before" in event.what
    assert one(line, "backup").weight == 0


def test_a_changed_comment_is_no_suspect() -> None:
    scene = script(HostScene(), 10, "# new\n" + LAUNCH.format(64))
    script(scene, -60, LAUNCH.format(64), f"{SCRIPT}.bak")
    event = one(line_of(runs(scene, 12)), "script")
    assert event.weight == 0 and event.why == "only comments or layout differ from serve.sh.bak"


def test_another_image_is_a_change_of_meaning() -> None:
    text = "docker run img:{} python3 -m sglang.launch_server --page-size 1\n"
    scene = script(HostScene(), 10, text.format("v2"))
    script(scene, -60, text.format("v1"), f"{SCRIPT}.bak")
    event = one(line_of(runs(scene, 12)), "script")
    assert event.weight > 0 and "how it starts the engine" in event.what


def test_what_is_older_than_the_moment_is_on_no_line() -> None:
    scene = script(HostScene(), -10, LAUNCH.format(64))
    script(scene, -60, LAUNCH.format(32), f"{SCRIPT}.bak")
    line = line_of(runs(scene, -5))
    assert line.events == ()
    assert [(s.subject, s.what) for s in line.steady] == [(D, "scripts"), (D, "its process")]
    assert SCRIPT in line.steady[0].by


# --- files and packages --------------------------------------------------------------------------------------------


def file(
    scene: HostScene, minutes: float, path: str, subject: str = D, body: str | None = None, **more: object
) -> None:
    scene.raw(600, subject, Fact.FILE, body, path=path, mtime=at(minutes), **more)


def test_packages_installed_together_are_one_event() -> None:
    scene = runs(HostScene(), 30)
    site = "/venv/lib/python3.11/site-packages"
    for name, minutes in (("torch-2.9.1", 10.0), ("sglang-0.5.9", 10.5), ("triton-3.5", 11.0), ("idna-3.10", -9.0)):
        file(scene, minutes, f"{site}/{name}.dist-info")
    file(scene, 20, f"{site}/numpy-2.3.dist-info")
    file(scene, 20, site, body="120 packages\n")
    events = [e for e in line_of(scene).events if e.kind == "package"]
    assert [e.what for e in events] == [
        "3 Python package(s) installed: sglang 0.5.9, torch 2.9.1, triton 3.5",
        "1 Python package(s) installed: numpy 2.3",
    ]
    assert all(e.weight == 3 for e in events)


def test_packages_without_a_start_are_light_suspects() -> None:
    scene = runs(HostScene(), -30)
    file(scene, 10, "/v/site-packages/torch-2.9.1.dist-info")
    event = one(line_of(scene), "package")
    assert event.weight == 1 and "imported late" in event.why


def test_packages_that_stayed() -> None:
    scene = runs(HostScene(), -30)
    file(scene, -90, "/v/site-packages", body="120 packages\n")
    assert ("packages", "120 packages") in [(s.what, s.by.partition(",")[0]) for s in line_of(scene).steady]


def test_a_watched_file_that_equals_a_backup_or_git() -> None:
    scene = runs(HostScene(), 30)
    file(scene, 10, "/srv/nccl.env", same_as="git HEAD")
    file(scene, 11, "/srv/other.env")
    first, second = [e for e in line_of(scene).events if e.kind == "file"]
    assert first.touched and first.why == "byte-identical to git HEAD" and first.weight == 0
    assert second.weight > 0 and second.what == "/srv/other.env: written"


@pytest.mark.parametrize(
    ("path", "body", "kind", "text"),
    [
        ("/proc/version", "kernel 6.8.0-45\n", "boot", "booted (kernel 6.8.0-45)"),
        ("/sys/module/nvidia/version", "driver nvidia 580.1\n", "driver", "driver nvidia 580.1 installed"),
        ("/lib/modules/6.8.0-45", "kernel 6.8.0-45\n", "boot", "kernel installed: 6.8.0-45"),
    ],
)
def test_kernel_and_drivers_need_no_start_to_count(path: str, body: str, kind: str, text: str) -> None:
    scene = runs(HostScene(), -30)
    file(scene, 10, path, "host:gpu-01", body)
    event = one(line_of(scene), kind)
    assert (event.what, event.weight, event.host) == (text, 3, "gpu-01")


def test_an_old_boot_is_steady() -> None:
    scene = runs(HostScene(), -30)
    file(scene, -900, "/proc/version", "host:gpu-01", "kernel 6.8.0-45\n")
    assert [(s.subject, s.what) for s in line_of(scene).steady if s.subject.startswith("host:")] == [
        ("host:gpu-01", "kernel and drivers")
    ]


# --- checkouts -----------------------------------------------------------------------------------------------------


def git(scene: HostScene, **value: object) -> HostScene:
    whole = {"head": "abcdef1234567890", "branch": "main", "dirty": [], "path": "/srv/conf", **value}
    scene.raw(600, D, Fact.GIT, json.dumps(whole))
    return scene


def test_a_head_that_moved_is_dated_by_when_it_arrived() -> None:
    moves = [{"at": at(10), "head": "abcdef1234567890", "what": "pull: Fast-forward"},
             {"at": at(-90), "head": "0000", "what": "clone"}]  # fmt: skip
    scene = git(runs(HostScene(), 12), committed=at(-9000), moves=moves)
    event = one(line_of(scene), "git")
    assert event.when == START + timedelta(minutes=10) and event.weight == 3
    assert "pull: Fast-forward" in event.what and "abcdef123456" in event.what


def test_a_commit_of_unknown_arrival_is_said_so() -> None:
    event = one(line_of(git(runs(HostScene(), 12), committed=at(5))), "git")
    assert "when it arrived is not known" in event.what


def test_a_checkout_that_stayed_with_what_is_not_committed() -> None:
    line = line_of(git(runs(HostScene(), -12), committed=at(-99), dirty=["a.py", "b.py"]))
    steady = next(s for s in line.steady if s.what.startswith("checkout"))
    assert steady.by == "head abcdef123456, 2 file(s) not committed"


def test_files_that_git_does_not_have_are_said_so() -> None:
    scene = git(runs(HostScene(), 30), committed=at(-99), dirty=["a.env", "new/"])
    for name in ("a.env", "new/b.env", "c.env"):
        file(scene, 10, f"/srv/conf/{name}")
    told = {e.what for e in line_of(scene).events if e.kind == "file"}
    assert told == {
        "/srv/conf/a.env: written (not committed)",
        "/srv/conf/new/b.env: written (not committed)",
        "/srv/conf/c.env: written",
    }


# --- units ---------------------------------------------------------------------------------------------------------


def unit(scene: HostScene, *messages: tuple[float, str], restarts: int = 0, since: float = 0) -> HostScene:
    stamp = (START + timedelta(minutes=since)).strftime("%a %Y-%m-%d %H:%M:%S UTC")
    rows = [f"Id=decode.service\nActiveState=active\nNRestarts={restarts}\nActiveEnterTimestamp={stamp}"]
    for index, (minutes, text) in enumerate(messages):
        epoch = (START + timedelta(minutes=minutes)).timestamp()
        rows.append(f"SystemdMessage{index}=@{epoch:.3f} {text}")
    scene.raw(600, D, Fact.UNIT, "\n".join(rows) + "\n")
    return scene


def test_a_unit_that_systemd_restarted_is_suspect_with_its_end() -> None:
    scene = unit(
        runs(HostScene(), 10),
        (9.5, "decode.service: Main process exited, code=killed, status=9/KILL"),
        (9.9, "decode.service: Scheduled restart job, restart counter is at 1."),
        (10.0, "Started decode.service."),
        restarts=1, since=10,
    )  # fmt: skip
    line = line_of(scene)
    assert [(e.weight, e.why) for e in line.events] == [
        (2, "nobody asked for this"),
        (2, "nobody asked for this"),
        (2, "systemd restarted it by itself"),
    ]


def test_a_restart_by_hand_without_a_change_is_a_light_suspect() -> None:
    scene = unit(runs(HostScene(), 10), (9.5, "Stopping decode.service..."), (10, "Started decode.service."), since=10)
    line = line_of(scene)
    assert [(e.what, e.weight) for e in line.events] == [
        ("Stopping decode.service...", 0),
        ("Started decode.service.", 1),
    ]
    assert "nothing it could have brought is known" in line.events[1].why


def test_restarts_without_a_journal_are_known_by_their_count() -> None:
    event = one(line_of(unit(runs(HostScene(), 10), restarts=3, since=10)), "process")
    assert event.weight == 2 and "NRestarts 3" in event.why


def test_a_unit_that_has_run_on_is_ruled_out() -> None:
    line = line_of(unit(runs(HostScene(), -300), since=-300))
    assert line.events == () and any(s.what == "its process" for s in line.steady)


# --- order, clocks, what was not seen ------------------------------------------------------------------------------


def test_one_line_over_hosts_in_order_with_clocks_set_right() -> None:
    scene = script(HostScene(), 10, LAUNCH.format(64), subject=P)
    script(scene, -60, LAUNCH.format(32), f"{SCRIPT}.bak", subject=P)
    file(scene, 10.5, "/sys/module/nvidia/version", "host:gpu-01", "driver nvidia 580.1\n")
    assert [e.subject for e in line_of(scene).events] == [P, "host:gpu-01"]
    right = line_of(scene, ahead={"gpu-01": 60.0})
    assert [e.subject for e in right.events] == ["host:gpu-01", P]


def test_what_could_not_be_looked_at_is_told_once() -> None:
    scene = runs(HostScene(), -30)
    for _ in range(2):
        scene.raw(600, P, Fact.SCRIPT, None, error=Why.PERMISSION, detail="denied", path="/srv/p.sh")
    scene.raw(600, P, Fact.PROCESSES, None, error=Why.SSH, detail="no route")
    assert line_of(scene).unseen == ((P, "/srv/p.sh", "denied"), (P, "processes", "no route"))


def test_suspects_the_heaviest_first_then_the_newest() -> None:
    scene = script(HostScene(), 5, LAUNCH.format(64))
    script(scene, -60, LAUNCH.format(32), f"{SCRIPT}.bak")
    file(scene, 8, "/proc/version", "host:gpu-01", "kernel 6.8\n")
    unit(runs(scene, 20), (9, "decode.service: Scheduled restart job, restart counter is at 1."), restarts=1, since=20)
    assert [e.kind for e in line_of(scene).suspects] == ["boot", "script", "unit"]
