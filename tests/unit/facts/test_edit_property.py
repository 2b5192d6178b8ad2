"""Generated serve scripts: they are read as they were meant, and an edit changes one thing and can be taken back."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pdctl.facts.edit import Source, remove_flag, set_flag, set_variable, unset_variable
from pdctl.facts.edit_text import Refused
from pdctl.facts.flags import normal_value
from pdctl.facts.script import script_of

OPEN = re.compile(r"[$`]")
NAMES = ["SGLANG_A", "NCCL_B", "MC_C", "OMP_D", "X", "PYTHON_E"]
FLAGS = ["--tp-size", "--page-size", "--port", "--mem-fraction-static", "--kv-cache-dtype", "--served-model-name"]
SWITCHES = ["--enable-metrics", "--trust-remote-code", "--enable-dp-attention"]
SAFE = st.text("abcXYZ019_./:,@%+-", min_size=1, max_size=8).filter(lambda v: not v.startswith("-"))
ODD = st.text("ab 19$\"'\\`{}[]*?&|;<>()#!~=", min_size=1, max_size=8).filter(lambda v: not v.startswith("-"))
VALUES = st.one_of(SAFE, ODD)
# Once its quotes are off, a literal $ looks like a variable: the reader must doubt it.
CERTAIN = VALUES.filter(lambda v: not OPEN.search(v))


def single(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def double(value: str) -> str:
    return '"' + re.sub(r'([\\"$`])', r"\\\1", value) + '"'


def escaped(value: str) -> str:
    return re.sub(r"([^\w./:,@%+=-])", r"\\\1", value)


@dataclass(frozen=True)
class Script:
    """What a script means, and how it is written."""

    text: str
    variables: dict[str, str]
    flags: dict[str, str]


@st.composite
def written(draw: st.DrawFn, value: str) -> str:
    ways = (
        [single, double] if re.search(r"(?:^|[\s=(]) ", value) else [single, double, escaped]
    )  # see the test of escaped blanks
    return draw(st.sampled_from(ways))(value)


@st.composite
def scripts(draw: st.DrawFn, values: st.SearchStrategy[str] = VALUES) -> Script:
    variables = draw(st.dictionaries(st.sampled_from(NAMES), values, max_size=4))
    flags = draw(st.dictionaries(st.sampled_from(FLAGS), values, max_size=4))
    flags |= dict.fromkeys(draw(st.lists(st.sampled_from(SWITCHES), unique=True, max_size=2)), "")
    lines = ["#!/bin/bash", *draw(st.lists(st.sampled_from(["# a comment: --tp 3 X=9", "", "set -eu", "ulimit -n 9"])))]
    for name, value in variables.items():
        lines.append(draw(st.sampled_from(["export ", "", "declare -x "])) + f"{name}={draw(written(value))}")
    words = []
    for name, value in draw(st.permutations(list(flags.items()))):
        text = draw(written(value)) if value else ""
        words.append(name if not value else f"{name}{draw(st.sampled_from(['=', ' ']))}{text}")
    program = draw(st.sampled_from(["exec python3", "nohup numactl -N 0 python3", "/opt/venv/bin/python"]))
    end = draw(st.sampled_from(["", " > /tmp/log 2>&1 &", " 2>&1 | tee log"]))
    lines += draw(st.sampled_from([direct, in_array]))(program, words, draw(st.sampled_from([" ", " \\\n  "])), end)
    return Script("\n".join(lines) + "\n", variables, flags)


def direct(program: str, words: list[str], gap: str, end: str) -> list[str]:
    return [gap.join([f"{program} -m sglang.launch_server", "--model-path /m", *words]) + end]


def in_array(program: str, words: list[str], gap: str, end: str) -> list[str]:
    return ["ARGS=(", *(f"  {word}" for word in words), ")", f'{program} -m sglang.launch_server "${{ARGS[@]}}"{end}']


def source(script: Script) -> Source:
    return Source(script.text.encode(), "/opt/serve.sh")


@given(scripts(CERTAIN))
@settings(max_examples=120, deadline=None)
def test_a_script_is_read_as_it_was_meant(script: Script) -> None:
    read = script_of("/opt/serve.sh", None, script.text)
    assert read.launcher == "sglang"
    assert {n: read.variables.get(n) for n in script.variables} == script.variables
    meant = {name: normal_value(value) for name, value in script.flags.items()}
    assert {n: v for n, v in read.flags.items() if n != "--model-path"} == meant


def one_change(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """The one stretch in which two texts differ, as it was and as it is."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return before[start : len(before) - end], after[start : len(after) - end]


