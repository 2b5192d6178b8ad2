"""Serve scripts in the shapes people post: what each would start, said by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.facts.script import script_of
from pdctl.model.host import ScriptFile

SCRIPTS = Path(__file__).parent / "data" / "scripts"
HERE = '$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)'


def read(name: str, **files: str) -> ScriptFile:
    return script_of(f"/opt/{name}", None, (SCRIPTS / name).read_text("utf-8"), None, files)


@pytest.mark.parametrize(
    ("name", "launcher", "flags"),
    [
        (
            "arrays.sh",
            "sglang",
            {
                "--model-path": "/raid/models/DeepSeek-R1",
                "--trust-remote-code": "",
                "--host": "0.0.0.0",
                "--port": "${PORT:-30000}",
                "--tp-size": "8",
                "--dp-size": "8",
                "--enable-dp-attention": "",
                "--mem-fraction-static": "0.8",
                "--page-size": "64",
                "--disaggregation-mode": "decode",
                "--disaggregation-transfer-backend": "mooncake",
                "--disaggregation-ib-device": "mlx5_0,mlx5_1,mlx5_2,mlx5_3",
                "--log-level": 'debug (if [[ "${DEBUG:-0}" == "1" ]])',
            },
        ),
        (
            "docker-run.sh",
            "sglang",
            {
                "--model-path": "/models/Qwen3-235B-A22B-FP8",
                "--served-model-name": "qwen3",
                "--disaggregation-mode": "prefill",
                "--disaggregation-bootstrap-port": "8998",
                "--disaggregation-ib-device": "mlx5_0",
                "--tp-size": "8",
                "--host": "0.0.0.0",
                "--port": "30000",
                "--chunked-prefill-size": "8192",
                "--kv-cache-dtype": "fp8_e4m3",
            },
        ),
        (
            "docker-bash-c.sh",
            "sglang",
            {"--model-path": "/models/m", "--disaggregation-mode": "decode", "--tp-size": "4", "--page-size": "1"},
        ),
        (
            "heredoc-ssh.sh",
            "sglang",
            {"--model-path": "/m", "--disaggregation-mode": "decode", "--port": "30100", "--tp-size": "2"},
        ),
        (
            "heredoc-file.sh",
            "sglang",
            {"--model-path": "/m", "--disaggregation-mode": "decode", "--port": "30001", "--page-size": "32"},
        ),
        (
            "numactl.sh",
            "sglang",
            {
                "--model-path": "/m",
                "--tp-size": "4",
                "--disaggregation-mode": "prefill",
                "--attention-backend": "fa3",
                "--schedule-conservativeness": "0.3",
            },
        ),
        (
            "conda.sh",
            "sglang",
            {
                "--model-path": "/models/m",
                "--trust-remote-code": "",
                "--page-size": "64",
                "--speculative-algorithm": "EAGLE",
                "--speculative-num-steps": "3",
                "--speculative-eagle-topk": "1",
                "--disaggregation-mode": "decode",
                "--max-running-requests": "256",
            },
        ),
        (
            "router.sh",
            "router",
            {
                "--pd-disaggregation": "",
                "--prefill": "http://10.0.0.1:30000 8998 | http://10.0.0.2:30000 8998",
                "--decode": "http://10.0.0.3:30000",
                "--policy": "cache_aware",
                "--host": "0.0.0.0",
                "--port": "8000",
                "--prometheus-port": "29000",
                "--request-timeout-secs": "1800",
            },
        ),
        (
            "vllm.sh",
            "vllm",
            {
                "--model": "Qwen/Qwen3-32B",
                "--port": "8100",
                "--tensor-parallel-size": "2",
                "--block-size": "128",
                "--kv-transfer-config": '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}',
            },
        ),
    ],
)
def test_flags(name: str, launcher: str, flags: dict[str, str]) -> None:
    script = read(name)
    assert script.launcher == launcher
    assert dict(script.flags) == flags


@pytest.mark.parametrize(
    ("name", "seen_by_the_engine"),
    [
        ("arrays.sh", {"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "600", "MC_TE_METRIC": "true"}),
        ("docker-run.sh", {"SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "300", "NCCL_SOCKET_IFNAME": "eth0"}),
        ("docker-bash-c.sh", {"MC_FORCE_MNNVL": "1"}),
        ("heredoc-ssh.sh", {"SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE": "5"}),
        ("heredoc-file.sh", {"MC_GID_INDEX": "3"}),
        ("numactl.sh", {"OMP_NUM_THREADS": "16", "SGLANG_ENABLE_JIT_DEEPGEMM": "1", "SGLANG_LOG_MS": "true"}),
        ("mpirun.sh", {"SGLANG_LOG_MS": "1"}),
        ("conda.sh", {"HF_HOME": "/mnt/hf"}),
        ("vllm.sh", {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600", "UCX_TLS": "all"}),
    ],
)
def test_variables_the_engine_sees(name: str, seen_by_the_engine: dict[str, str]) -> None:
    script = read(name)
    assert {key: script.variables[key] for key in seen_by_the_engine} == seen_by_the_engine
    assert script.exported >= set(seen_by_the_engine)


def test_what_a_container_or_another_machine_does_not_see() -> None:
    assert not {"IMAGE", "NAME", "memlock", "stack"} & read("docker-run.sh").exported
    assert not {"NODE", "PORT"} & read("heredoc-ssh.sh").exported


def test_a_sourced_file_is_followed_where_its_text_is_at_hand() -> None:
    nccl = (SCRIPTS / "nccl.env").read_text()
    script = script_of(
        "/opt/env-file.sh", None, (SCRIPTS / "env-file.sh").read_text(), None, {f"{HERE}/nccl.env": nccl}
    )
    assert script.flags["--model-path"] == "/models/glm-4.6" and script.flags["--tp-size"] == "8"
    assert script.variables["NCCL_IB_TIMEOUT"] == "22" and "NCCL_IB_TIMEOUT" in script.exported
    assert script.sources == (f"{HERE}/nccl.env", f"{HERE}/secrets.env")
    assert any("secrets.env, which was not read here" in note for note in script.unsure)
    assert script.flags["--page-size"] == "${PAGE_SIZE:-64}" and "--page-size" in script.doubtful


def test_what_is_made_when_it_runs_is_shown_and_not_guessed() -> None:
    script = read("srun-multinode.sh")
    assert script.flags["--dist-init-addr"].startswith("$(scontrol show hostnames")
    assert {"--dist-init-addr", "--node-rank"} <= script.doubtful
    assert script.flags["--cuda-graph-bs"] == "1 2 4 8 16"
    loop = read("loop-gpus.sh")
    assert {"--port", "--base-gpu-id", "CUDA_VISIBLE_DEVICES"} <= loop.doubtful
    assert loop.flags["--model-path"] == "/models/Qwen2.5-7B-Instruct"


def test_secrets_are_masked_and_equal_ones_look_equal() -> None:
    script = read("nohup-tee.sh")
    assert script.variables["SGLANG_API_KEY"] == script.flags["--api-key"]
    for shown in (script.text, *script.flags.values(), *script.variables.values(), *script.command):
        assert "sk-1234567890abcdefgh" not in shown
    assert "hf_abcdefghijklmnop1234" not in read("docker-run.sh").text


# --- scripts inside scripts ----------------------------------------------------------------------------------------


def of(text: str, **files: str) -> ScriptFile:
    return script_of("/opt/serve.sh", None, text, None, files)


LAUNCH = "python3 -m sglang.launch_server --model-path /m"


@pytest.mark.parametrize(
    "text",
    [
        f"bash <<EOF\n{LAUNCH} --page-size 8\nEOF\n",
        f"bash -s <<'EOF'\n{LAUNCH} --page-size 8\nEOF\n",
        f"sudo -u svc bash -e -s x <<-'EOF'\n\t{LAUNCH} \\\n\t  --page-size 8\n\tEOF\n",
        f"ssh gpu1 <<EOF\n{LAUNCH} --page-size 8\nEOF\n",
        f"docker exec -i sgl bash <<'EOF' && echo ok\n{LAUNCH} --page-size 8\nEOF\n",
        f"cat <<EOF | ssh gpu1 bash\n{LAUNCH} --page-size 8\nEOF\n",
        f"cat > /tmp/x.sh <<EOF\n{LAUNCH} --page-size 8\nEOF\nnohup bash /tmp/x.sh &\n",
        f"sudo tee /tmp/x.sh >/dev/null <<EOF\n{LAUNCH} --page-size 8\nEOF\nchmod +x /tmp/x.sh\nexec /tmp/x.sh\n",
        f"cat <<EOF > x.env\nARGS='--page-size 8'\nEOF\n. x.env\n{LAUNCH} $ARGS\n",
        f"bash -lc '{LAUNCH} --page-size 8'\n",
        f'ssh -p 22 -o BatchMode=yes ops@gpu1 "cd /srv && {LAUNCH} --page-size 8"\n',
        f"ssh gpu1 {LAUNCH} --page-size 8\n",
        f"P=8\nssh gpu1 \"bash -c '{LAUNCH} --page-size $P'\"\n",
        f'docker run img bash -c "{LAUNCH} --page-size 8"\n',
    ],
)
def test_a_script_handed_to_a_shell_is_followed(text: str) -> None:
    script = of(text)
    assert script.launcher == "sglang"
    assert script.flags["--model-path"] == "/m"
    assert script.flags["--page-size"] == "8"


def test_variables_of_the_outer_script_are_put_into_an_open_document_and_not_into_a_quoted_one() -> None:
    opened = of(f"P=8\nssh gpu1 bash <<EOF\n{LAUNCH} --page-size $P --port \\$Q\nEOF\n")
    assert opened.flags["--page-size"] == "8" and opened.flags["--port"] == "$Q"
    quoted = of(f"P=8\nssh gpu1 bash <<'EOF'\n{LAUNCH} --page-size $P\nEOF\n")
    assert quoted.flags["--page-size"] == "$P" and "--page-size" in quoted.doubtful


def test_a_shell_started_here_sees_exports_alone() -> None:
    script = of(f"export A=1\nB=2\nbash -c '{LAUNCH} --tp $A --dp $B'\n")
    assert script.flags["--tp-size"] == "1"
    assert script.flags["--dp-size"] == "$B", "B is not exported"
    assert script.variables["B"] == "2", "and yet it is a variable of the script"


def test_another_script_that_runs_is_named_and_followed_where_it_is_at_hand() -> None:
    text = "export PAGE=16\nexec ./launch.sh --page-size 32\n"
    assert of(text).sources == ("./launch.sh",)
    assert any("runs ./launch.sh, which was not read here" in note for note in of(text).unsure)
    script = of(text, **{"./launch.sh": f'{LAUNCH} --chunked-prefill-size $PAGE "$@"\n'})
    assert script.flags["--chunked-prefill-size"] == "16" and script.flags["--page-size"] == "32"


def test_a_document_that_nobody_runs_is_no_script() -> None:
    assert of(f"cat <<EOF > notes.txt\n{LAUNCH}\nEOF\necho done\n").launcher is None


def test_a_script_that_runs_itself_ends() -> None:
    assert of("bash me.sh\n", **{"me.sh": "bash me.sh; bash me.sh\n"}).launcher is None
