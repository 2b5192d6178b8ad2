"""Secrets are known by key and by shape, and masked so that equal ones stay equal."""

from __future__ import annotations

import pytest

from pdctl.model.secrets import is_masked, mask_argv, mask_text, mask_value

KEY = "sk-not-a-real-key-000"


@pytest.mark.parametrize(
    "text",
    [
        f"export SGLANG_API_KEY={KEY}",
        f"export SGLANG_API_KEY='{KEY}'",
        f"python -m sglang.launch_server --api-key {KEY} --port 1",
        f"--api-key={KEY}",
        f'--api-key "{KEY}"',
        f'curl -H "Authorization: Bearer {KEY}" http://h/',
        f'{{"api_key": "{KEY}"}}',
        f"${{API_KEY:-{KEY}}}",
        f"x={KEY}",
        f"http://user:{KEY}@192.0.2.1/",
        f"--control-plane-api-keys {KEY}",
        f"curl -u user:{KEY} https://h/",
        f"curl --proxy-user 'user:{KEY}' https://h/",
        f"['curl', '-u', 'user:{KEY}']",
        f"-u\0user:{KEY}\0",
        f"MYSQL_PWD={KEY}",
    ],
)
def test_a_secret_does_not_stay_in_text(text: str) -> None:
    masked = mask_text(text)
    assert KEY not in masked
    assert "***" in masked


@pytest.mark.parametrize(
    "text",
    [
        "--max-total-tokens 20000",
        "TOKENIZERS_PARALLELISM=false",
        "#new-token: 512, #cached-token: 0, token usage: 0.01",
        "--tokenizer-path /srv/models/x",
        "eos_token: </s>",
        '--api-key "$API_KEY"',
        "--api-key ${API_KEY}",
        'export TOKEN="$(cat /run/secret)"',
        "API_KEY_FILE=/run/secrets/key",
        "disk-usage task-queue desk-1234567890",
        "http://192.0.2.1:30000@0",
        '{"url": "http://192.0.2.1:30000@15", "worker_type": "prefill"}',
        "docker run -u 1000:1000 image",
        "python3 -u serve.py --host a:b",
        "PWD=/srv/models OLDPWD=/root",
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert mask_text(text) == text


def test_equal_secrets_are_recognisably_equal_and_masking_twice_changes_nothing() -> None:
    one, same, other = mask_value("API_KEY", KEY), mask_value("OTHER_TOKEN", KEY), mask_value("API_KEY", KEY + "1")
    assert one == same != other
    assert is_masked(one)
    assert not is_masked("***")
    assert mask_value("API_KEY", one) == one
    assert mask_text(f"API_KEY={one}") == f"API_KEY={one}"


def test_the_words_of_a_command_line_are_masked_one_by_one() -> None:
    argv = ("env", f"HF_TOKEN={KEY}", "python", "--api-key", KEY, f"--admin-api-key={KEY}", "--port", "30000")
    masked = mask_argv(argv)
    assert not any(KEY in word for word in masked)
    assert masked[1].startswith("HF_TOKEN=***")
    assert masked[3:5] == ("--api-key", masked[1].removeprefix("HF_TOKEN="))
    assert masked[5] == f"--admin-api-key={masked[4]}"
    assert masked[6:] == ("--port", "30000")


def test_a_private_key_goes_whole() -> None:
    text = "x\n-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----\ny"
    masked = mask_text(text)
    assert "MIIabc" not in masked
    assert masked.startswith("x\n[RSA PRIVATE KEY ***")
    assert masked.endswith("]\ny")
