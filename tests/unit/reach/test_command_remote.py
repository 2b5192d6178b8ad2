"""The line that a login shell is given: what the shells at hand make of it, and what is told apart from their noise."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.reach.remote import Opening, killing, new_mark, wrapped

SHELLS = [name for name in ("sh", "bash", "dash", "zsh", "fish", "ksh", "busybox") if shutil.which(name)]
WORDS = ["two words", "", "'", '"', "$HOME", "`id`", "\\", "\\\\'\\", "a\nb", "*", "~", "!x", "ü ☃", "-n", ";", "a=b"]


def through(shell: str, line: bytes) -> subprocess.CompletedProcess[bytes]:
    words = [shell, "sh"] if shell == "busybox" else [shell]
    return subprocess.run([*words, "-c", line], capture_output=True, timeout=20, check=False)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_hands_on_the_words(shell: str) -> None:
    mark = new_mark()
    done = through(shell, wrapped(["printf", "%s\\0", *WORDS], mark, 9))
    opening = Opening(mark)
    assert opening.feed(done.stdout).split(b"\0")[:-1] == [word.encode() for word in WORDS]
    assert done.returncode == 0


@pytest.mark.parametrize("tool", ["timeout", None])
@pytest.mark.parametrize(("script", "status"), [("exit 42", 42), ("kill -9 $$", 137), ("exec nosuch", 127)])
def test_the_exit_status_comes_through(tool: str | None, script: str, status: int) -> None:
    """With ``timeout`` on the host and without: a signal is 128 and its number either way."""
    mark = new_mark()
    line = wrapped(["sh", "-c", script], mark, 9)
    if tool is None:
        line = line.replace(b"command -v timeout", b"command -v no-such-timeout")
    done = through("sh", line)
    assert done.returncode == status


def test_the_host_s_own_watch_ends_what_nobody_ends() -> None:
    began = time.monotonic()
    done = through("sh", wrapped(["sleep", "60"], new_mark(), 1))
    assert done.returncode in (137, -signal.SIGKILL)
    assert time.monotonic() - began < 15


def test_noise_before_the_mark_is_dropped() -> None:
    opening = Opening("pdctl-m")
    assert opening.feed(b"Welcome!\npdctl-") == b""
    assert not opening.is_over
    assert opening.noise == b"Welcome!\npdctl-"
    assert opening.feed(b"m 47") == b""
    assert opening.feed(b"11\nbody") == b"body"
    assert opening.group == 4711
    assert opening.is_over
    assert opening.noise == b""
    assert opening.feed(b"pdctl-m 1\n") == b"pdctl-m 1\n"


@given(st.binary(max_size=50), st.binary(max_size=50), st.data())
def test_pieces_make_no_difference(noise: bytes, body: bytes, data: st.DataObject) -> None:
    whole = noise + b"pdctl-mark 12\n" + body
    opening, out, rest = Opening("pdctl-mark"), b"", whole
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        out += opening.feed(rest[:size])
        rest = rest[size:]
    assert out == body
    assert opening.group == 12


def test_groups_are_ended_and_the_rest_is_told() -> None:
    victim = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60; :"], start_new_session=True)
    try:
        done = through("sh", killing([victim.pid], sudo=False))
        assert done.stdout == b"left:\n"
        assert victim.wait(5) == -signal.SIGKILL
    finally:
        if victim.poll() is None:
            os.killpg(victim.pid, signal.SIGKILL)
