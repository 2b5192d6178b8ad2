"""safe() lets nothing through that a terminal would act on; mask() lets no secret through in any usual dress."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.render.escape import mask, mask_value, safe

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain words, 3.5", "plain words, 3.5"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b2J", "\\x9b2J"),  # C1: the one-byte form of ESC [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\nb\r\n", "a\\nb\\r\\n"),
        ("a\tb", "a b"),
        ("del\x7f nul\x00", "del\\x7f nul\\x00"),
        ("abc\u202edef\u2066ghi\u2069", "abc\\u202edef\\u2066ghi\\u2069"),
        ("zero\u200bwidth\u200d\ufeff", "zero\\u200bwidth\\u200d\\ufeff"),
        ("line\u2028para\u2029", "line\\u2028para\\u2029"),
        ("bad\udc80byte", "bad\\udc80byte"),
        ("private\ue000\U000f0000", "private\\ue000\\U000f0000"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("filler\u3164\u2800", "filler\\u3164\\u2800"),
        ("noncharacter\uffff", "noncharacter\\uffff"),
        ("请求在队列中 推論 요청", "请求在队列中 推論 요청"),
        ("wide\u3000space and\u00a0nbsp", "wide\u3000space and\u00a0nbsp"),
        ("é ß → ≥", "é ß → ≥"),
    ],
)
def test_what_a_terminal_would_act_on_is_shown_instead(raw: str, shown: str) -> None:
    assert safe(raw) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("prefill-0→decode-0 … 3 ≥ 2", "prefill-0->decode-0 ... 3 >= 2"),
        ("é", "\\xe9"),
        ("请", "\\u8bf7"),
        ("😀", "\\U0001f600"),
        ("\x1b[0m", "\\x1b[0m"),
    ],
)
def test_ascii_only(raw: str, shown: str) -> None:
    assert safe(raw, ascii_only=True) == shown


@given(ANY_TEXT)
def test_no_control_or_format_character_ever_comes_out(text: str) -> None:
    shown = safe(text)
    for char in shown:
        assert unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}, hex(ord(char))
    shown.encode("utf-8")


@given(ANY_TEXT)
def test_ascii_only_is_printable_ascii(text: str) -> None:
    shown = safe(text, ascii_only=True)
    assert shown.isascii()
    assert shown.isprintable()


@given(ANY_TEXT)
def test_safe_twice_is_safe_once(text: str) -> None:
    assert safe(safe(text)) == safe(text)


HIDDEN = [
    ("Authorization: Bearer {}", "abc.def-ghi_123"),
    ("proxy-authorization: Basic {}", "dXNlcjpwYXNzd29yZA=="),
    ('{{"api_key": "{}", "port": 30000}}', "correct horse battery"),
    ("{{'admin_api_key': '{}', 'x': 1}}", "hunter2"),
    ('log: {{\\"api_key\\": \\"{}\\"}}', "hunter2"),
    ("api_key='{}', tp_size=4", "hunter2"),
    ("sglang serve --api-key {} --port 30000", "hunter2"),
    ("--admin-api-key={}", "hunter2"),
    ("['--api-key', '{}', '--port', '30000']", "hunter2"),
    ("--hf-token\x00{}\x00--port", "abcdef"),
    ("HF_TOKEN={}", "hf_abcdefghijklmnop"),
    ("token {} refused", "hf_abcdefghijklmnop"),
    ("AWS_SECRET_ACCESS_KEY={}", "wJalrXUtnFEMI/K7MDENG"),
    ("using {} now", "AKIAIOSFODNN7EXAMPLE"),
    ("openai {} x", "sk-proj-1234567890abcdef"),
    ("clone with {}", "ghp_0123456789abcdefghij0123"),
    ("bearer={}", "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJ"),
    ("GET http://user:{}@10.0.0.1:30000/metrics", "p%40ss:word"),
    ("GET http://h/x?a=1&api_key={}&b=2", "zzz"),
    ("PASSWORD={}", "12345"),
    ("db password: {}", "letmein"),
    ("client_secret = {}", "s3cr3t"),
    ("x-api-key: {}", "0123abcd"),
]


@pytest.mark.parametrize(("around", "secret"), HIDDEN)
def test_a_secret_never_shows(around: str, secret: str) -> None:
    shown = mask(around.format(secret))
    assert secret not in shown
    before, after = around.replace("{{", "{").replace("}}", "}").split("{}")
    assert shown.startswith(before)
    assert shown.endswith(after)
    assert "***" in shown


@pytest.mark.parametrize(("around", "secret"), HIDDEN)
def test_masking_twice_changes_nothing(around: str, secret: str) -> None:
    once = mask(around.format(secret))
    assert mask(once) == once


def test_a_private_key_is_masked_whole_and_what_follows_stays() -> None:
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAA=\n-----END RSA PRIVATE KEY-----"
    shown = mask(f"key {pem} then this")
    assert "MIIEow" not in shown
    assert shown.endswith(" then this")
    assert mask(shown) == shown


def test_a_private_key_cut_short_is_masked_to_the_end() -> None:
    assert "MIIEow" not in mask("-----BEGIN PRIVATE KEY-----\nMIIEow\nAAA")


def test_equal_secrets_are_recognisably_equal() -> None:
    one, two, other = mask("api_key=alpha7"), mask("--api-key alpha7"), mask("api_key=bravo8")
    assert one.removeprefix("api_key=") == two.removeprefix("--api-key ")
    assert one != other


@pytest.mark.parametrize(
    "text",
    [
        "Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.01, token/s: 9.3",
        "Decode batch, #running-req: 3, #token: 900, #full token: 12, pre-allocated usage: 0.01",
        "--max-total-tokens 4096 --num-reserved-decode-tokens 512",
        "api_key=None, admin_api_key=null",
        "--api-key $PD_KEY --port 30000",
        "--api-key --port 30000",
        'api_key = { env = "PD_KEY" }',
        "api_key_file=/etc/pd/key",
        "eos_token: </s>",
        "http://127.0.0.1:30000/v1/loads?include=core,disagg,queues",
        "[fe80::1]:30000 task-skeleton risk-free-1234567890",
        "Request 123 timed out after 300.1s in KVPoll.WaitingForInput",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def test_a_field_named_like_a_secret_is_masked_whole() -> None:
    assert "open sesame" not in mask_value("admin_api_key", "open sesame")
    assert mask_value("admin_api_key", "open sesame") == mask_value("password", "open sesame")
    assert mask_value("model", "open sesame") == "open sesame"
    assert mask_value("new_token", "512") == "512"


@given(ANY_TEXT)
def test_mask_never_fails_and_is_stable(text: str) -> None:
    assert mask(mask(text)) == mask(text)


def test_a_long_line_is_masked_in_linear_time() -> None:
    """A line of half a megabyte built of near-matches: a quadratic pattern would not come back."""
    mask("token" * 50_000 + "http://" * 20_000 + "eyJ" * 30_000 + "-----BEGIN " * 5_000)
