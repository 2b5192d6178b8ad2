"""A Cluster written as the text of a pdctl.toml: valid, commented, in the file's own order of keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from pdctl.model.cluster import Cluster, Host, Instance

HEAD = """\
# The inventory of pdctl: who belongs to the cluster, and where each is reached.
# Found as ./pdctl.toml, as $PDCTL_CONFIG, or in the user's configuration folder (pdctl/pdctl.toml).
# API keys never stand here: api_key_env names a variable, api_key_file a file."""


def render_cluster(cluster: Cluster, notes: Mapping[str, Iterable[str]] | None = None) -> str:
    """The TOML that ``read_cluster`` reads back as the same cluster. ``notes`` are remarks for instances, by name,
    written as comments above them; those under "" go to the head. Secrets are never in it: the model holds none."""
    notes = notes or {}
    blocks = ["\n".join([HEAD, *_comments(notes.get("", ()))]), f"name = {_text(cluster.name)}"]
    blocks += ["\n".join(_host(host)) for host in cluster.hosts]
    blocks += ["\n".join(_instance(i, notes.get(i.name, ()))) for i in cluster.instances]
    return "\n\n".join(blocks) + "\n"


def _host(host: Host) -> Iterator[str]:
    yield "[[host]]"
    yield from _pairs({"name": host.name, "ssh": host.ssh, "become": host.become})


def _instance(instance: Instance, notes: Iterable[str]) -> Iterator[str]:
    yield "[[instance]]"
    yield from _comments(notes)
    key = instance.api_key
    yield from _pairs(
        {
            "name": instance.name,
            "role": instance.role.value,
            "url": instance.url,
            "metrics": instance.metrics_url,
            "host": instance.host,
            "unit": instance.unit,
            "script": instance.script,
            "log": instance.log,
            "bootstrap_port": instance.bootstrap_port,
            "engine": None if instance.engine == "sglang" else instance.engine,
            "api_key_env": key.env if key else None,
            "api_key_file": key.file if key else None,
            "ca_file": instance.ca_file,
            "watch": list(instance.watch) or None,
            "restart_command": list(instance.restart_command) or None,
            "nodes": list(instance.nodes) or None,
        }
    )


def _pairs(values: Mapping[str, object]) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, list):
            yield f"{key} = [{', '.join(_text(word) for word in value)}]"
        elif value is not None:
            yield f"{key} = {value if isinstance(value, int) else _text(str(value))}"


def _text(text: str) -> str:
    """A TOML basic string. JSON's escapes are TOML's, but TOML also wants DEL escaped and has no lone surrogates."""
    quoted = json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)
    return "".join(f"\\u{ord(c):04x}" if "\x7f" <= c <= "\x9f" else c for c in quoted)


def _comments(notes: Iterable[str]) -> Iterator[str]:
    """Comment lines of the notes, wrapped between words; a control character in one would make the file invalid."""
    from textwrap import wrap

    for note in notes:
        for line in note.splitlines():
            shown = "".join(c if c.isprintable() else "?" for c in line)
            yield from (f"# {part}" for part in wrap(shown, 98, break_long_words=False, break_on_hyphens=False))
