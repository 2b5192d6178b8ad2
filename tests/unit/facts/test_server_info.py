"""Server info: recorded answers, and that no secret comes through."""

from __future__ import annotations

import json

import pytest
from http_answers import PREFILL, answer, recorded

from pdctl.facts.base import Unreadable
from pdctl.facts.server_info import read
from pdctl.model.answer import Fact, Why
from pdctl.model.engine import ServerInfo


def of(body: bytes | object) -> ServerInfo:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read(answer(Fact.SERVER_INFO, raw), PREFILL)


@pytest.mark.parametrize(
    ("name", "release", "port"),
    [("0.5.6", (0, 5, 6, 0), 32100), ("0.5.15", (0, 5, 15, 0), 31600), ("0.5.23", (0, 5, 23, 0), 30100)],
)
def test_recorded(name: str, release: tuple[int, ...], port: int) -> None:
    info = of(recorded(f"server-info-{name}.json"))
    assert info.release == release
    assert info.mode == "prefill"
    assert info.args["port"] == port
    assert info.args["disaggregation_transfer_backend"] in ("mooncake", "mooncake_tcp")
    assert info.args["watchdog_timeout"] == 300
    assert info.args["api_key"] is None
    assert "internal_states" not in info.args
    assert len(info.internal) == 1
    assert info.internal[0]["last_gen_throughput"] == 0.0


def test_secrets_are_masked_wherever_they_stand() -> None:
    secrets = ["k-1234567890", "k-admin-1234", "pw-keyfile-99", "hf_abcdefgh12345678", "userpw77"]
    info = of(
        {
            "version": "0.5.4", "api_key": secrets[0], "admin_api_key": secrets[1], "ssl_keyfile_password": secrets[2],
            "ssl_keyfile": "/etc/key.pem", "max_total_tokens": 20000, "tokenizer_path": "/m", "served_model_name": "m",
            "otlp_traces_endpoint": f"http://u:{secrets[4]}@collector:4317",
            "internal_states": [
                {"api_key": secrets[0], "deep": {"list": [{"password": secrets[2]}]}, "env": {"HF_TOKEN": secrets[3]}}
            ],
        }
    )  # fmt: skip
    shown = repr(info)
    assert not [secret for secret in secrets if secret in shown]
    assert info.args["ssl_keyfile"] == "/etc/key.pem"
    assert info.args["max_total_tokens"] == 20000
    assert info.env.keys() == {"HF_TOKEN"}


def test_only_scalars_are_arguments() -> None:
    info = of({"version": "0.5.19", "tp_size": 8, "list": [1], "map": {"a": 1}, "flag": False, "none": None})
    assert info.args == {"version": "0.5.19", "tp_size": 8, "flag": False, "none": None}


def test_no_version_is_no_release() -> None:
    info = of({"disaggregation_mode": "decode"})
    assert (info.version, info.release, info.mode) == (None, None, "decode")


def test_a_routers_own_words_are_no_engine() -> None:
    with pytest.raises(Unreadable) as caught:
        of({"router_manager": True, "routers_count": 1})
    assert caught.value.why is Why.NOT_JSON
