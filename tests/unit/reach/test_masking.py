"""A large body is masked as a small one is: the cheap search misses nothing that masking would find."""

from __future__ import annotations

import random

import pytest

from pdctl.model.secrets import mask_text
from pdctl.reach.masking import SMALL, masked

PLAIN = (
    "[2026-03-04 05:06:07 TP0] Prefill batch. #new-seq: 1, #new-token: 128, #cached-token: 0, token usage: 0.01\n",
    "[2026-03-04 05:06:07] Decode batch. #running-req: 3, #token: 812, gen throughput (token/s): 96.10, #queue: 0\n",
    '[2026-03-04 05:06:08] INFO:     127.0.0.1:43036 - "GET /metrics HTTP/1.1" 200 OK\n',
    "漢字 caf\udce9 \x1b[31mred\x1b[0m\r\n",
    "\n",
)
SECRETS = (
    "ServerArgs(model_path='/m', api_key='s3cr3t-value', port=1)\n",
    '{"admin_api_key": "s3cr3t-value", "x": 1}\n',
    "--api-key s3cr3t-value --port 1\n",
    "--api-key\n    s3cr3t-value\n",
    "API_KEY =\n\n   s3cr3t-value\n",
    "HF_TOKEN=s3cr3t-value\n",
    "access_token: s3cr3t-value\n",
    "token: 12x-s3cr3t-value\n",
    "Password: s3cr3t-value\n",
    "PASSPHRASE='s3cr3t value'\n",
    "credentials=s3cr3t-value\n",
    "client_secret=s3cr3t-value\n",
    "MYSQL_PWD=s3cr3t-value\n",
    "curl -u ops:s3cr3t-value https://h\n",
    "curl --user ops:s3cr3t-value https://h\n",
    "authorization: Bearer s3cr3t-value-0123456789\n",
    "curl -H 'X: Basic czNjcjN0LXZhbHVl'\n",
    "http://ops:s3cr3t-value@10.0.0.1/\n",
    "using sk-s3cr3tvalue0123456789abcdef\n",
    "using hf_s3cr3tvalue0123456789\n",
    "using ghp_s3cr3tvalue0123456789\n",
    "using github_pat_s3cr3tvalue0123456789\n",
    "using glpat-s3cr3tvalue0123456789\n",
    "using xoxb-s3cr3tvalue0123456789\n",
    "using AKIAS3CR3TVALUE01234\n",
    "using ASIAS3CR3TVALUE01234\n",
    "using nvapi-s3cr3tvalue0123456789\n",
    "using AIzas3cr3tvalue0123456789abcdefghijklmnop\n",
    "using eyJs3cr3tvalue.eyJs3cr3tvalue.s3cr3t\n",
    "-----BEGIN RSA PRIVATE KEY-----\ns3cr3tvalue\ns3cr3tvalue\n-----END RSA PRIVATE KEY-----\n",
)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("secret", SECRETS)
def test_each_kind_of_secret_is_found_in_a_large_body(secret: str) -> None:
    assert mask_text(secret) != secret
    body = "".join(PLAIN) * 200 + secret + "".join(PLAIN) * 200
    assert len(body) > SMALL
    assert masked(encoded(body)) == encoded(mask_text(body))
    assert b"s3cr3t" not in masked(encoded(body)).lower()


@pytest.mark.parametrize("seed", range(30))
def test_large_bodies_are_masked_just_as_small_ones(seed: int) -> None:
    chance = random.Random(seed)
    lines = [chance.choice(SECRETS[:-1] if chance.random() < 0.05 else PLAIN) for _ in range(400)]
    body = "".join(lines)
    assert len(body) > SMALL
    assert masked(encoded(body)) == encoded(mask_text(body))


def test_bytes_of_any_kind_stay_as_they_were() -> None:
    chance = random.Random(1)
    body = chance.randbytes(100_000).replace(b"@", b"")
    assert masked(body) == encoded(mask_text(body.decode("utf-8", "surrogateescape")))
    plain = encoded("".join(PLAIN) * 500)
    assert masked(plain) == plain
