"""script-drift, live-drift and role-mismatch: scripts, processes and roles against each other."""

from __future__ import annotations

from pdctl.checks import live_drift, role_mismatch, script_drift
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import ServerInfo
from pdctl.model.events import Event, Kind
from pdctl.model.finding import Confidence
from tests.unit.checks.host_scene import HostScene, seen_in
from tests.unit.checks.scene import D, P

PATH = "/srv/serve.sh"
EDITED, BEFORE = "2026-11-12T02:40:00Z", "2026-11-11T23:50:00Z"
LAUNCH = "python3 -m sglang.launch_server --model-path /m/a --disaggregation-mode decode"


def text(timeout: int = 300, page: int = 64, more: str = "") -> str:
    return f"#!/bin/bash\nexport WAITING_TIMEOUT={timeout}\nLOCAL=1\n{more}exec {LAUNCH} --page-size {page}\n"


def script(scene: HostScene, body: str, name: str = PATH, mtime: str = EDITED, subject: str = D) -> HostScene:
    scene.raw(0, subject, Fact.SCRIPT, body, path=name, mtime=mtime)
    return scene


def running(scene: HostScene, line: str, environ: str | None = None, started: str | None = None) -> HostScene:
    scene.raw(0, D, Fact.CMDLINE, line.replace(" ", "\0") + "\0", pid=7)
    if environ is not None:
        scene.raw(0, D, Fact.ENVIRON, environ, pid=7)
    if started:
        rows = f'[{{"pid": 7, "title": "{line}", "cmdline": [], "started": "{started}"}}]'
        scene.raw(0, D, Fact.PROCESSES, rows)
    return scene


# --- script-drift -----------------------------------------------------------------------------------------------------


def test_what_changed_since_the_newest_backup_is_listed() -> None:
    scene = script(HostScene(), text(600, 32))
    script(scene, text(300, 64), PATH + ".2026-11-11T23:50:00.bak", BEFORE)
    script(scene, text(1, 1), PATH + ".bak", "2026-11-09T10:00:00Z")
    finding = scene.one(script_drift.judge)
    assert (finding.subject, finding.confidence) == (D, Confidence.CERTAIN)
    assert "WAITING_TIMEOUT 300 -> 600" in finding.summary
    assert "--page-size 64 -> 32" in finding.summary


def test_added_and_removed_flags_and_variables() -> None:
    scene = script(HostScene(), text(more="export NEW=1\n").replace(" --page-size 64", " --enable-metrics"))
    script(scene, text(more="export OLD=2\n"), PATH + ".bak", BEFORE)
    summary = scene.one(script_drift.judge).summary
    for said in ("--enable-metrics added", "--page-size 64 removed", "NEW=1 added", "OLD=2 removed"):
        assert said in summary


def test_layout_comments_order_and_spelling_are_no_drift() -> None:
    other = text().replace("--page-size 64", "\\\n   --page-size=64").replace("LOCAL=1", "# who: me\nLOCAL='1'")
    scene = script(script(HostScene(), other), text(), PATH + ".bak", BEFORE)
    assert scene.found(script_drift.judge) == []
    assert "comments or layout" in scene.ruled_out(script_drift.judge)[0].by


def test_other_code_counts_with_less_confidence() -> None:
    scene = script(HostScene(), text(more="ulimit -n 1024\n"))
    script(scene, text(more="ulimit -n 65536\n"), PATH + ".bak", BEFORE)
    finding = scene.one(script_drift.judge)
    assert finding.confidence == Confidence.LIKELY
    assert "ulimit -n 1024" in finding.summary


def test_secrets_that_changed_are_told_apart_and_not_shown() -> None:
    one, other = "sk-not-a-real-key-000", "sk-not-a-real-key-111"
    scene = script(HostScene(), text(more=f"export API_KEY={one}\n"))
    script(scene, text(more=f"export API_KEY={other}\n"), PATH + ".bak", BEFORE)
    finding = scene.one(script_drift.judge)
    assert "API_KEY ***" in finding.summary
    assert one not in repr(finding) and other not in repr(finding)


def test_without_a_backup_it_is_said_and_not_judged() -> None:
    scene = script(HostScene(), text())
    assert scene.found(script_drift.judge) == []
    assert "no backup" in scene.unchecked(script_drift.judge)[0].why


def test_a_file_that_is_read_in_is_not_taken_for_the_script() -> None:
    scene = script(HostScene(), text(600))
    script(scene, "export NCCL_DEBUG=WARN\n", "/etc/nccl.env", EDITED)
    script(scene, text(300), PATH + ".bak", BEFORE)
    assert PATH in scene.one(script_drift.judge).summary


# --- live-drift -------------------------------------------------------------------------------------------------------

LINE = LAUNCH + " --page-size=64"


def test_a_variable_edited_after_the_start() -> None:
    scene = running(script(HostScene(), text(600)), LINE, "PATH=/bin\nWAITING_TIMEOUT=300\n")
    finding = scene.one(live_drift.judge)
    assert (finding.subject, finding.confidence) == (D, Confidence.LIKELY)
    assert "WAITING_TIMEOUT 300 -> 600" in finding.summary
    dated = running(script(HostScene(), text(600)), LINE, "WAITING_TIMEOUT=300\n", "2026-11-12T01:00:00Z")
    assert dated.one(live_drift.judge).confidence == Confidence.CERTAIN


