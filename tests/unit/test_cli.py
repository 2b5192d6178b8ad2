"""The front door as a user meets it: what is listed, what is imported, and how every run ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pdctl import __version__, exits
from pdctl.cli import COMMANDS, main
from pdctl.model.finding import Status

PDCTL = (sys.executable, "-m", "pdctl")
HEAVY = ("rich", "httpx", "httpcore", "paramiko", "prometheus_client", "psutil", "msgspec", "tree_sitter", "asyncio")
# A module with commands that go wrong, put on the path of the tests that need one.
BAD_COMMANDS = '''
import os, sys
from pdctl.errors import StepFailed
def crash(): """Crashes."""; raise KeyError("sk-abcdefgh12345678 \\x1b[31m")
def step(): """Stops."""; raise StepFailed("decode-1 did not come back", "It was not touched again.")
def much(): """Writes on and on."""; [print("x" * 4000, flush=True) for _ in range(10000)]
def pipe(): """Loses a peer."""; raise BrokenPipeError(32, "Broken pipe")
def stop(): """Is interrupted."""; raise KeyboardInterrupt
'''
DRIVER = "import sys, pdctl.cli as c; c.COMMANDS.update({n: ('bad:' + n, n) for n in %r}); sys.exit(c.main())"
BAD = ("crash", "step", "much", "pipe", "stop")


def run(
    *words: str, cwd: Path | None = None, command: Sequence[str] = PDCTL, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=60, cwd=cwd, env={**os.environ, **env}, check=False
    )


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command line of a pdctl that has commands which go wrong."""
    (tmp_path / "bad.py").write_text(BAD_COMMANDS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return (sys.executable, "-c", DRIVER % (BAD,))


def imported_by(*words: str) -> set[str]:
    """The modules in memory after a command line was run."""
    code = f"import sys, pdctl.cli; pdctl.cli.main({list(words)!r}); print('|', *sys.modules)"
    out = run(command=(sys.executable, "-c", code)).stdout
    return set(out.rpartition("|")[2].split())


# --- what is listed and imported ---------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_version(word: str) -> None:
    done = run(word)
    assert (done.returncode, done.stdout) == (0, f"pdctl {__version__}\n")


def test_the_version_is_told_without_typer() -> None:
    assert "typer" not in imported_by("--version")


def test_help_lists_every_command_and_imports_none() -> None:
    listed = [line.split()[0] for line in run("--help").stdout.partition("Commands:")[2].splitlines() if line.strip()]
    assert listed[: len(COMMANDS)] == list(COMMANDS)
    loaded = imported_by("--help")
    assert not [name for name in loaded if name.startswith("pdctl.commands.")]
    assert not loaded.intersection(HEAVY)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_imports_that_command_alone(name: str) -> None:
    loaded = imported_by(name, "--help")
    modules = {other: where.partition(":")[0] for other, (where, _) in COMMANDS.items()}
    assert loaded.intersection(modules.values()) == {modules[name]}
    assert not loaded.intersection(HEAVY)


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS)], ids=" ".join)
def test_help_is_whole_words_within_80_columns(words: tuple[str, ...]) -> None:
    done = run(*words, "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "..." not in done.stdout.partition("Commands:")[2]
    assert "\x1b" not in done.stdout


def test_help_of_everything_has_words_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        usage, _, text = capsys.readouterr().out.partition("\n\n")
        assert usage.startswith(f"Usage: pdctl {name}")
        assert len(text.partition("Options:")[0].split()) >= 5, f"{name} does not say what it does"


# --- how a run ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status, code", [("ok", 0), ("warning", 1), ("critical", 2), ("unknown", 3)])
def test_the_exit_status_of_what_was_judged(status: str, code: int) -> None:
    assert exits.exit_of(Status(status)) == code


@pytest.mark.parametrize("status, code", [("ok", 0), ("warning", 0), ("critical", 2), ("unknown", 3)])
def test_who_fails_on_critical_alone_still_hears_of_blindness(status: str, code: int) -> None:
    assert exits.exit_of(Status(status), exits.FailOn.CRITICAL) == code


@pytest.mark.parametrize(
    "words, says",
    [
        (["trage"], "Did you mean 'triage'?"),
        (["findings", "--grup", "x"], "--grup"),
        (["explain"], "NAME"),
        (["findings", "-o", "xml"], "xml"),
        (["findings", "--group", "nope"], "Request flow"),
        (["explain", "request-pined"], "request-pinned"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_64_and_says_what_would_be_right(words: list[str], says: str) -> None:
    done = run(*words)
    assert done.returncode == 64
    assert says in done.stderr and done.stderr.startswith("pdctl: ")
    assert done.stdout == "" and "Traceback" not in done.stderr


def test_no_command_at_all_shows_the_help_and_is_wrong_usage() -> None:
    done = run()
    assert done.returncode == 64 and done.stdout == ""
    assert done.stderr.startswith("Usage: pdctl ")


@pytest.mark.parametrize("flag", [["-o", "json"], ["-ojson"], ["--output", "json"], ["--output=json"], ["-o", "jsonl"]])
def test_a_usage_error_is_one_json_document_for_programs(flag: list[str]) -> None:
    done = run("triage", "--no-such-option", *flag)
    document = json.loads(done.stdout)
    assert done.returncode == 64
    assert document["schema"] == "pdctl.report/1" and document["status"] == "unknown"
    assert document["pdctl"] == __version__
    assert (document["findings"], document["unchecked"], document["instances"]) == ([], [], [])
    assert document["error"]["kind"] == "usage" and "--no-such-option" in document["error"]["message"]
    assert "--no-such-option" in done.stderr


def test_a_crash_is_70_in_one_line_with_its_place_and_how_to_report_it(bad: tuple[str, ...]) -> None:
    done = run("crash", command=bad)
    assert done.returncode == 70 and done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first.startswith("pdctl: internal error: KeyError: ")
    assert "--debug" in second and __version__ in second
    assert "sk-abcdefgh12345678" not in done.stderr and "\x1b" not in done.stderr


def test_a_crash_is_one_json_document_for_programs(bad: tuple[str, ...]) -> None:
    done = run("crash", "-o", "json", command=bad)  # the command has no -o: the document must come all the same
    assert json.loads(done.stdout)["error"]["kind"] in ("usage", "internal")
    assert "sk-abcdefgh12345678" not in done.stdout


@pytest.mark.parametrize(
    "words, env", [(["--debug", "crash"], {}), (["crash", "--debug"], {}), (["crash"], {"PDCTL_DEBUG": "1"})]
)
def test_debug_shows_the_traceback(bad: tuple[str, ...], words: list[str], env: dict[str, str]) -> None:
    done = run(*words, command=bad, **env)
    assert done.returncode == 70 and "Traceback" in done.stderr and "bad.py" in done.stderr


def test_a_failed_step_is_75_and_an_interrupt_130(bad: tuple[str, ...]) -> None:
    failed = run("step", command=bad)
    assert failed.returncode == 75
    assert failed.stderr == "pdctl: decode-1 did not come back\n  It was not touched again.\n"
    assert run("stop", command=bad).returncode == 130


def test_a_terminated_run_still_says_what_it_saw(elsewhere: Path) -> None:
    """With no reader of SIGTERM, `timeout 20 pdctl ... -o json` would leave nothing to read."""
    urls = ["--prefill", "http://127.0.0.1:1", "--decode", "http://127.0.0.1:2"]
    words = [*PDCTL, "triage", *urls, "--no-record", "--for", "60s", "-o", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        process.terminate()
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(out)["schema"] == "pdctl.report/1"


def test_a_lost_peer_is_not_taken_for_a_closed_pipe(bad: tuple[str, ...]) -> None:
    done = run("pipe", command=bad)
    assert done.returncode == 70 and "Broken pipe" in done.stderr


def closed_early(command: Sequence[str], read: int) -> tuple[int, str]:
    """Exit status and stderr of a command whose reader goes away after ``read`` bytes."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(read)
        process.stdout.close()
        said = process.stderr.read().decode()
        return process.wait(60), said


def test_a_reader_that_goes_away_ends_a_listing_quietly() -> None:
    assert closed_early([*PDCTL, "findings"], 0) == (0, "")
    assert closed_early([*PDCTL, "--help"], 0)[1] == ""
    assert closed_early([*PDCTL, "--version"], 0)[1] == ""


def test_a_reader_that_goes_away_in_the_middle_ends_any_command_quietly(bad: tuple[str, ...]) -> None:
    assert closed_early([*bad, "much"], 5000) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", ["findings", "--version", "--help"])
def test_output_that_cannot_be_written_is_never_taken_for_success(words: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PDCTL, words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 70
    assert "No space left" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["findings", "--version", "--help", "pinned --help"])
def test_a_full_disk_under_the_output_is_no_fault_of_pdctl(words: str, unbuffered: str) -> None:
    """Python that does not buffer (as in containers) fails in the writing itself and not in the flush."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PDCTL, *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 70
    assert done.stderr == "pdctl: the output cannot be written: No space left on device\n"


def test_a_terminal_without_the_characters_is_no_reason_to_fail() -> None:
    done = run("explain", "größe", PYTHONIOENCODING="ascii")
    assert done.returncode == 64 and "gr\\xf6\\xdfe" in done.stderr


def test_what_the_user_typed_does_not_drive_the_terminal() -> None:
    done = run("explain", "x\x1b]0;owned\x07")
    assert done.returncode == 64 and "\x1b" not in done.stderr and "\\x1b" in done.stderr


@pytest.mark.parametrize(
    "env, coloured",
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1"}, False),
    ],
    ids=str,
)
def test_colours_are_for_those_who_want_them(env: dict[str, str], coloured: bool) -> None:
    assert ("\x1b[" in run("findings", **env).stdout) is coloured


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_lines_keep_to_the_width_and_words_stay_whole(columns: str) -> None:
    out = run("findings", COLUMNS=columns).stdout
    assert max(map(len, out.splitlines())) <= max(int(columns), 52)  # 52: the columns before the words, and one word
    assert {"between", "prefill", "decode", "sockets"} <= set(out.split())


# --- what to look at ---------------------------------------------------------------------------------------------


def test_no_inventory_says_where_it_looked_and_the_two_ways_on(elsewhere: Path) -> None:
    done = run("triage", cwd=elsewhere)
    assert done.returncode == 64
    for part in ("./pdctl.toml", "$PDCTL_CONFIG", ".config/pdctl/pdctl.toml", "--prefill URL", "pdctl init"):
        assert part in done.stderr


def test_a_broken_inventory_names_its_line_in_text_and_json(elsewhere: Path) -> None:
    (elsewhere / "pdctl.toml").write_text('[[instance]]\nname = "p"\nrole = "prefil"\nurl = "http://h:1"\n')
    done = run("triage", "-o", "json", cwd=elsewhere)
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 64
    assert error["kind"] == "inventory"
    assert error["message"] == 'pdctl.toml:3: instance p: role: there is no role "prefil"'
    assert '"prefill"' in error["hint"]
    assert done.stderr.startswith("pdctl: pdctl.toml:3: ")


@pytest.mark.parametrize("how", ["variable", "option"])
def test_a_named_inventory_that_is_not_there_is_an_error_and_not_passed_over(how: str, elsewhere: Path) -> None:
    missing = str(elsewhere / "none.toml")
    done = run("triage", PDCTL_CONFIG=missing) if how == "variable" else run("triage", "--config", missing)
    assert done.returncode == 64 and f"{missing}: cannot be read: No such file" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--from", "x", "--demo", "pinned"],
        ["--config", "x", "--prefill", "http://h:1"],
        ["--release", "0.5.19", "--prefill", "http://h:1"],
        ["--prefill", "h:1"],
        ["--interval", "0"],
        ["--for", "soon"],
    ],
    ids=" ".join,
)
def test_options_that_contradict_or_mean_nothing_are_wrong_usage(words: list[str], elsewhere: Path) -> None:
    done = run("triage", *words, cwd=elsewhere)
    assert done.returncode == 64, done.stderr
    assert "Traceback" not in done.stderr


# --- completion --------------------------------------------------------------------------------------------------


def completed(line: str, **env: str) -> list[str]:
    words = line.split(" ")
    return run(COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), _PDCTL_COMPLETE="complete_bash", **env).stdout.split()


def test_the_shell_completes_commands_options_and_findings() -> None:
    assert completed("pdctl fin") == ["findings"]
    assert "--group" in completed("pdctl findings --g")
    assert completed("pdctl explain request-") == ["request-pinned"]
    assert "pinned" in completed("pdctl triage --demo pin")


def test_the_shell_completes_instances_of_the_inventory_there_is(elsewhere: Path) -> None:
    (elsewhere / "pdctl.toml").write_text('[[instance]]\nname = "decode-7"\nrole = "decode"\nurl = "http://h:1"\n')
    assert completed("pdctl logs dec") == ["decode-7"]


def test_completing_commands_imports_none_of_them() -> None:
    code = "import sys, pdctl.cli; pdctl.cli.main([]); print('|', *sys.modules)"
    done = run(
        command=(sys.executable, "-c", code), COMP_WORDS="pdctl ", COMP_CWORD="1", _PDCTL_COMPLETE="complete_bash"
    )
    listed, _, loaded = done.stdout.partition("|")
    assert listed.split() == list(COMMANDS)
    assert not [name for name in loaded.split() if name.startswith("pdctl.commands.") or name in HEAVY]


@pytest.mark.parametrize(
    "shell, has", [("bash", "complete -o default -F"), ("zsh", "#compdef pdctl"), ("fish", "complete --command")]
)
def test_the_completion_script_of_each_shell(shell: str, has: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0 and has in done.stdout
    assert done.stdout.lstrip() == done.stdout, "zsh wants #compdef on the first line"


def test_bash_itself_completes_with_the_script() -> None:
    script = (
        'eval "$(pdctl completion bash)"; COMP_WORDS=(pdctl tri); COMP_CWORD=1; '
        '_pdctl_completion pdctl; echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run(command=("bash", "-c", script), PATH=path)
    assert done.stdout == "triage\n", done.stderr
