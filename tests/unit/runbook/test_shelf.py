"""Where playbooks are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.errors import UsageError
from pdctl.runbook.shelf import find, opened, own, shelved, shipped

SHIPPED = {
    "first-five-minutes", "pinned-request", "harness-hang", "regression-since", "decode-starved", "stale-peer",
    "rank-diverged", "co-restart", "after-restart", "gate-a-fix",
}  # fmt: skip
MINE = "about: mine\nsteps:\n  - step: a\n    say: x\n"


def put(name: str, text: str = MINE) -> Path:
    own().mkdir(parents=True, exist_ok=True)
    (own() / name).write_text(text, "utf-8")
    return own() / name


def test_ten_are_shipped() -> None:
    assert {row.name for row in shelved()} == SHIPPED
    assert not any(row.own for row in shelved())


def test_the_users_own_are_found_by_name_and_come_first() -> None:
    put("night.yml")
    mine = put("pinned-request.yaml")
    rows = {row.name: row for row in shelved()}
    assert rows["night"].own and not rows["night"].hides
    assert rows["pinned-request"].hides and find("pinned-request") == mine
    assert opened(mine).about == "mine"


def test_a_user_without_a_home_has_the_shipped_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container's nameless user is."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert {row.name for row in shelved()} == SHIPPED
    assert find("pinned-request").parent == shipped()
    with pytest.raises(UsageError) as caught:
        find("nope")
    assert "~/.config/pdctl/playbooks/NAME.yaml" in caught.value.hint


def test_a_path_is_a_path(tmp_path: Path) -> None:
    assert find("./x") == Path("x") and find("x.yaml") == Path("x.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        opened(tmp_path / "x.yaml")


def test_a_name_there_is_not_gets_those_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        find("pinned-requests")
    assert '"pinned-request"' in caught.value.hint and "gate-a-fix" in caught.value.hint


def test_bytes_that_are_no_text_are_told_with_their_line() -> None:
    path = put("x.yaml")
    path.write_bytes(b"about: x\nsteps: \xff\n")
    with pytest.raises(UsageError, match=r"x\.yaml:2: not UTF-8"):
        opened(path)


def test_a_file_with_a_mark_of_its_encoding_is_read() -> None:
    assert opened(put("x.yaml", "\ufeff" + MINE)).about == "mine"


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_each_shipped_one_is_read_and_ends_somewhere(name: str) -> None:
    playbook = opened(shipped() / f"{name}.yaml")
    assert playbook.name == name and len(playbook.about) > 40
    assert any(step.ends for step in playbook.steps)
