"""Playbooks read from YAML: what is right is typed, what is wrong is told with line, key and what would be right."""

from __future__ import annotations

import pytest

from pdctl.model.finding import Status
from pdctl.model.playbook import Condition, Playbook
from pdctl.plans.playbook import Faulty, read_playbook

GOOD = """\
about: Is a request
  stuck?
given:
  since: {ask: "Since when?", default: 24h}
steps:
  - step: look
    say: Look.
    run: [pinned, --for, 20s]
    expect: {exit: [0, 2]}
    otherwise: blind
    next:
      - {found: request-pinned, go: logs}
      - {status: ok, go: clear}
      - {go: look, at_most: 3}
      - {go: blind}
  - step: logs
    run: [changes, --since, "{since}", "{subject}"]
    optional: true
  - step: wait
    run: [triage, --for, 10s]
    wait: {gone: [draining], every: 5s, at_most: 2m}
    next: [{of: look, not_run: true, go: blind}]
  - step: rest
    wait: {time: 500ms}
  - step: question
    ask: Again?
    answers: {yes: look, no: clear}
    unattended: no
  - step: blind
    end: unknown
  - step: clear
    end: as-found
"""


def read(text: str) -> Playbook:
    return read_playbook(text, "try", "try.yaml")


def problems(text: str) -> list[tuple[int, str, str, str]]:
    with pytest.raises(Faulty) as caught:
        read(text)
    assert caught.value.source == "try.yaml"
    return [(p.line, p.key, p.wrong, p.right) for p in caught.value.problems]


def test_a_playbook_is_read_as_it_is_written() -> None:
    playbook = read(GOOD)
    assert playbook.about == "Is a request stuck?"
    assert [(g.name, g.default) for g in playbook.given] == [("since", "24h")]
    look, logs, wait, rest, question, blind, clear = playbook.steps
    assert (look.run, look.line, look.say) == (("pinned", "--for", "20s"), 6, "Look.")
    assert (look.expect, look.otherwise) == (Condition(exit=(0, 2)), "blind")
    assert [(c.go, c.at_most) for c in look.next] == [("logs", None), ("clear", None), ("look", 3), ("blind", None)]
    assert look.next[0].test.found == ("request-pinned",)
    assert look.next[1].test.status == (Status.OK,)
    assert logs.optional and logs.run[2:] == ("{since}", "{subject}")
    assert wait.wait is not None and (wait.wait.gone, wait.wait.every, wait.wait.at_most) == (("draining",), 5.0, 120.0)
    assert wait.next[0].test.of == "look" and wait.next[0].test.not_run
    assert rest.wait is not None and rest.wait.seconds == 0.5
    assert question.ask is not None and question.ask.answers == {"yes": "look", "no": "clear"}
    assert (blind.end, blind.ends, clear.as_found, clear.ends) == (Status.UNKNOWN, True, True, True)


def test_words_stay_words_whatever_yaml_takes_them_for() -> None:
    """In YAML 1.1 ``no`` is false, ``12:30`` is 750, ``1e3`` a float, ``0x10`` sixteen."""
    text = "about: x\nsteps:\n  - step: a\n    run: [logs, --since, 12:30, --grep, no, --limit, 010, --rid, 1e3]\n"
    assert read(text).steps[0].run[2::2] == ("12:30", "no", "010", "1e3")


def test_another_text_has_another_digest() -> None:
    assert read(GOOD).digest != read(GOOD + "\n# a comment\n").digest


def step(body: str) -> str:
    return f"about: x\nsteps:\n  - step: look\n    run: [triage]\n{body}"


