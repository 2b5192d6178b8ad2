"""Scripts side by side: what differs in meaning, what only looks different, and how it is shown."""

from __future__ import annotations

import pytest

from pdctl.checks.diff_view import backup_views, diff_view, setting_views, warnings_of
from pdctl.checks.role_table import settings_of
from pdctl.checks.script_diff import ScriptDiff, compared, default_of
from pdctl.checks.scripts import scripts_of
from pdctl.checks.settings import same
from pdctl.facts.script import script_of
from pdctl.model.answer import Fact
from pdctl.model.host import ScriptFile
from tests.unit.checks.host_scene import HostScene
from tests.unit.checks.scene import D, P

BASE = """\
#!/bin/bash
# serve
export NCCL_DEBUG=WARN
PORT=${PORT:-30000}
ulimit -n 65536
exec python3 -m sglang.launch_server --model-path /m \\
  --mem-fraction-static .80 --tp-size 8 --port $PORT
"""


def script(text: str) -> ScriptFile:
    return script_of("/srv/serve.sh", None, text)


def diff(after: str, before: str = BASE) -> ScriptDiff:
    return compared(script(before), script(after))


def said(found: ScriptDiff) -> list[str]:
    return [c.words for c in (*found.flags, *found.variables)]


@pytest.mark.parametrize(
    "after",
    [
        BASE.replace(".80", "0.8"),
        BASE.replace("--tp-size 8", "--tp=8"),
        BASE.replace("--tp-size 8", "--tensor-parallel-size '8'"),
        BASE.replace("--mem-fraction-static .80 --tp-size 8", "--tp-size 8 --mem-fraction-static .80"),
        BASE.replace("export NCCL_DEBUG=WARN", 'export NCCL_DEBUG="WARN"'),
        BASE.replace(" \\\n  ", " "),
        BASE.replace("# serve", "# serve, for the second time\n# more"),
        BASE.replace("\nulimit", "\n\n\n  ulimit"),
        BASE.replace("exec", "A=(--model-path /m)\nexec").replace("--model-path /m \\", '"${A[@]}" \\'),
    ],
)  # fmt: skip
def test_the_same_meaning_in_other_words(after: str) -> None:
    found = diff(after)
    assert not found.differs and not found.is_same_text


def test_what_was_set_changed_and_removed() -> None:
    after = BASE.replace("WARN", "INFO").replace("--tp-size 8", "--tp-size 4 --enable-metrics").replace(
        "--mem-fraction-static .80 ", ""
    )  # fmt: skip
    found = diff(after)
    assert said(found) == [
        "--tp-size 8 -> 4", "--enable-metrics added", "--mem-fraction-static 0.8 removed", "NCCL_DEBUG WARN -> INFO"
    ]  # fmt: skip
    assert found.differs


def test_what_is_no_longer_handed_to_the_engine() -> None:
    found = diff(BASE.replace("export NCCL", "NCCL"))
    assert [(c.name, c.before, c.after) for c in found.exports] == [("NCCL_DEBUG", "yes", None)]
    assert found.differs and said(found) == []


def test_how_it_is_started_and_other_commands() -> None:
    found = diff(BASE.replace("exec python3", "exec numactl -N 0 python3").replace("65536", "1024"))
    assert found.program == (
        "exec python3 -m sglang.launch_server",
        "exec numactl -N 0 python3 -m sglang.launch_server",
    )
    assert found.commands == ("-ulimit -n 65536", "+ulimit -n 1024")
    image = "docker run --rm img:{} python3 -m sglang.launch_server --tp 1\n"
    assert diff(image.format("v2"), image.format("v1")).program is not None


def test_comments_are_counted_apart() -> None:
    assert diff(BASE.replace("# serve", "# other")).comments == 2
    assert diff(BASE).comments == 0 and diff(BASE).is_same_text


def test_defaults_and_what_only_a_run_knows_are_shown_as_such() -> None:
    found = diff(BASE.replace("${PORT:-30000}", "${PORT:-31000}").replace("--tp-size 8", "--tp-size $(nproc)"))
    rows = {row.name: row for row in diff_view(found, "d", ("old", "new")).rows}
    assert rows["PORT"].note == "default, unless the caller sets PORT"
    assert rows["--tp-size"].note == "not known without running it" and rows["--tp-size"].after == "$(nproc)"
    assert default_of("${X:-a b}") == ("X", "a b") and default_of("${X-}") == ("X", "") and default_of("$X") is None


def test_a_condition_that_moved_by_a_line_is_no_change() -> None:
    text = "for i in 0 1; do\n  PORT=$i\n  python3 -m sglang.launch_server --port $PORT\ndone\n"
    assert not diff("# above\n" + text, text).differs
    assert same("1 (in the loop of line 3)", "1 (in the loop of line 4)")
    assert not same("1 (if a)", "1 (if b)") and not same("line 3", "line 4")


