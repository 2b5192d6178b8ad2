"""What the types of pdctl.toml cannot say: names that are free, URLs that can be asked, ports that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdctl.inventory.addresses import instance_fault, url_fault
from pdctl.inventory.faults import Fault, closest, listed
from pdctl.inventory.lines import Place
from pdctl.inventory.schema import HOST, INSTANCE, FileRow, HostRow, InstanceRow
from pdctl.model.cluster import ENGINE_ROLES

_NAME = re.compile(r"(?![.-])(?!host:)[^\s/\\\x00-\x1f\x7f>]{1,100}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SSH = re.compile(r"(?:[^\s@:/-][^\s@:/]*@)?(?:\[[0-9A-Fa-f:.]+\]|[^\s@:/\[-][^\s@:/]*)(?::(?P<port>\d{1,5}))?\Z")
NAME_RULE = "A name has no spaces, slashes or >, and does not start with a dot, a dash or host:"


def faults(file: FileRow) -> Iterator[Fault]:
    """Every fault of a file whose types are right, in the order of the file."""
    hosts = [row.name for row in file.host]
    for index, host in enumerate(file.host):
        yield from _host_faults(host, index, hosts[:index])
    for index, row in enumerate(file.instance):
        yield from _instance_faults(row, index, [earlier.name for earlier in file.instance[:index]], hosts)
        yield from _same_url(row, index, file.instance[:index])
    if not file.instance:
        yield Fault(Place(), "it names no instance", "Add at least one [[instance]] with a name, a role and a url.")


def _host_faults(row: HostRow, index: int, earlier: list[str]) -> Iterator[Fault]:
    who = f"host {row.name}"
    yield from _name_faults(row.name, Place("host", index, "name"), earlier, "host")
    if row.ssh is not None and (wrong := ssh_fault(row.ssh)):
        yield Fault(Place("host", index, "ssh"), wrong, HOST["ssh"], who)


def ssh_fault(spec: str) -> str:
    """What is wrong with how a host is named for SSH, "" where nothing is."""
    match = _SSH.match(spec)
    return "" if match and _is_port(match["port"]) else f'"{spec}" is not [user@]name[:port]'


def _instance_faults(row: InstanceRow, index: int, earlier: list[str], hosts: list[str]) -> Iterator[Fault]:
    who = f"instance {row.name}"
    yield from _name_faults(row.name, Place("instance", index, "name"), earlier, "instance")
    for key, url, fault in (("url", row.url, instance_fault), ("metrics", row.metrics, url_fault)):
        if url is not None and (wrong := fault(url)):
            yield Fault(Place("instance", index, key), wrong, f"For example: {INSTANCE[key]}", who)
    if row.host is not None and row.host not in hosts:
        near = closest(row.host, hosts)
        known = f"Hosts named in the file: {listed(hosts)}." if hosts else f'Add [[host]] with name = "{row.host}".'
        yield Fault(Place("instance", index, "host"), f'no [[host]] is named "{row.host}"', near + known, who)
    if row.bootstrap_port is not None and not 1 <= row.bootstrap_port <= 65535:
        wrong = f"{row.bootstrap_port} is no port; ports are 1 to 65535"
        yield Fault(Place("instance", index, "bootstrap_port"), wrong, INSTANCE["bootstrap_port"], who)
    yield from _node_faults(row, index, hosts, who)
    yield from _key_faults(row, index, who)
    if not any((row.url, row.metrics, row.host, row.unit, row.script, row.log)):
        right = f"For example: {INSTANCE['url']}"
        yield Fault(Place("instance", index), "nothing says where it is: no url, host, unit, script or log", right, who)


def _node_faults(row: InstanceRow, index: int, hosts: list[str], who: str) -> Iterator[Fault]:
    place = Place("instance", index, "nodes")
    for number, name in enumerate(row.nodes):
        if name not in hosts:
            yield Fault(place, f'no [[host]] is named "{name}"', closest(name, hosts) + INSTANCE["nodes"], who)
        elif name == row.host or name in row.nodes[:number]:
            yield Fault(place, f'"{name}" is named twice', "The further hosts of the engine, each once.", who)
    if row.nodes and not (row.role in ENGINE_ROLES and row.host and row.unit):
        yield Fault(place, "only an engine with a host and a unit has nodes", "The unit is the same on each host.", who)


def _key_faults(row: InstanceRow, index: int, who: str) -> Iterator[Fault]:
    if row.api_key_env is not None and row.api_key_file is not None:
        place = Place("instance", index, "api_key_file")
        yield Fault(place, "api_key_env is given as well", "Give one of the two.", who)
    if row.api_key_env is not None and not _VARIABLE.match(row.api_key_env):
        wrong = "this is not the name of an environment variable"  # its value may be the key itself: not repeated
        right = f"The variable's name, not the key: {INSTANCE['api_key_env']}"
        yield Fault(Place("instance", index, "api_key_env"), wrong, right, who)


def _name_faults(name: str, place: Place, earlier: list[str], kind: str) -> Iterator[Fault]:
    if not _NAME.match(name) or "->" in name:
        yield Fault(
            place, f"{name!r} cannot be a name", f"{NAME_RULE}: {TABLE_EXAMPLE[kind]}", f"{kind} {place.index + 1}"
        )
    elif name in earlier:
        yield Fault(place, f'another {kind} is already named "{name}"', f"Each {kind} needs a name of its own.")


TABLE_EXAMPLE = {"host": HOST["name"], "instance": INSTANCE["name"]}


def _same_url(row: InstanceRow, index: int, earlier: tuple[InstanceRow, ...]) -> Iterator[Fault]:
    """Two instances of one host at one URL are one instance twice: every count of it would be doubled."""
    for other in earlier:
        if row.url and other.url and (_bare(row.url), row.host) == (_bare(other.url), other.host):
            wrong = f'"{row.url}" is already the url of {other.name}'
            yield Fault(
                Place("instance", index, "url"), wrong, "Each instance has a url of its own.", f"instance {row.name}"
            )
            return


def _bare(url: str) -> str:
    return url.rstrip("/").lower()


def _is_port(text: str | None) -> bool:
    return text is None or 1 <= int(text) <= 65535