def test_a_process_younger_than_its_script_was_started_otherwise() -> None:
    scene = running(script(HostScene(), text()), LINE.replace("64", "32"), None, "2026-11-12T03:00:00Z")
    finding = scene.one(live_drift.judge)
    assert "--page-size 32 -> 64" in finding.summary
    assert "by hand" in finding.against[0]
    assert any("environment could not be read" in limit for limit in finding.limits)


def test_equal_in_meaning_is_ruled_out() -> None:
    body = text(more="export A=.80\n").replace("--page-size 64", "--page-size 64 --mem-fraction-static 0.80")
    line = LINE + " --mem-fraction-static=.8"
    scene = running(script(HostScene(), body), line, "WAITING_TIMEOUT=300\nA=0.8\nINHERITED=1\n")
    assert scene.found(live_drift.judge) == []
    assert len(scene.ruled_out(live_drift.judge)) == 1


def test_only_what_the_script_exports_and_surely_sets_counts() -> None:
    more = 'export MAYBE=$(nproc)\nexport PORT=${PORT:-1}\n[ -n "$X" ] && export Y=2\nexport HOME_DIR=~/x\n'
    scene = running(script(HostScene(), text(more=more)), LINE, "WAITING_TIMEOUT=300\nLOCAL=9\nPORT=7\n")
    assert scene.found(live_drift.judge) == []


def test_a_variable_the_process_lacks_and_options_from_outside() -> None:
    scene = running(script(HostScene(), text()), LINE, "PATH=/bin\n")
    assert "WAITING_TIMEOUT=300 added" in scene.one(live_drift.judge).summary
    passing = text().replace("--page-size 64", '--page-size 64 "$@"')
    open_ended = running(script(HostScene(), passing), LINE + " --log-requests", "WAITING_TIMEOUT=300\n")
    assert open_ended.found(live_drift.judge) == []
    closed = running(script(HostScene(), text()), LINE + " --log-requests", "WAITING_TIMEOUT=300\n")
    assert "--log-requests removed" in closed.one(live_drift.judge).summary


def test_a_title_over_the_command_line_proves_nothing_missing() -> None:
    body = "export RUST_LOG=info\nexec python -m sglang_router.launch_router --port 30001\n"
    scene = script(HostScene(), body, subject=D)
    scene.raw(0, D, Fact.CMDLINE, "sglang::router\0\0\0", pid=7)
    scene.raw(0, D, Fact.ENVIRON, "LATER=1\0", pid=7)
    assert scene.found(live_drift.judge) == []


def test_a_routers_hidden_command_line_is_its_units() -> None:
    body = "exec python -m sglang_router.launch_router --pd-disaggregation --port 30001 --policy random\n"
    scene = script(HostScene(), body)
    scene.raw(0, D, Fact.CMDLINE, "sglang::router\0\0\0", pid=7)
    argv = "/usr/bin/python -m sglang_router.launch_router --pd-disaggregation --port 30001 --policy cache_aware"
    unit = f"Id=router.service\nExecStart={{ path=/usr/bin/python ; argv[]={argv} ; ignore_errors=no ; pid=7 }}\n"
    scene.raw(0, D, Fact.UNIT, unit)
    assert "--policy cache_aware -> random" in scene.one(live_drift.judge).summary


def test_without_a_process_it_is_not_judged_and_the_list_of_processes_will_do() -> None:
    scene = script(HostScene(), text())
    assert len(scene.unchecked(live_drift.judge)) == 1
    listed = script(HostScene(), text(page=32))
    listed.raw(0, D, Fact.PROCESSES, f'[{{"pid": 7, "title": "x", "cmdline": {LINE.split()!r}}}]'.replace("'", '"'))
    assert "--page-size 64 -> 32" in listed.one(live_drift.judge).summary


# --- role-mismatch ----------------------------------------------------------------------------------------------------


def lines(prefill: str, decode: str, model: str = "/m/a", other: str | None = None) -> HostScene:
    scene = HostScene()
    for name, flags, path in ((P, prefill, model), (D, decode, other or model)):
        line = f"python3 -m sglang.launch_server --model-path {path} {flags}"
        scene.raw(0, name, Fact.CMDLINE, line, pid=7)
    return scene


def test_flags_that_must_agree_and_their_reasons() -> None:
    finding = lines("--page-size 32 --tp 8", "--page-size=64 --tp 4 --mem-fraction-static .8").one(role_mismatch.judge)
    assert (finding.subject, finding.confidence) == (f"{P}->{D}", Confidence.LIKELY)
    assert "page-size 32 / 64" in finding.summary
    assert "whole" in finding.summary
    assert "tp" not in finding.summary.replace("http", "")


