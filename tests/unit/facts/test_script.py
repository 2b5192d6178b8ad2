"""Serve scripts: what they would start, with which flags and variables, and what cannot be known."""

# ruff: noqa: E501 - scripts stand here as they are written

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdctl.facts import script
from pdctl.facts.base import Unreadable
from pdctl.facts.flags import normal_value
from pdctl.facts.script import script_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Instance, Role
from pdctl.model.host import ScriptFile
from tests.unit.facts.host_answers import answer

LAUNCH = "python3 -m sglang.launch_server"
DECODE = Instance("decode-0", Role.DECODE, "http://192.0.2.21:30000")


def read(text: str, instance: Instance | None = None, files: dict[str, str] | None = None) -> ScriptFile:
    return script_of("/srv/serve.sh", None, text, instance, files)


def flags(text: str) -> dict[str, str]:
    return dict(read(text).flags)


def test_a_plain_script() -> None:
    value = read(
        """#!/usr/bin/env bash
set -euo pipefail
export SGLANG_DISAGGREGATION_WAITING_TIMEOUT=600  # seconds
LOG=/var/log/x
# exec python3 -m sglang.launch_server --port 1
exec python3 -m sglang.launch_server \\
  --model-path /srv/models/m --disaggregation-mode=decode \\
  --tp-size 8 --mem-fraction-static .80 --enable-metrics >> "$LOG" 2>&1
"""
    )
    assert value.flags == {
        "--model-path": "/srv/models/m",
        "--disaggregation-mode": "decode",
        "--tp-size": "8",
        "--mem-fraction-static": "0.8",
        "--enable-metrics": "",
    }
    assert value.variables == {"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "600", "LOG": "/var/log/x"}
    assert value.exported == {"SGLANG_DISAGGREGATION_WAITING_TIMEOUT"}
    assert (value.unsure, value.doubtful, value.launcher) == ((), frozenset(), "sglang")
    assert value.command[:4] == ("exec", "python3", "-m", "sglang.launch_server")


@pytest.mark.parametrize(
    "text",
    [
        f"{LAUNCH} --page-size 64 --served-model-name 'a b'",
        f"{LAUNCH} --served-model-name=a\\ b --page-size=64",
        f'{LAUNCH} --page-size "64" \\\n  --served-model-name "a b"',
        f"P=64\nN='a b'\n{LAUNCH} --page-size $P --served-model-name \"$N\"",
        f'ARGS=(--page-size 64 # pages\n  --served-model-name "a b")\n{LAUNCH} "${{ARGS[@]}}"',
        f'ARGS=()\nARGS+=(--page-size 64)\nARGS+=("--served-model-name=a b")\n{LAUNCH} "${{ARGS[@]}}"',
        f"A='--page-size'\nA+=' 64'\n{LAUNCH} $A --served-model-name $'a b'",
        f"f() {{ {LAUNCH} --page-size \"$1\" --served-model-name \"$2\"; }}\nf 64 'a b'",
        f"main() {{ run \"$@\"; }}\nrun() {{ local p=$1; shift; {LAUNCH} --page-size $p \"$@\"; }}\nmain 64 --served-model-name 'a b'",
        f"bash -c '{LAUNCH} --page-size 64 --served-model-name \"a b\"'",
        f"CMD='{LAUNCH} --page-size 64'\neval \"$CMD --served-model-name 'a b'\"",
        f"cd /srv && exec nohup {LAUNCH} --page-size 64 --served-model-name 'a b' &",
        f"while true; do {LAUNCH} --page-size 64 --served-model-name 'a b'; sleep 5; done",
        f"until false; do {LAUNCH} --page-size 64 --served-model-name 'a b'; done",
        f"( cd /srv; {LAUNCH} --page-size 64 --served-model-name 'a b' ) | tee log",
        f"trap x EXIT\nsource_me=1\n{LAUNCH} --page-size $((64)) --served-model-name 'a b'".replace("$((64))", "64"),
    ],
)  # fmt: skip
def test_one_meaning_in_many_spellings(text: str) -> None:
    value = read(text)
    assert value.flags == {"--page-size": "64", "--served-model-name": "a b"}
    assert value.doubtful & {"--page-size", "--served-model-name"} == set()


def test_heredocs_and_comments_are_no_code() -> None:
    value = read(f"cat > x <<'EOF'\nexport NOT=1\n{LAUNCH} --port 9\nEOF\n# export ALSO=1\n{LAUNCH} --port 1\n")
    assert value.flags == {"--port": "1"}
    assert value.variables == {}


def test_what_stands_before_the_program_and_prefix_assignments() -> None:
    value = read(f"export A=1\nB=2 CUDA_VISIBLE_DEVICES=0,1 env NCCL_DEBUG=INFO numactl -N 0 {LAUNCH} --port 1")
    assert value.variables == {"A": "1", "B": "2", "CUDA_VISIBLE_DEVICES": "0,1", "NCCL_DEBUG": "INFO"}
    assert value.exported == {"A", "B", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG"}


def test_what_is_exported() -> None:
    value = read(
        f"set -a\nA=1\nset +a\nB=2\nC=3\nexport C\ndeclare -x D=4\nreadonly E=5\nexport F=6\nexport -n F\nexport G=7\n"
        f"unset G\nset -o allexport\nH=8\n{LAUNCH} --port 1\nexport LATE=1\n"
    )
    assert value.exported == {"A", "C", "D", "H"}
    assert value.variables == {"A": "1", "B": "2", "C": "3", "D": "4", "E": "5", "F": "6", "H": "8"}


def test_defaults_of_the_caller_are_shown_as_such() -> None:
    value = read(f'PORT=${{PORT:-30000}}\n: "${{TP:=8}}"\n{LAUNCH} --port $PORT --tp "$TP" --page-size ${{PAGE:-64}}')
    assert value.flags == {"--port": "${PORT:-30000}", "--tp-size": "${TP:-8}", "--page-size": "${PAGE:-64}"}
    assert value.doubtful >= {"--port", "--tp-size", "--page-size", "PORT", "TP"}
    assert "--port is ${PORT:-30000}" in value.unsure


def test_defaults_are_decided_where_the_script_knows() -> None:
    text = f"A=1\nE=\n{LAUNCH} --port ${{A:-2}} --tp ${{E:-4}} --dp ${{E-5}} ${{A:+--enable-metrics}} ${{E:+--log-requests}}"
    assert flags(text) == {"--port": "1", "--tp-size": "4", "--dp-size": "", "--enable-metrics": ""}


def test_command_substitution_is_never_guessed() -> None:
    value = read(f"export HOST_IP=$(hostname -I | awk '{{print $1}}')\n{LAUNCH} --host $HOST_IP --nnodes `cat n`")
    assert value.flags == {"--host": "$(hostname -I | awk '{print $1}')", "--nnodes": "`cat n`"}
    assert value.doubtful == {"HOST_IP", "--host", "--nnodes"}


def test_conditions_are_shown_with_what_depends_on_them() -> None:
    value = read(
        f"""export T=300
if [ "$FAST" = 1 ]; then
  export T=600 Q=1
  EXTRA="--enable-metrics"
fi
[ -n "$DEBUG" ] && ARGS+=(--log-level debug)
ARGS+=(--port 1)
{LAUNCH} "${{ARGS[@]}}" $EXTRA
"""
    )
    condition = 'if [ "$FAST" = 1 ]'
    assert value.variables["T"] == f"300 | 600 ({condition})"
    assert value.variables["Q"] == f"1 ({condition})"
    assert value.flags == {
        "--port": "1",
        "--log-level": 'debug (if [ -n "$DEBUG" ])',
        "--enable-metrics": f"({condition})",
    }
    assert value.doubtful == {"T", "Q", "EXTRA", "--log-level", "--enable-metrics"}


@pytest.mark.parametrize(
    "text",
    ["for P in 1 2; do {L} --port $P; done", 'case "$1" in a) P=1;; *) P=2;; esac\n{L} --port $P', "read P\n{L} --port $P",
     "{L} --port $1", "P[0]=1\n{L} --port $P", "X=a\n$X || P=1\n{L} --port $P", "{L} --port ${!NAME}", "{L} --port ${P%%x}"],
)  # fmt: skip
def test_values_that_only_a_run_has_are_in_doubt(text: str) -> None:
    value = read(text.replace("{L}", LAUNCH))
    assert "--port" in value.doubtful
    assert value.flags["--port"].startswith("$")


def test_flags_gathered_piece_by_piece_under_conditions() -> None:
    value = read(
        f"""EXTRA=""
[ -n "${{PLC:-}}" ] && EXTRA="--init-expert-location x"
[ -n "${{CHUNK:-}}" ] && EXTRA="$EXTRA --chunked-prefill-size 4096"
exec {LAUNCH} --tp 8 $EXTRA
"""
    )
    assert value.flags == {
        "--tp-size": "8",
        "--init-expert-location": 'x (if [ -n "${PLC:-}" ])',
        "--chunked-prefill-size": '4096 (if [ -n "${CHUNK:-}" ])',
    }


def test_a_container_started_with_its_own_environment() -> None:
    value = read(
        "sudo docker run --gpus all --ulimit memlock=-1 -p 30000:30000 --env 'A=1' -e B=2 --env=C=3 img:latest "
        f"{LAUNCH} --port 30000"
    )
    assert value.variables == {"A": "1", "B": "2", "C": "3"}
    assert value.flags == {"--port": "30000"}


def test_a_script_inside_a_containers_shell() -> None:
    value = read(
        f"docker exec -d $BOX bash -c '\n  export A=1\n  {LAUNCH} \\\n    --tp-size 8 \\\n    ${{PARALLEL_ARGS}} --port 1\n'"
    )
    assert value.flags == {"--tp-size": "8", "--port": "1"}
    assert value.exported == {"A"}
    assert value.doubtful == {"*"}


def test_options_from_outside_are_said() -> None:
    value = read(f'{LAUNCH} --port 1 --tp 2 $EXTRA_ARGS "$@"')
    assert value.flags == {"--port": "1", "--tp-size": "2"}
    assert value.doubtful == {"*"}
    assert any("from outside" in note for note in value.unsure)


TWO = f"""start() {{ {LAUNCH} --disaggregation-mode $1 --port $2 & }}
start prefill 30100
start decode 30000
python -m sglang_router.launch_router --pd-disaggregation --port 30300
"""


def test_the_launch_of_several_that_is_the_instances() -> None:
    assert read(TWO, DECODE).flags == {"--disaggregation-mode": "decode", "--port": "30000"}
    prefill = read(TWO, Instance("p", Role.PREFILL))
    assert prefill.flags["--port"] == "30100"
    router = read(TWO, Instance("r", Role.ROUTER, "http://h:30300"))
    assert (router.launcher, router.flags["--port"]) == ("router", "30300")
    assert any("3 launch commands" in note for note in router.unsure)


def test_files_read_in_are_followed_where_they_are_at_hand() -> None:
    text = f"source /etc/nccl.env\n. ./more.env\n{LAUNCH} --port $PORT\n"
    alone = read(text)
    assert alone.sources == ("/etc/nccl.env", "./more.env")
    assert len([n for n in alone.unsure if "was not read here" in n]) == 2
    joined = read(text, files={"/etc/nccl.env": "export NCCL_DEBUG=WARN\n", "./more.env": "PORT=7\n"})
    assert joined.flags == {"--port": "7"}
    assert joined.exported == {"NCCL_DEBUG"}


def test_secrets_are_masked_in_all_parts() -> None:
    secret = "sk-not-a-real-key-000"
    value = read(f"export SGLANG_API_KEY={secret}\n{LAUNCH} --api-key $SGLANG_API_KEY --port 1")
    assert secret not in repr(value)
    assert value.flags["--api-key"] == value.variables["SGLANG_API_KEY"]


def test_no_launch_other_languages_and_broken_text() -> None:
    assert read("echo hi\n").unsure == ("no launch command found",)
    wrapper = read("./run_engine.sh --role decode --port 1\n")
    assert (wrapper.launcher, wrapper.flags["--port"]) == (None, "1")
    assert "not a shell script" in read("#!/usr/bin/env python3\nimport x\n").unsure[0]
    broken = read(f"if [ 1 ]; then\n{LAUNCH} --port 1\n")
    assert any("does not parse" in note for note in broken.unsure)
    assert read("").flags == {}


def test_text_that_grows_without_bound_or_calls_itself_ends() -> None:
    doubled = "A=xxxxxxxxxx\n" + "A=$A$A\n" * 80
    assert read(f"{doubled}{LAUNCH} --port 1").flags == {"--port": "1"}
    assert read(f"f() {{ f; f; }}\nf\n{LAUNCH} --port 1").flags == {"--port": "1"}
    assert read(f'A=\'eval "$A"\'\neval "$A"\n{LAUNCH} --port 1').flags == {"--port": "1"}


def test_the_answer_names_the_file_or_the_inventory_does() -> None:
    named = answer(Fact.SCRIPT, f"{LAUNCH} --port 1", path="/srv/serve.sh", mtime="2026-11-12T02:40:00Z")
    value = script.read(named, None)
    assert (value.path, str(value.mtime)) == ("/srv/serve.sh", "2026-11-12 02:40:00+00:00")
    unnamed = answer(Fact.SCRIPT, "x")
    assert script.read(unnamed, Instance("d", Role.DECODE, script="/a.sh")).path == "/a.sh"
    for bad in (unnamed, answer(Fact.SCRIPT, None, path="/srv/serve.sh")):
        with pytest.raises(Unreadable):
            script.read(bad, None)


NAMES = st.sampled_from(
    ["--port", "--page-size", "--kv-cache-dtype", "--served-model-name", "--tp-size", "--log-level"]
)
VALUES = st.text("abcXYZ0123_./:, =%@", min_size=1, max_size=12).filter(lambda v: v.strip() == v)
QUOTES = st.sampled_from(["'{}'", '"{}"', "$'{}'"])


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(VALUES, QUOTES, st.booleans(), st.integers(0, 3)), min_size=1))
def test_flags_survive_every_way_of_writing_them(written: dict[str, tuple[str, str, bool, int]]) -> None:
    lines, direct = [], []
    for index, (name, (value, quote, joined, how)) in enumerate(written.items()):
        quoted = quote.format(value)
        if how == 0:
            lines.append(f"V{index}={quoted}")
            quoted = f'"$V{index}"'
        elif how == 1:
            lines.append(f"ARGS+=({name} {quoted})")
            continue
        direct.append(f"{name}={quoted}" if joined else f"{name} \\\n  {quoted}")
    text = "\n".join(["ARGS=()", *lines, f'{LAUNCH} {" ".join(direct)} "${{ARGS[@]}}"'])
    assert read(text).flags == {name: normal_value(value[0]) for name, value in written.items()}
