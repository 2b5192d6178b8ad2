"""``/server_info`` (``/get_server_info`` before 0.5.6) -> ServerInfo.

Every resolved server argument stands at the top level, beside ``version`` and ``internal_states`` (one a data-parallel
rank). Older releases print API keys in clear: secret values are masked here, before anything else sees them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pdctl.facts.base import Unreadable
from pdctl.facts.json_body import object_of, read_json, text_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.engine import ServerInfo
from pdctl.model.secrets import mask_value


def read(answer: Answer, instance: Instance | None) -> ServerInfo:
    """What the engine was started with. Raises Unreadable: EMPTY, TRUNCATED, NOT_JSON (also JSON of something else:
    a router answers the same path with words about itself)."""
    body = object_of(read_json(answer))
    states = body.get("internal_states")
    if not body or "router_manager" in body:
        raise Unreadable(Why.NOT_JSON, "JSON that does not describe an engine")
    args = {key: _masked(key, value) for key, value in body.items() if _is_scalar(value)}
    rows = [object_of(row) for row in states] if isinstance(states, list) else []
    return ServerInfo(
        version=text_of(body.get("version")),
        mode=text_of(body.get("disaggregation_mode")),
        args=args,
        env=_env(body, rows),
        internal=tuple(object_of(_masked("", row)) for row in rows),
    )


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _env(body: Mapping[str, object], rows: list[dict[str, object]]) -> dict[str, str]:
    """Environment variables, where the release lists them (0.5.23 does in its internal states)."""
    found: dict[str, str] = {}
    for holder in (body, *rows):
        for name in ("env", "env_vars", "environ", "environment"):
            found |= {str(k): str(_masked(str(k), v)) for k, v in object_of(holder.get(name)).items() if _is_scalar(v)}
    return found


def _masked(name: str, value: object) -> object:
    """The value with every secret in it in its masked form."""
    if isinstance(value, dict):
        return {str(key): _masked(str(key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(name, item) for item in value]
    return mask_value(name, value) if isinstance(value, str) else value
