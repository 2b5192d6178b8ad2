"""What a playbook may run, and what a person must agree to."""

from __future__ import annotations

import pytest

from pdctl.cli import COMMANDS as OF_PDCTL
from pdctl.plans.playbook_commands import COMMANDS, consent_for, faults_of_words, filled, subjects_of

# Commands that are no step: they write files here, run for ever, or would run playbooks.
NO_STEPS = frozenset({"init", "demo", "completion", "playbook"})
# Named before they are there.
TO_COME = frozenset({"past"})


def test_every_command_of_pdctl_is_either_told_how_it_may_be_used_or_is_no_step() -> None:
    """A new command decides this, or it is no step."""
    assert set(COMMANDS) <= set(OF_PDCTL) | TO_COME
    assert not set(COMMANDS) & NO_STEPS
    undecided = set(OF_PDCTL) - set(COMMANDS) - NO_STEPS - TO_COME
    assert not undecided, "say in plans/playbook_commands.py how a playbook may use it, or here that it is no step"


@pytest.mark.parametrize(
    "words",
    [
        "restart",
        "restart --only decode",
        "restart --only --plan",  # --plan is the value of --only: it would restart
        "script set decode-0 A=1",
        "script backup decode-0",
        "script restore decode-0 --at --dry-run",
        "mute request-pinned --on prefill-0 --for 2h --why x",
        "mute request-pinned --why list",
        "mute lift request-pinned",
        "probe --load",
        "probe --kind many --load",
        "probe --save /etc/passwd",
        "check --out /etc/passwd",
        "check --record-on-fail /tmp",
        "stacks --native",
        "stacks prefill-0 --locals",
        "past http://prometheus:9090 --key-env AWS_SECRET_ACCESS_KEY",
    ],
)
def test_what_does_more_than_read_takes_consent(words: str) -> None:
    assert consent_for(words.split()) is not None


@pytest.mark.parametrize(
    "words",
    ["triage", "pinned --for 20s", "probe", "probe --plan", "stacks", "logs --failures", "restart --plan",
     "restart --plan --only decode", "script set --dry-run decode-0 A=1", "check", "mute list", "diff",
     "changes --since 2h"],
)  # fmt: skip
def test_what_only_reads_takes_none(words: str) -> None:
    assert consent_for(words.split()) is None


def test_a_change_is_shown_first_and_agreed_to_by_the_clusters_name() -> None:
    consent = consent_for(("restart", "--only", "decode"))
    assert consent is not None and consent.named
    assert consent.preview == ("restart", "--only", "decode", "--plan")
    assert consent.agreed == ("--yes",)


def test_going_on_with_a_restart_shows_what_is_left_of_it_first() -> None:
    consent = consent_for(("restart", "--resume"))
    assert consent is not None and consent.named
    assert consent.preview == ("restart", "--resume", "--plan")


@pytest.mark.parametrize(
    "words", ["triage --re{x}", "probe --{x}", "triage -{x}", "check --o{x}=y", "restart {x}-- --{x}"]
)
def test_no_value_makes_an_option(words: str) -> None:
    """Else ``--re{x}`` with x: cord=/anywhere would write where a playbook says."""
    fault = faults_of_words(words.split())
    assert fault is not None and "written out" in fault[0]


def test_a_value_of_an_option_may_be_given() -> None:
    assert faults_of_words(("changes", "--since={since}")) is None


@pytest.mark.parametrize("words", ["restart -y", "restart --yes=true", "script set a A=1 -yc", "sample -n 5 -fo"])
def test_short_options_are_seen_wherever_they_hide(words: str) -> None:
    assert faults_of_words(words.split()) is not None


@pytest.mark.parametrize("words", ["demo pinned", "init", "playbook run x", "completion bash", "sh -c id", ""])
def test_other_programs_and_other_commands_are_no_steps(words: str) -> None:
    assert faults_of_words(words.split()) is not None


def test_subjects_become_words_of_their_own() -> None:
    words = ("stacks", "{subject}", "--count", "2")
    assert filled(words, ("prefill-0", "decode-0"), {}) == ("stacks", "prefill-0", "decode-0", "--count", "2")
    assert filled(words, (), {}) == ("stacks", "--count", "2")


def test_values_stay_one_word_and_never_become_an_option() -> None:
    words = ("changes", "--since", "{since}", "--grep={since}")
    assert filled(words, (), {"since": "yesterday 18:00; rm -rf /"})[2] == "yesterday 18:00; rm -rf /"
    assert filled(words, (), {"since": "--yes"[2:]})[3] == "--grep=yes"
    with pytest.raises(ValueError, match="option"):
        filled(("restart", "{x}"), (), {"x": "--yes"})
    with pytest.raises(ValueError, match="option"):
        filled(("stacks", "{subject}"), ("--native",), {})


def test_only_instances_of_the_cluster_are_subjects() -> None:
    known = ("prefill-0", "decode-0")
    assert subjects_of(("prefill-0->decode-0", "host:gpu-1", "--native", "prefill-0"), known) == known