def test_the_engines_own_refusal_makes_it_certain() -> None:
    refusal = "Page size mismatch: prefill server has page_size=32, but decode server has page_size=64. Both servers"
    scene = lines("--page-size 32", "--page-size 64")
    scene.log(D, Event(Kind.OTHER, "ValueError: " + refusal))
    assert scene.one(role_mismatch.judge).confidence == Confidence.CERTAIN
    alone = HostScene()
    alone.log(D, Event(Kind.TRANSFER_THREAD_FAILED, "x", words={"reason": refusal}))
    assert "page_size=32" in alone.one(role_mismatch.judge).summary


def test_defaults_of_every_release_are_known_and_others_left_open() -> None:
    assert "auto / fp8_e4m3" in lines("", "--kv-cache-dtype fp8_e4m3").one(role_mismatch.judge).summary
    assert lines("--disaggregation-transfer-backend mooncake", "").found(role_mismatch.judge) == []
    assert lines("--kv-cache-dtype bf16", "--kv-cache-dtype bfloat16").found(role_mismatch.judge) == []
    open_ = lines("--page-size 64", "")
    assert open_.found(role_mismatch.judge) == []
    assert "leaves it to its release's default" in open_.unchecked(role_mismatch.judge)[0].why


def test_one_model_at_two_places_and_two_models() -> None:
    hub = "/root/.cache/huggingface/hub/models--org--Model-A/snapshots/0123abc"
    assert lines("", "", "/nvme/Model-A", "/data1/models/model-a/").found(role_mismatch.judge) == []
    assert lines("", "", hub, "org/Model-A").found(role_mismatch.judge) == []
    assert "Model-A / /m/Model-B" in lines("", "", "/m/Model-A", "/m/Model-B").one(role_mismatch.judge).summary


def test_the_dtype_matters_where_kv_takes_it_over() -> None:
    assert len(lines("--dtype float16", "--dtype bfloat16").found(role_mismatch.judge)) == 1
    both = "--kv-cache-dtype fp8_e4m3 --dtype "
    assert lines(both + "float16", both + "bfloat16").found(role_mismatch.judge) == []


def test_what_the_engines_resolved_counts_before_their_command_lines() -> None:
    """mooncake_tcp on the command line is mooncake in /server_info (seen on 0.5.23)."""
    scene = lines("--disaggregation-transfer-backend mooncake_tcp", "--disaggregation-transfer-backend mooncake")
    for name in (P, D):
        info = ServerInfo("0.5.23", args={"disaggregation_transfer_backend": "mooncake", "page_size": 1})
        scene.add(1, name, Fact.SERVER_INFO, info)
    assert scene.found(role_mismatch.judge) == []
    resolved = lines("", "")
    resolved.add(1, P, Fact.SERVER_INFO, ServerInfo("0.5.23", args={"page_size": 64}))
    resolved.add(1, D, Fact.SERVER_INFO, ServerInfo("0.5.23", args={"page_size": 1}))
    assert "page-size 64 / 1" in resolved.one(role_mismatch.judge).summary


def test_scripts_that_differ_while_the_processes_agree() -> None:
    scene = lines("--page-size 64", "--page-size 64")
    script(scene, text(page=32), subject=D)
    script(scene, text(page=64), subject=P)
    finding = scene.one(role_mismatch.judge)
    assert "after a restart" in finding.summary
    assert finding.against


def test_one_finding_for_a_role_that_differs_as_a_whole_and_none_across_models() -> None:
    rows = [Instance(P, Role.PREFILL), *(Instance(f"decode-{i}", Role.DECODE) for i in range(3))]
    scene = HostScene(cluster=Cluster("c", tuple(rows)))
    for i, instance in enumerate(rows):
        line = f"python -m sglang.launch_server --model-path /m/a --page-size {64 if i else 32}"
        scene.raw(0, instance.name, Fact.CMDLINE, line)
    assert scene.one(role_mismatch.judge).subject == f"{P}->decode-0"
    two = [*(Instance(f"p{i}", Role.PREFILL) for i in range(2)), *(Instance(f"d{i}", Role.DECODE) for i in range(2))]
    models = HostScene(cluster=Cluster("c", tuple(two)))
    for instance in two:
        path, page = ("/m/a", 64) if instance.name.endswith("0") else ("/m/b", 32)
        models.raw(0, instance.name, Fact.CMDLINE, f"sglang serve {path} --page-size {page}")
    assert models.found(role_mismatch.judge) == []


def test_vllm_pairs() -> None:
    scene = HostScene()
    for name, size, kind in ((P, 16, "NixlConnector"), (D, 128, "NixlConnector")):
        config = f'{{"kv_connector":"{kind}","kv_role":"kv_{name}"}}'
        scene.raw(0, name, Fact.CMDLINE, f"vllm\0serve\0m/a\0--block-size\0{size}\0--kv-transfer-config\0{config}\0")
    finding = scene.one(role_mismatch.judge)
    assert "block-size 16 / 128" in finding.summary
    assert "kv-transfer-config" not in finding.summary


def test_nothing_known_is_nothing_said() -> None:
    scene = HostScene("0.5.19")
    assert scene.verdicts(role_mismatch.judge) == []
    assert "not" not in seen_in(lines("--page-size 32", "--page-size 64").one(role_mismatch.judge))