def test_the_text_is_shown_with_secrets_masked_and_equal_ones_equal() -> None:
    key = "sk-aaaaaaaaaaaaaaaa1"
    before = BASE.replace("PORT=$", f"export SGLANG_API_KEY={key}\nPORT=$")
    view = diff_view(diff(before.replace("WARN", "INFO"), before), "d", ("a", "b"), with_text=True)
    text = "\n".join(view.text or ())
    assert key not in text and text.startswith("--- a\n+++ b\n@@") and "SGLANG_API_KEY=***" in text
    (change,) = diff(before.replace(key, "sk-bbbbbbbbbbbbbbbb2"), before).variables
    assert change.name == "SGLANG_API_KEY" and change.before != change.after and "***" in str(change.before)
    assert not diff(before.replace(f"={key}", f'="{key}"'), before).differs


def test_a_script_in_another_language_is_compared_by_its_lines() -> None:
    found = diff("#!/usr/bin/env python3\nrun('b')\n", "#!/usr/bin/env python3\nrun('a')\n")
    assert found.commands == ("-run('a')", "+run('b')") and found.differs


# --- lists and tables ----------------------------------------------------------------------------------------------


def with_backups() -> HostScene:
    scene = HostScene()
    for path, text, mtime in (
        ("/srv/serve.sh", BASE, "2026-11-12T02:40:00Z"),
        ("/srv/serve.sh.20261110-2201.bak", BASE.replace("8", "4"), "2026-11-11T09:07:00Z"),
        ("/srv/serve.sh.bak", BASE, "2026-11-12T02:50:00Z"),
    ):
        scene.raw(0, D, Fact.SCRIPT, text, path=path, mtime=mtime)
    return scene


def test_the_list_says_where_each_time_is_from_and_what_disagrees() -> None:
    scene = with_backups()
    scripts = scripts_of(scene.window(), scene.cluster, D)
    assert scripts is not None
    kept = scripts.backups[0]
    views = backup_views(scripts, kept)
    assert [(v.name, v.by, v.disagrees, v.is_same, v.is_baseline) for v in views] == [
        ("serve.sh.20261110-2201.bak", "name", True, False, True),
        ("serve.sh.bak", "mtime", False, True, False),
    ]
    told = list(warnings_of(scripts, kept))
    assert "the name is believed" in told[0] and "it was copied after the edit" in told[1]
    assert list(warnings_of(scripts, scripts.backups[-1])) == []


def role_script(scene: HostScene, name: str, role: str, flags: str) -> None:
    text = f"python3 -m sglang.launch_server --model-path /m --disaggregation-mode {role} {flags}\n"
    scene.raw(0, name, Fact.SCRIPT, text, path=f"/srv/{role}.sh", mtime="2026-11-12T02:40:00Z")


def command_line(scene: HostScene, name: str, role: str, flags: str) -> None:
    words = f"python3 -m sglang.launch_server --model-path /m --disaggregation-mode {role} {flags}".split()
    scene.raw(0, name, Fact.CMDLINE, "\0".join(words) + "\0", pid=7)


def test_settings_that_must_agree_with_their_reasons() -> None:
    scene = HostScene()
    role_script(scene, P, "prefill", "--page-size 32 --kv-cache-dtype fp8_e4m3")
    role_script(scene, D, "decode", "--page-size 64 --kv-cache-dtype fp8_e4m3 --revision abc")
    rows = {r.flag: r for r in settings_of(scene.window(), scene.cluster, P, D)}
    page = rows["--page-size"]
    assert (page.agrees, page.prefill, page.decode, page.source) == (False, "32", "64", "script")
    assert page.why == "KV pages are transferred whole"
    assert rows["--kv-cache-dtype"].agrees and rows["--model-path"].agrees
    assert rows["--revision"].agrees is None and rows["--revision"].prefill is None
    views = setting_views(rows.values())
    assert [v.agrees for v in views] == sorted((v.agrees for v in views), key=[False, None, True].index)


def test_what_runs_counts_first_and_a_script_that_differs_from_it_has_a_row_of_its_own() -> None:
    scene = HostScene()
    for name, role, live, text in ((P, "prefill", "64", "64"), (D, "decode", "64", "32")):
        command_line(scene, name, role, f"--page-size {live}")
        role_script(scene, name, role, f"--page-size {text}")
    rows = [r for r in settings_of(scene.window(), scene.cluster, P, D) if r.flag == "--page-size"]
    assert [(r.source, r.agrees) for r in rows] == [("command line", True), ("script", False)]