@given(scripts(), st.sampled_from(NAMES), VALUES)
@settings(max_examples=120, deadline=None)
def test_a_variable_that_is_set_has_that_value_and_nothing_else_changes(script: Script, name: str, value: str) -> None:
    src = source(script)
    edited = set_variable(src, name, value)
    read = script_of("/opt/serve.sh", None, edited.raw.decode())
    assert read.variables[name] == value
    before = src.read()
    assert {**read.variables, name: ""} == {**before.variables, name: ""}
    assert read.flags == before.flags
    assert one_change(src.raw, edited.raw)[0].count(b"\n") == 0


@given(scripts(), st.sampled_from(NAMES), VALUES)
@settings(max_examples=80, deadline=None)
def test_set_then_unset_restores_every_byte(script: Script, name: str, value: str) -> None:
    assume(name not in script.variables)
    src = source(script)
    edited = set_variable(src, name, value)
    assert edited.raw != src.raw
    assert unset_variable(Source(edited.raw, src.path), name).raw == src.raw


@given(scripts(SAFE), st.sampled_from(NAMES), SAFE)
@settings(max_examples=80, deadline=None)
def test_a_value_that_is_set_back_restores_every_byte(script: Script, name: str, value: str) -> None:
    assume(name in script.variables)
    src = source(script)
    edited = set_variable(src, name, value)
    assert set_variable(Source(edited.raw, src.path), name, script.variables[name]).raw == src.raw


@given(scripts(), st.sampled_from(FLAGS), CERTAIN)
@settings(max_examples=120, deadline=None)
def test_an_option_that_is_set_has_that_value_and_nothing_else_changes(script: Script, name: str, value: str) -> None:
    src = source(script)
    edited = set_flag(src, name, [value])
    read, before = script_of("/opt/serve.sh", None, edited.raw.decode()), src.read()
    assert read.flags[name] == normal_value(value)
    assert {**read.flags, name: ""} == {**before.flags, name: ""}
    assert read.variables == before.variables
    if name not in script.flags:
        assert remove_flag(Source(edited.raw, src.path), name).raw == src.raw


@given(scripts(), st.sampled_from([*FLAGS, *SWITCHES]))
@settings(max_examples=80, deadline=None)
def test_an_option_that_is_taken_out_is_gone_and_nothing_else(script: Script, name: str) -> None:
    src = source(script)
    if name not in script.flags:
        with pytest.raises(Refused):
            remove_flag(src, name)
        return
    edited = remove_flag(src, name)
    read = script_of("/opt/serve.sh", None, edited.raw.decode())
    assert dict(read.flags) == {n: v for n, v in src.read().flags.items() if n != name}
    assert read.variables == src.read().variables
    assert len(edited.raw) < len(src.raw)


@given(st.text(max_size=200), st.sampled_from(NAMES), VALUES)
@settings(max_examples=80, deadline=None)
def test_whatever_the_text_an_edit_is_made_or_refused(text: str, name: str, value: str) -> None:
    src = Source(text.encode("utf-8", "surrogatepass"), "/opt/serve.sh")
    for act in (lambda: set_variable(src, name, value), lambda: set_flag(src, "--tp", ["2"])):
        try:
            edited = act()
        except Refused as why:
            assert why.reason
        else:
            assert edited.raw
