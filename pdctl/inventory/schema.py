"""What may stand in pdctl.toml: its tables, their keys, and an example of each for the messages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from pdctl.model.cluster import Role


class Engine(StrEnum):
    """What serves an engine instance."""

    SGLANG = "sglang"
    VLLM = "vllm"


class Become(StrEnum):
    """How commands that need it get root on a host."""

    SUDO = "sudo"


class HostRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ``[[host]]`` table."""

    name: str
    ssh: str | None = None
    become: Become | None = None


class InstanceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An ``[[instance]]`` table."""

    name: str
    role: Role
    url: str | None = None
    metrics: str | None = None
    host: str | None = None
    unit: str | None = None
    script: str | None = None
    log: str | None = None
    bootstrap_port: int | None = None
    engine: Engine = Engine.SGLANG
    api_key_env: str | None = None
    api_key_file: str | None = None
    ca_file: str | None = None
    watch: tuple[str, ...] = ()
    restart_command: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class FileRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    name: str = "cluster"
    host: tuple[HostRow, ...] = ()
    instance: tuple[InstanceRow, ...] = ()


# Top-level keys and tables, and those of each table; every key with what would be right, as it would be written.
TOP: Mapping[str, str] = {"name": 'name = "prod-a"', "host": "[[host]]", "instance": "[[instance]]"}
HOST: Mapping[str, str] = {
    "name": 'name = "gpu-01"',
    "ssh": 'ssh = "ops@gpu-01.example:22"',
    "become": 'become = "sudo"',
}
INSTANCE: Mapping[str, str] = {
    "name": 'name = "prefill-0"',
    "role": 'role = "prefill"',
    "url": 'url = "http://10.0.0.1:30000"',
    "metrics": 'metrics = "http://10.0.0.1:29000/metrics"',
    "host": 'host = "gpu-01"',
    "unit": 'unit = "sglang-prefill.service"',
    "script": 'script = "/opt/serve/prefill.sh"',
    "log": 'log = "/var/log/sglang/prefill.log"',
    "bootstrap_port": "bootstrap_port = 8998",
    "engine": 'engine = "sglang"',
    "api_key_env": 'api_key_env = "PREFILL_API_KEY"',
    "api_key_file": 'api_key_file = "/etc/pdctl/prefill.key"',
    "ca_file": 'ca_file = "/etc/pdctl/ca.pem"',
    "watch": 'watch = ["/opt/serve/common.env"]',
    "restart_command": 'restart_command = ["/opt/serve/restart.sh", "prefill"]',
    "nodes": 'nodes = ["gpu-02"]',
}
TABLES: Mapping[str, Mapping[str, str]] = {"host": HOST, "instance": INSTANCE}

# Tables and keys at the top that other parts of pdctl read for themselves; the inventory passes over them.
READ_ELSEWHERE: frozenset[str] = frozenset()

# Keys that would hold a secret in plain text. The value is never repeated in a message.
PLAIN_SECRETS = frozenset({"api_key", "apikey", "api-key", "admin_api_key", "token", "password", "bearer_token"})
SECRET_HINT = (
    'Never in plain text: name a variable, api_key_env = "PREFILL_API_KEY", '
    'or a file, api_key_file = "/etc/pdctl/prefill.key".'
)