# text -> line, key, what is wrong, what would be right
BAD = {
    "empty file": ("", 1, "", "the file is empty", "about:"),
    "a list": ("- a\n", 1, "", "a list of keys", "about:"),
    "a tab": ("about: x\nsteps:\n\t- step: a\n", 3, "", "not YAML", "no tabs"),
    "an open bracket": ("about: x\nsteps: [\n", 3, "", "not YAML", ""),
    "a colon in text": ("about: hang: why\nsteps: []\n", 1, "", "not YAML", "quotes"),
    "a key twice": ("about: x\nabout: y\nsteps: []\n", 2, "", 'the key "about" stands here twice', "once"),
    "an alias": ("about: &a x\nsteps: *a\n", 1, "", "an alias", "Write it out"),
    "a tag": ("about: !!python/name:os.system x\nsteps: []\n", 1, "", "a tag", "plain value"),
    "two documents": ("about: x\n---\nabout: y\n", 2, "", "not YAML", ""),
    "a control character": ("about: x\nsteps: \x07\n", 2, "", "does not allow (U+0007)", ""),
    "no about": ("steps:\n  - step: a\n    say: x\n", 1, "about", "is missing", "about: Is a request"),
    "no steps": ("about: x\n", 1, "steps", "is missing", "- step: NAME"),
    "steps no list": ("about: x\nsteps: {a: b}\n", 2, "steps", "must be a list of steps", "- step: NAME"),
    "unknown key at the top": ("abuot: x\nsteps: []\n", 1, "abuot", "the file has no such key", '"about"'),
    "unknown key of a step": (step("    expct: {exit: 0}\n"), 5, "expct", "step look has no such key", '"expect"'),
    "a shell step": (step("    shell: rm -rf /\n"), 5, "shell", "no such key", "Keys here: step, say, run"),
    "unknown key in expect": (step("    expect: {exits: 0}\n"), 5, "exits", "expect has no such key", '"exit"'),
    "unknown key in next": (step("    next:\n      - {goto: end}\n"), 6, "goto", "next has no such key", "go"),
    "text for a list": (
        "about: x\nsteps:\n  - step: a\n    run: pinned --for 5s\n",
        4,
        "run",
        "must be a list, not text",
        "run: [pinned",
    ),
    "a list for text": (step("    say: [a, b]\n"), 5, "say", "must be text, not a list", "say: text"),
    "no number": (step("    next:\n      - {go: end, at_most: often}\n"), 6, "at_most", "must be a whole number", "20"),
    "too often": (step("    next:\n      - {go: end, at_most: 5000}\n"), 6, "at_most", "<= 1000", "1 to 1000"),
    "no verdict": ("about: x\nsteps:\n  - step: a\n    end: fine\n", 4, "end", 'there is no "fine"', "as-found"),
    "no time": (step("    wait: {gone: draining, every: soon}\n"), 5, "every", '"soon" is no time', "30s"),
    "no name": ("about: x\nsteps:\n  - say: x\n", 3, "step", "is missing", "step: look"),
    "a bad name": ("about: x\nsteps:\n  - step: A b\n    say: x\n", 3, "step", "no name for a step", "Small letters"),
    "a name twice": (step("  - step: look\n    say: x\n"), 5, "step", 'there is a step "look" already', "of its own"),
    "no such step": (step("    next: [{go: lok}]\n"), 5, "go", 'there is no step "lok"', '"look"'),
    "no such finding": (
        step("    next: [{found: request-pined, go: end}]\n"),
        5,
        "found",
        "no finding",
        "request-pinned",
    ),
    "no such status": (step("    expect: {exit: 5}\n"), 5, "exit", "pdctl never ends with 5", "64"),
    "no command of pdctl": (
        "about: x\nsteps:\n  - step: a\n    run: [bash, -c, id]\n",
        4,
        "run",
        '"bash" is no command',
        "pdctl's own commands",
    ),
    "an own target": (
        "about: x\nsteps:\n  - step: a\n    run: [triage, --demo, pinned]\n",
        4,
        "run",
        "--demo is for the run to say",
        "Leave it out",
    ),
    "an own form": (
        "about: x\nsteps:\n  - step: a\n    run: [triage, -ojson]\n",
        4,
        "run",
        "-o is for the run",
        "Leave",
    ),
    "consent in writing": (
        "about: x\nsteps:\n  - step: a\n    run: [restart, --yes]\n",
        4,
        "run",
        "--yes is for a person to say",
        "the run asks",
    ),
    "a rule overridden": (
        "about: x\nsteps:\n  - step: a\n    run: [restart, --force=decode-alone]\n",
        4,
        "run",
        "--force is for a person",
        "Leave it out",
    ),
    "hidden options": ("about: x\nsteps:\n  - step: a\n    run: [mute, --, x]\n", 4, "run", "hides options", "Leave"),
    "a restart by the way": (
        "about: x\nsteps:\n  - step: a\n    run: [script, set, decode-0, A=1, --restart]\n",
        4,
        "run",
        "--restart is a step of its own",
        "[restart]",
    ),
    "for ever": ("about: x\nsteps:\n  - step: a\n    run: [sample]\n", 4, "run", "go on for ever", "--for"),
    "following": ("about: x\nsteps:\n  - step: a\n    run: [logs, -f]\n", 4, "run", "-f never ends", "Leave it out"),
    "a loop": (step("    next: [{go: look}]\n"), 5, "go", "back to look for ever?", "at_most"),
    "a loop over two": (
        step("  - step: b\n    run: [ps]\n    next: [{go: look}]\n"),
        7,
        "go",
        "back to look",
        "at_most",
    ),
    "a loop nobody ends": (
        step("  - step: b\n    ask: Again?\n    answers: {y: look, n: end}\n    unattended: y\n"),
        8,
        "unattended",
        "round for ever",
        "onward",
    ),
    "otherwise in a ring": (
        step("    expect: {exit: 0}\n    otherwise: look\n"),
        6,
        "otherwise",
        "for ever",
        "at_most",
    ),
    "unreachable case": (step("    next: [{go: end}, {exit: 3, go: end}]\n"), 5, "next", "always holds", "last"),
    "unreachable step": (step("    next: [{go: end}]\n  - step: b\n    say: x\n"), 6, "step", "nothing leads to b", ""),
    "otherwise than what": (step("    otherwise: end\n"), 5, "otherwise", "otherwise than what", "expect:"),
    "nothing to expect of": (
        "about: x\nsteps:\n  - step: a\n    say: x\n    expect: {exit: 0}\n",
        5,
        "expect",
        "nothing is run",
        "run:",
    ),
    "findings of logs": (
        "about: x\nsteps:\n  - step: a\n    run: [logs]\n    expect: {missing: request-pinned}\n",
        5,
        "expect",
        "logs reports no findings",
        "triage",
    ),
    "does nothing": ("about: x\nsteps:\n  - step: a\n", 3, "steps", "step a does nothing", "run:"),
    "two things": (step("    ask: Again?\n    answers: {y: end}\n"), 5, "ask", "does nothing else", "two steps"),
    "no answers": ("about: x\nsteps:\n  - step: a\n    ask: Again?\n", 4, "ask", "without answers", "answers:"),
    "no such answer": (
        "about: x\nsteps:\n  - step: a\n    ask: q\n    answers: {y: end}\n    unattended: n\n",
        6,
        "unattended",
        'no answer "n"',
        "Answers: y",
    ),
    "waits for nothing": (step("    wait: {every: 5s}\n"), 5, "wait", "waits for one thing", "gone:"),
    "waits for two": (step("    wait: {time: 5s, gone: draining}\n"), 5, "wait", "one thing", "One of"),
    "nothing looks": (
        "about: x\nsteps:\n  - step: a\n    wait: {gone: draining}\n",
        4,
        "wait",
        "nothing looks",
        "run:",
    ),
    "a wait that repeats a change": (
        "about: x\nsteps:\n  - step: a\n    run: [restart]\n    wait: {gone: peer-stale}\n",
        5,
        "wait",
        "a wait repeats it",
        "[pinned",
    ),
    "a wait that repeats a load": (
        "about: x\nsteps:\n  - step: a\n    run: [probe, --load]\n    wait: {gone: responses-lost}\n",
        5,
        "wait",
        "a wait repeats it",
        "[pinned",
    ),
    "a wait that sees no findings": (
        "about: x\nsteps:\n  - step: a\n    run: [logs]\n    wait: {gone: draining}\n",
        5,
        "wait",
        "logs reports no findings",
        "[pinned",
    ),
    "an option that a value makes": (
        "about: x\ngiven: {y: {ask: q}}\nsteps:\n  - step: a\n    run: [triage, '--re{y}']\n",
        5,
        "run",
        "an option is written out",
        "--for={x}",
    ),
    "a question in braces": (
        "about: x\nsteps:\n  - {step: a, ask: Well?, answers: {y: end}}\n",
        3,
        "",
        "not YAML",
        "question mark",
    ),
    "a quote that does not end": ("about: 'x\nsteps: []\n", 1, "", "not YAML", "does not end"),
    "keys in two columns": ("about: x\nsteps:\n  - step: a\n     say: x\n", 4, "", "not YAML", "same column"),
    "a second wrong case": (
        step("    next:\n      - {go: end, at_most: often}\n      - {exit: none, go: end}\n"),
        7,
        "exit",
        "must be a whole number or a list, not text",
        "exit: 0",
    ),
    "a case that is a word": (
        step("    next:\n      - {exit: 0, go: end}\n      - end\n"),
        7,
        "next",
        "keys with",
        "a list",
    ),
    "explains no finding": (
        "about: x\nsteps:\n  - step: a\n    run: [explain, request-pinnd]\n",
        4,
        "run",
        'no finding "request-pinnd"',
        '"request-pinned"',
    ),
    "waits for no finding": (
        "about: x\nsteps:\n  - step: a\n    run: [sample, --until, drainin]\n",
        4,
        "run",
        'no finding "drainin"',
        '"draining"',
    ),
    "nearly a command": ("about: x\nsteps:\n  - step: a\n    run: [triag]\n", 4, "run", "no command", '"triage"'),
    "an unknown place": (
        "about: x\nsteps:\n  - step: a\n    run: [logs, --since, '{when}']\n",
        4,
        "run",
        "nothing says what {when} is",
        "{subject}",
    ),
    "subject in a word": (
        "about: x\nsteps:\n  - step: a\n    run: [logs, 'x{subject}']\n",
        4,
        "run",
        "any number of words",
        "of its own",
    ),
    "given and not used": (
        "about: x\ngiven: {a: {ask: q}}\nsteps:\n  - step: b\n    say: x\n",
        2,
        "a",
        "no step uses it",
        "{a}",
    ),
    "of a later step": (
        step("    next: [{of: b, exit: 0, go: b}]\n  - step: b\n    run: [ps]\n"),
        5,
        "of",
        '"b" is no earlier step',
        "ran before",
    ),
    "ends and goes on": (
        "about: x\nsteps:\n  - step: a\n    end: ok\n    next: [{go: end}]\n",
        4,
        "end",
        "that ends",
        "of its own",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_gets_line_key_and_what_would_be_right(name: str) -> None:
    text, line, key, wrong, right = BAD[name]
    found = problems(text)
    assert any((at, at_key) == (line, key) and wrong in said and right in hint for at, at_key, said, hint in found), (
        found
    )


def test_everything_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    text = "abuot: x\nsteps:\n  - step: a\n    run: triage\n  - step: b\n    runs: [ps]\n    end: fine\n"
    lines = [line for line, *_ in problems(text)]
    assert lines == sorted(lines)
    assert set(lines) == {1, 4, 6, 7}


def test_a_file_of_deep_brackets_is_refused_and_does_no_harm() -> None:
    assert "nested too deeply" in problems("about: " + "[" * 5000)[0][2]
    assert "longer than" in problems("# " + "x" * 300_000)[0][2]


def test_at_most_once_more_is_no_loop_and_a_way_up_to_an_end_is_none_either() -> None:
    text = (
        "about: x\nsteps:\n  - step: a\n    run: [ps]\n    next: [{exit: 2, go: c}]\n"
        "  - step: b\n    end: ok\n  - step: c\n    run: [ps]\n    next: [{exit: 0, go: b}, {go: a, at_most: 2}]\n"
    )
    with pytest.raises(Faulty) as caught:
        read(text.replace(", at_most: 2", ""))
    assert [p.wrong for p in caught.value.problems] == ["back to a for ever?"]
    assert len(read(text).steps) == 3
