"""What commands share: durations, the one thing to look at, where inventories are found, and the way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from pdctl.commands.common import (
    Output,
    Target,
    emit,
    find_inventory,
    inventory_names,
    parse_duration,
    read_inventory,
    target,
)
from pdctl.errors import InventoryError, UsageError
from pdctl.exits import FailOn
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Confidence, Finding, Report, Severity

TOML = '[[instance]]\nname = "{0}-0"\nrole = "prefill"\nurl = "http://h:1"\n'
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text, seconds",
    [("2", 2.0), ("2s", 2.0), ("500ms", 0.5), ("1.5m", 90.0), ("2 m", 120.0), ("1h", 3600.0), (".5", 0.5), (3.0, 3.0)],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "soon", "", "1d", "nan", "inf", "1e400", "2s2s", "٣"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="500ms"):
        parse_duration(text)


def test_the_working_directory_comes_first_then_the_variable_then_home(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, named, home = elsewhere / "pdctl.toml", elsewhere / "named.toml", Path.home() / ".config/pdctl/pdctl.toml"
    home.parent.mkdir(parents=True)
    home.write_text(TOML.format("home"))
    assert read_inventory(None).instances[0].name == "home-0"
    named.write_text(TOML.format("named"))
    monkeypatch.setenv("PDCTL_CONFIG", str(named))
    assert read_inventory(None).instances[0].name == "named-0"
    here.write_text("\ufeff" + TOML.format("here"), "utf-8")
    cluster = read_inventory(None)
    assert (cluster.instances[0].name, cluster.source) == ("here-0", "pdctl.toml")
    assert read_inventory(named).instances[0].name == "named-0"


def test_the_configuration_folder_may_be_elsewhere(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(elsewhere / "cfg"))
    with pytest.raises(UsageError) as caught:
        find_inventory(None)
    assert f"{elsewhere}/cfg/pdctl/pdctl.toml" in caught.value.hint


def test_a_user_without_a_home_is_told_where_an_inventory_is_looked_for(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container's nameless user is."""
    monkeypatch.delenv("HOME", raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(UsageError) as caught:
        find_inventory(None)
    assert "~/.config/pdctl/pdctl.toml" in caught.value.hint


def test_an_inventory_that_is_no_text_is_told(elsewhere: Path) -> None:
    (elsewhere / "pdctl.toml").write_bytes(b"name = \xff")
    with pytest.raises(InventoryError, match=r"pdctl\.toml: not UTF-8"):
        find_inventory(None)


def test_names_for_the_shell_never_fail(elsewhere: Path) -> None:
    assert inventory_names("") == []
    (elsewhere / "pdctl.toml").write_text(TOML.format("prefill") + TOML.format("decode"))
    assert inventory_names("de") == ["decode-0"]
    (elsewhere / "pdctl.toml").write_text("instance = 3")
    assert inventory_names("") == []
    (elsewhere / "pdctl.toml").write_text("not toml")
    assert inventory_names("") == []


def test_urls_make_a_cluster_with_no_file(elsewhere: Path) -> None:
    with target(prefill=["http://h:1"], router=["http://r:1,http://r:2"]) as what:
        assert isinstance(what, Target)
        assert [i.name for i in what.cluster.instances] == ["prefill-0", "router-0"]
        assert what.capture is None and what.demo is None


def cluster_of(status: str) -> Report:
    severity = {
        "ok": Severity.INFO,
        "warning": Severity.WARNING,
        "critical": Severity.CRITICAL,
        "unknown": Severity.UNKNOWN,
    }
    finding = Finding("draining", severity[status], Confidence.CERTAIN, "prefill-0", "queues fall")
    return Report("prod-a", AT, AT, 1, (finding,))


@pytest.mark.parametrize("output", Output)
@pytest.mark.parametrize("status, code", [("ok", 0), ("warning", 1), ("critical", 2), ("unknown", 3)])
def test_the_exit_status_does_not_depend_on_the_form(
    output: Output, status: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as end:
        emit(cluster_of(status), output)
    assert end.value.exit_code == code
    assert "prod-a" in capsys.readouterr().out


def test_a_report_is_one_document_or_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def said(output: Output) -> str:
        with pytest.raises(typer.Exit):
            emit(cluster_of("critical"), output, fail_on=FailOn.CRITICAL)
        return capsys.readouterr().out

    assert json.loads(said(Output.JSON))["status"] == "critical"
    assert [json.loads(line)["kind"] for line in said(Output.JSONL).splitlines()] == ["finding", "summary"]
    assert said(Output.SHORT).count("\n") == 1


class Gone:
    """A stdout whose reader went away."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return False

    fileno: Callable[[], int]

    def __getattr__(self, name: str) -> object:
        raise ValueError(name)


def test_what_was_judged_stands_though_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Gone())
    with pytest.raises(typer.Exit) as end:
        emit(cluster_of("critical"), Output.HUMAN)
    assert end.value.exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        {"capture": Path("x"), "demo": "pinned"},
        {"config": Path("x"), "prefill": ["http://h:1"]},
        {"release": "0.5.19", "prefill": ["http://h:1"]},
    ],
    ids=str,
)
def test_two_things_to_look_at_are_refused(words: dict[str, object]) -> None:
    with pytest.raises(UsageError), target(**words):  # type: ignore[arg-type]
        pytest.fail("nothing was refused")


def test_a_cluster_carries_where_it_came_from(elsewhere: Path) -> None:
    with target(decode=["http://h:1"]) as what:
        assert isinstance(what.cluster, Cluster) and what.cluster.source == "command line"
