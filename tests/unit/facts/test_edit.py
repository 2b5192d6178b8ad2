"""Edits of serve scripts: what changes, what is kept, what is refused and why."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

from pdctl.facts.edit import Edited, Source, remove_flag, set_flag, set_variable, unset_variable
from pdctl.facts.edit_text import Refused
from pdctl.model.cluster import Instance, Role

SCRIPTS = Path(__file__).parent / "data" / "scripts"
LAUNCH = "python3 -m sglang.launch_server --model-path /m"


def source(text: str | bytes, instance: Instance | None = None, **files: str) -> Source:
    raw = text.encode() if isinstance(text, str) else text
    return Source(raw, "/opt/serve.sh", instance, files)


def posted(name: str) -> Source:
    return Source((SCRIPTS / name).read_bytes(), f"/opt/{name}")


def changed(before: bytes, after: bytes) -> list[str]:
    """The lines taken out and put in."""
    rows = difflib.ndiff(before.decode().splitlines(), after.decode().splitlines())
    return [row for row in rows if row[:1] in "+-"]


def after(edited: Edited) -> str:
    return edited.raw.decode()


# --- variables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "name", "value", "line"),
    [
        ("export X=1\n", "X", "2", "export X=2"),
        ("export X=1 # why\n", "X", "2", "export X=2 # why"),
        ('X="1 2"\n', "X", "3 $4", 'X="3 \\$4"'),
        ("X='1'\n", "X", "a b", "X='a b'"),
        ("X='1'\n", "X", "it's", 'X="it\'s"'),
        ("X=1\n", "X", "a b", 'X="a b"'),
        ("X=1\n", "X", "", "X="),
        ('X="1"\n', "X", "", 'X=""'),
        ("X=\n", "X", "5", "X=5"),
        ("export A=1 X=2 B=3\n", "X", "4", "export A=1 X=4 B=3"),
        ("X=${X:-1}\n", "X", "2", "X=2"),
        ("X=$(nproc)\n", "X", "2", "X=2"),
        ("declare -x X=1\n", "X", "2", "declare -x X=2"),
        ("A=0; X=1; B=2\n", "X", "9", "A=0; X=9; B=2"),
        ("cd /x && export X=1 && true\n", "X", "2", "cd /x && export X=2 && true"),
        ("X=1\nX=2\n", "X", "3", "X=3"),
    ],
)
def test_a_value_is_replaced_in_its_own_style(before: str, name: str, value: str, line: str) -> None:
    src = source(f"{before}{LAUNCH}\n")
    edited = set_variable(src, name, value)
    rows = changed(src.raw, edited.raw)
    assert [row[2:] for row in rows if row.startswith("+ ")] == [line]
    assert len([row for row in rows if row.startswith("- ")]) == 1
    assert edited.script.variables[name] == value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"X=1 Y=2 {LAUNCH}\n", f"X=5 Y=2 {LAUNCH}"),
        (f"env X=1 Y=2 {LAUNCH}\n", f"env X=5 Y=2 {LAUNCH}"),
        (f"docker run -e X=1 img {LAUNCH}\n", f"docker run -e X=5 img {LAUNCH}"),
        (f'docker run --env "X=1" img {LAUNCH}\n', f'docker run --env "X=5" img {LAUNCH}'),
        (f"docker run --env=X=1 img {LAUNCH}\n", f"docker run --env=X=5 img {LAUNCH}"),
        (f"bash -c 'export X=1; {LAUNCH}'\n", f"bash -c 'export X=5; {LAUNCH}'"),
        (f'bash -c "X=1 {LAUNCH}"\n', f'bash -c "X=5 {LAUNCH}"'),
        (f"f() {{ export X=1; {LAUNCH}; }}\nf\n", f"f() {{ export X=5; {LAUNCH}; }}"),
        (f"ssh h 'X=1 {LAUNCH}'\n", f"ssh h 'X=5 {LAUNCH}'"),
    ],
)
def test_it_is_replaced_wherever_it_stands(text: str, line: str) -> None:
    edited = set_variable(source(text), "X", "5")
    assert after(edited).splitlines()[0] == line
    assert edited.script.variables["X"] == "5"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"#!/bin/bash\n{LAUNCH}\n", f"#!/bin/bash\nexport N=1\n{LAUNCH}\n"),
        (f"export A=1\n\n{LAUNCH}\n", f"export A=1\nexport N=1\n\n{LAUNCH}\n"),
        (
            f"if true; then\n  {LAUNCH}\nfi\n",
            f"export N=1\nif true; then\n  {LAUNCH}\nfi\n",
        ),
        (f"docker run --rm img {LAUNCH}\n", f"docker run -e N=1 --rm img {LAUNCH}\n"),
        (f"docker run -e A=1 img {LAUNCH}\n", f"docker run -e A=1 -e N=1 img {LAUNCH}\n"),
        (
            f"docker run \\\n  -e A=1 \\\n  img {LAUNCH}\n",
            f"docker run \\\n  -e A=1 \\\n  -e N=1 \\\n  img {LAUNCH}\n",
        ),
        (f"bash -c '{LAUNCH}'\n", f"bash -c 'export N=1; {LAUNCH}'\n"),
        (f"mpirun -np 2 {LAUNCH}\n", f"mpirun -x N=1 -np 2 {LAUNCH}\n"),
        (f"ssh h bash <<EOF\n{LAUNCH}\nEOF\n", f"ssh h bash <<EOF\nexport N=1\n{LAUNCH}\nEOF\n"),
    ],
)
def test_a_new_one_is_put_where_the_engine_sees_it_and_taken_out_again(text: str, expected: str) -> None:
    edited = set_variable(source(text), "N", "1")
    assert after(edited) == expected
    assert edited.script.variables["N"] == "1" and "N" in edited.script.exported
    assert unset_variable(source(edited.raw), "N").raw == text.encode()


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize(("text", "line"), [("A=1", "N=2"), ("export A=1", "export N=2"), ("# none", "export N=2")])
def test_a_file_of_variables_keeps_its_form(text: str, line: str, end: str) -> None:
    edited = set_variable(source(text + end), "N", "2")
    assert after(edited) == f"{text}\n{line}{end}"
    assert unset_variable(source(edited.raw), "N").raw == (text + end).encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"export X=1\n{LAUNCH}\n", f"{LAUNCH}\n"),
        (f"export X=1 # why\n{LAUNCH}\n", f" # why\n{LAUNCH}\n"),
        (f"export A=1 X=2 B=3\n{LAUNCH}\n", f"export A=1 B=3\n{LAUNCH}\n"),
        (f"export X=2 B=3\n{LAUNCH}\n", f"export B=3\n{LAUNCH}\n"),
        (f"A=0; X=1; B=2\n{LAUNCH}\n", f"A=0; B=2\n{LAUNCH}\n"),
        (f"A=0; X=1\n{LAUNCH}\n", f"A=0\n{LAUNCH}\n"),
        (f"X=1; A=0\n{LAUNCH}\n", f"A=0\n{LAUNCH}\n"),
        (f"X=1 {LAUNCH}\n", f"{LAUNCH}\n"),
        (f"X=1 \\\n  {LAUNCH}\n", f"{LAUNCH}\n"),
        (f"Y=1 X=1 {LAUNCH}\n", f"Y=1 {LAUNCH}\n"),
        (f"cd /x && export X=1 && {LAUNCH}\n", f"cd /x && {LAUNCH}\n"),
        (f"export X=1 && {LAUNCH}\n", f"{LAUNCH}\n"),
        (f"docker run -e X=1 img {LAUNCH}\n", f"docker run img {LAUNCH}\n"),
        (f"docker run --env=X=1 -e B=2 img {LAUNCH}\n", f"docker run -e B=2 img {LAUNCH}\n"),
        (f"X=${{X:-1}}\n{LAUNCH}\n", f"{LAUNCH}\n"),
    ],
)
def test_taken_out(text: str, expected: str) -> None:
    edited = unset_variable(source(text), "X")
    assert after(edited) == expected
    assert "X" not in edited.script.variables


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("if [ $A ]; then export X=1; fi\n", "X", "built by a condition"),
        ("if [ $A ]; then X=1; else X=2; fi\n", "X", "built by a condition"),
        ("[ $A ] && X=1\n", "X", "built by a condition"),
        ("for X in 1 2; do echo $X; done\n", "X", "not assigned plainly"),
        ("read X\n", "X", "not assigned plainly"),
        ('eval "X=1"\n', "X", "not assigned plainly"),
        (": ${X:=1}\n", "X", "not assigned plainly"),
        ("X=(1 2)\n", "X", "is an array"),
        ("X=1\nX+=2\n", "X", "put together from pieces"),
        (". ./a.env\n", "X", "set in ./a.env"),
        ("export X=1\n", "X Y", "no name of a variable"),
        ("export X=1\n", "1X", "no name of a variable"),
    ],
)
def test_refused(text: str, name: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        set_variable(source(f"{text}{LAUNCH} --tp $X\n", **{"./a.env": "export X=1\n"}), name, "5")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"X=8\n{LAUNCH} --tp $X\n", "still used in line 2"),
        (f"X=8\necho ${{X}}\n{LAUNCH}\n", "still used in line 2"),
        (f"X=8\nX=9\n{LAUNCH}\n", "more than once"),
        (f"if a; then X=1; fi\n{LAUNCH}\n", "built by a condition"),
    ],
)
def test_not_taken_out(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        unset_variable(source(text), "X")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"ssh h {LAUNCH}\n", "through ssh"),
        (f"sudo {LAUNCH}\n", "through sudo"),
        (f"kubectl exec p -- {LAUNCH}\n", "through kubectl"),
        (f"bash -c '{LAUNCH}'\n", "must not hold"),
    ],
)
def test_a_new_one_is_refused_where_it_would_not_arrive(text: str, reason: str) -> None:
    value = 'it\'s a "$"' if "must not" in reason else "1"
    with pytest.raises(Refused, match=reason):
        set_variable(source(text), "N", value)


def test_values_with_control_characters_and_broken_scripts_are_refused() -> None:
    with pytest.raises(Refused, match="control characters"):
        set_variable(source(f"X=1\n{LAUNCH}\n"), "X", "a\nb")
    with pytest.raises(Refused, match="does not parse"):
        set_variable(source(f"if true; then\n{LAUNCH}\n"), "X", "1")
    with pytest.raises(Refused, match="no shell script"):
        set_variable(source("#!/usr/bin/env python3\nprint(1)\n"), "X", "1")


def test_a_word_that_begins_with_an_escaped_blank_is_misread_by_the_grammar_and_said_so() -> None:
    src = source(f"A=\\ 1\n{LAUNCH}\n")
    assert any("escaped blank" in note for note in src.read().unsure)
    with pytest.raises(Refused, match="escaped blank"):
        set_variable(src, "B", "1")


def test_nothing_to_do() -> None:
    src = source(f"export X=1\n{LAUNCH} --tp 8\n")
    for edited in (set_variable(src, "X", "1"), unset_variable(src, "Y"), set_flag(src, "--tp", ["8"])):
        assert edited.raw == src.raw and len(edited.notes) == 1


def test_what_uses_the_variable_changes_with_it() -> None:
    edited = set_variable(source(f"TP=4\n{LAUNCH} --tp $TP\n"), "TP", "8")
    assert edited.script.flags["--tp-size"] == "8"


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    raw = b"# caf\xe9 \xff\r\nexport X=1\n" + LAUNCH.encode() + b" --served-model-name \xc3\xa9\xff\n"
    edited = set_variable(source(raw), "X", "2")
    assert edited.raw == raw.replace(b"X=1", b"X=2")
    assert set_flag(source(raw), "--tp", ["2"]).raw == raw[:-1] + b" --tp 2\n"


def test_a_secret_is_written_in_clear_and_shown_masked() -> None:
    edited = set_variable(source(f"export API_KEY=sk-aaaaaaaaaaaaaaaa1\n{LAUNCH}\n"), "API_KEY", "sk-bbbbbbbbbbbbbbbb2")
    assert b"API_KEY=sk-bbbbbbbbbbbbbbbb2" in edited.raw
    assert "sk-b" not in edited.script.text and "sk-b" not in edited.script.variables["API_KEY"]


# --- flags ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "values", "expected"),
    [
        (f"{LAUNCH} --tp 4\n", "--tp", ["8"], f"{LAUNCH} --tp 8\n"),
        (f"{LAUNCH} --tp=4\n", "--tp-size", ["8"], f"{LAUNCH} --tp=8\n"),
        (f"{LAUNCH} --tensor-parallel-size 4 \\\n --x\n", "--tp", ["8"],
         f"{LAUNCH} --tensor-parallel-size 8 \\\n --x\n"),
        (f"{LAUNCH} --tp '4'\n", "--tp", ["8"], f"{LAUNCH} --tp '8'\n"),
        (f'{LAUNCH} --tp="4"\n', "--tp", ["8"], f'{LAUNCH} --tp="8"\n'),
        (f'{LAUNCH} "--tp=4"\n', "--tp", ["8"], f'{LAUNCH} "--tp=8"\n'),
        (f"{LAUNCH}\n", "--tp", ["8"], f"{LAUNCH} --tp 8\n"),
        (f"{LAUNCH} --a=1 --b=2\n".replace(" --model-path /m", ""), "--tp", ["8"],
         f"{LAUNCH} --a=1 --b=2 --tp=8\n".replace(" --model-path /m", "")),
        (f"{LAUNCH} \\\n  --a 1\n", "--tp", ["8"], f"{LAUNCH} \\\n  --a 1 \\\n  --tp 8\n"),
        (f"{LAUNCH} \\\n  --a 1 \\\n  > log 2>&1 &\n", "--tp", ["8"],
         f"{LAUNCH} \\\n  --a 1 \\\n  --tp 8 \\\n  > log 2>&1 &\n"),
        (f"{LAUNCH} --a 1 2>&1 | tee log\n", "--enable-metrics", [],
         f"{LAUNCH} --a 1 --enable-metrics 2>&1 | tee log\n"),
        (f"{LAUNCH} --cuda-graph-bs 1 2 4 --x\n", "--cuda-graph-bs", ["8"], f"{LAUNCH} --cuda-graph-bs 8 --x\n"),
        (f"{LAUNCH} --cuda-graph-bs 1\n", "--cuda-graph-bs", ["1", "2"], f"{LAUNCH} --cuda-graph-bs 1 2\n"),
        (f"A=(--tp 4)\n{LAUNCH} ${{A[@]}}\n", "--tp", ["8"], f"A=(--tp 8)\n{LAUNCH} ${{A[@]}}\n"),
        (f'A="--tp 4 --x"\n{LAUNCH} $A\n', "--tp", ["8"], f'A="--tp 8 --x"\n{LAUNCH} $A\n'),
        (f'B="--tp 4"\nA="$B --x"\n{LAUNCH} $A\n', "--tp", ["8"], None),
        (f"{LAUNCH} --j '{{\"a\": 1}}'\n", "--j", ['{"b": 2}'], f"{LAUNCH} --j '{{\"b\": 2}}'\n"),
        (f"bash -c '{LAUNCH} --tp 4'\n", "--tp", ["8"], f"bash -c '{LAUNCH} --tp 8'\n"),
        (f"cat > r.sh <<'E'\n{LAUNCH} --tp 4\nE\nbash r.sh\n", "--tp", ["8"],
         f"cat > r.sh <<'E'\n{LAUNCH} --tp 8\nE\nbash r.sh\n"),
        (f"{LAUNCH} --enable-metrics\n", "--log-requests-level", ["2"],
         f"{LAUNCH} --enable-metrics --log-requests-level 2\n"),
    ],
)  # fmt: skip
def test_an_option_is_set(text: str, name: str, values: list[str], expected: str | None) -> None:
    if expected is None:
        with pytest.raises(Refused):
            set_flag(source(text), name, values)
        return
    assert after(set_flag(source(text), name, values)) == expected


ARRAY = """\
ARGS=(
  --model-path /m   # the model
  --tp 4            # the ranks
)
exec python3 -m sglang.launch_server "${ARGS[@]}"
"""


def test_a_new_option_joins_the_others_in_their_array_and_leaves_it_again() -> None:
    edited = set_flag(source(ARRAY), "--page-size", ["64"])
    assert after(edited) == ARRAY.replace("# the ranks\n", "# the ranks\n  --page-size 64\n")
    assert remove_flag(source(edited.raw), "--page-size").raw == ARRAY.encode()


def test_the_launch_that_is_the_instances() -> None:
    text = (
        f"case $1 in\nprefill) {LAUNCH} --disaggregation-mode prefill --tp 4;;\n"
        f"decode) {LAUNCH} --disaggregation-mode decode --tp 4;;\nesac\n"
    )
    decode = Instance("d", Role.DECODE, "http://h:30000")
    edited = set_flag(source(text, decode), "--tp", ["8"])
    assert changed(text.encode(), edited.raw)[1].startswith("+ decode)")
    with pytest.raises(Refused, match="2 launch commands that fit alike"):
        set_flag(source(text), "--tp", ["8"])


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        (f"{LAUNCH} --tp $(nproc)\n", "--tp", r"made by \$\(nproc\) when the script runs"),
        (f"{LAUNCH} --tp=$(nproc)\n", "--tp", r"made by \$\(nproc\) when the script runs"),
        (f"TP=4\n{LAUNCH} --tp $TP\n", "--tp", r"comes from \$TP"),
        (f'TP=4\n{LAUNCH} --tp "${{TP:-4}}"\n', "--tp", r"comes from"),
        (f'{LAUNCH} $(echo "--tp 4")\n', "--tp", ""),
        (f"A=(--x 1)\nif a; then A+=(--tp 4); fi\n{LAUNCH} ${{A[@]}}\n", "--tp", "built by a condition"),
        (f"if a; then E='--tp 4'; fi\n{LAUNCH} $E\n", "--tp", "built by a condition"),
        (f"{LAUNCH} --tp 2 --tp 4\n", "--tp", "given 2 times"),
        (f'eval "{LAUNCH} --tp 4"\n', "--tp", "no launch command was found"),
        ("echo hello\n", "--tp", "no launch command was found"),
    ],
)
def test_an_option_is_refused(text: str, name: str, reason: str) -> None:
    if not reason:  # what comes out of $(...) is unknown: the option is added after it, and counts
        assert after(set_flag(source(text), name, ["8"])).endswith(" --tp 8\n")
        return
    with pytest.raises(Refused, match=reason):
        set_flag(source(text), name, ["8"])


def test_the_hint_names_the_variable_to_set() -> None:
    with pytest.raises(Refused) as refused:
        set_flag(source(f"TP=4\n{LAUNCH} --tp $TP\n"), "--tp", ["8"])
    assert refused.value.hint == "Set the variable: pdctl script set INSTANCE TP=VALUE"


def test_a_value_is_not_dropped_unasked() -> None:
    for text in (f"{LAUNCH} --tp 4\n", f"{LAUNCH} --tp=4\n"):
        with pytest.raises(Refused, match="has a value"):
            set_flag(source(text), "--tp", [])


def test_options_from_outside_and_unknown_ones_are_said() -> None:
    assert any("from outside" in n for n in set_flag(source(f'{LAUNCH} --tp 4 "$@"\n'), "--tp", ["8"]).notes)
    assert any("spelling" in n for n in set_flag(source(f"{LAUNCH}\n"), "--pagesize", ["8"]).notes)
    assert set_flag(source(f"{LAUNCH}\n"), "--page-size", ["8"]).notes == ()


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (f"{LAUNCH} --tp 4 --x\n", "--tp", f"{LAUNCH} --x\n"),
        (f"{LAUNCH} --x --tp=4\n", "--tp", f"{LAUNCH} --x\n"),
        (f"{LAUNCH} \\\n  --a 1 \\\n  --tp 4\n", "--tp", f"{LAUNCH} \\\n  --a 1\n"),
        (f"{LAUNCH} \\\n  --tp 4 \\\n  --a 1\n", "--tp", f"{LAUNCH} \\\n  --a 1\n"),
        (f"{LAUNCH} --cuda-graph-bs 1 2 4 --x\n", "--cuda-graph-bs", f"{LAUNCH} --x\n"),
        (f"{LAUNCH} --a 1 2>log --tp 4\n", "--tp", f"{LAUNCH} --a 1 2>log\n"),
        (f'A="--x --tp 4"\n{LAUNCH} $A\n', "--tp", f'A="--x"\n{LAUNCH} $A\n'),
    ],
)
def test_an_option_is_taken_out(text: str, name: str, expected: str) -> None:
    assert after(remove_flag(source(text), name)) == expected


def test_an_option_that_is_not_there_is_not_taken_out() -> None:
    with pytest.raises(Refused, match="has no --tp"):
        remove_flag(source(f"{LAUNCH}\n"), "--tp")


# --- the posted ones -----------------------------------------------------------------------------------------------

Edit = Callable[[Source], Edited]


@pytest.mark.parametrize("name", sorted(p.name for p in SCRIPTS.glob("*.sh")))
def test_every_posted_script_takes_a_new_variable_and_a_new_option_and_gives_them_back(name: str) -> None:
    src = posted(name)
    with_variable = set_variable(src, "MC_NEW", "a b")
    assert with_variable.script.variables["MC_NEW"] == "a b"
    assert unset_variable(Source(with_variable.raw, src.path), "MC_NEW").raw == src.raw
    with_flag = set_flag(src, "--log-level", ["warning"]) if name != "arrays.sh" else set_flag(src, "--dtype", ["auto"])
    option = "--log-level" if name != "arrays.sh" else "--dtype"
    assert option in with_flag.script.flags
    assert remove_flag(Source(with_flag.raw, src.path), option).raw == src.raw
