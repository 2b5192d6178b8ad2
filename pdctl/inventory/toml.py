"""pdctl.toml read into a Cluster, and a Cluster written back as one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

import msgspec

from pdctl.errors import InventoryError
from pdctl.inventory.faults import Fault, closest, error_of, listed
from pdctl.inventory.lines import Place
from pdctl.inventory.rules import faults
from pdctl.inventory.schema import PLAIN_SECRETS, READ_ELSEWHERE, SECRET_HINT, TABLES, TOP, Engine, FileRow, InstanceRow
from pdctl.inventory.write import render_cluster as render_cluster
from pdctl.model.cluster import Cluster, Host, Instance, KeySource, Role

_PATH = re.compile(r" - at `\$\.?(?P<table>\w+)?(?:\[(?P<index>\d+)\])?(?:\.(?P<key>\w+))?(?:\[\d+\])*`$")
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "array": "a list of texts",
    "object": "a table",
    "bool": "true or false",
}


def read_cluster(text: str, source: str, *, recorded: bool = False) -> Cluster:
    """The cluster that the text of a pdctl.toml names. ``source`` is its path, for messages and ``Cluster.source``.

    Raises InventoryError that names file, line, key and what would be right. ``recorded`` reads the copy inside a
    capture: keys of other versions and masked secrets are passed over, since nobody can mend them there any more.
    """
    document = _document(text, source)
    for fault in _unknown_keys(document):
        if not recorded:
            raise error_of(fault, text, source)
    file = _file(_known(document), text, source)
    for fault in faults(file):
        if not recorded:
            raise error_of(fault, text, source)
    return _cluster(file, source)


def _document(text: str, source: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at ")
        line = re.search(r"line (\d+), column (\d+)", place)
        where = f"{source}:{line[1]}:{line[2]}" if line else source
        raise InventoryError(f"{where}: not TOML: {message.lower()}", _syntax_hint(text, line)) from None


def _syntax_hint(text: str, line: re.Match[str] | None) -> str:
    """The line that could not be read, unless it might hold a secret, and the usual reason."""
    written = text.splitlines()[int(line[1]) - 1].strip() if line and text else ""
    shown = "" if not written or re.search("key|token|password|secret", written, re.I) else f"There: {written[:70]}\n"
    return f'{shown}A key is written  name = "text in quotes",  a table  [[instance]].'


def _unknown_keys(document: Mapping[str, object]) -> Iterator[Fault]:
    for key, value in document.items():
        if key not in TOP and key not in READ_ELSEWHERE:
            is_table = isinstance(value, dict | list)
            yield _unknown_table(key) if is_table else _unknown(key, Place(None, 0, key), "the file", TOP)
    for table, known in TABLES.items():
        rows = document.get(table)
        for index, row in enumerate(rows if isinstance(rows, list) else ()):
            for key in row if isinstance(row, dict) else ():
                if key not in known:
                    yield _unknown(key, Place(table, index, key), _who(table, index, row), known)


def _unknown(key: str, place: Place, who: str, known: Mapping[str, str]) -> Fault:
    if key.lower() in PLAIN_SECRETS:
        return Fault(place, "pdctl keeps no secret", SECRET_HINT, who)
    if place.table is None and key in TABLES["instance"]:
        return Fault(place, "belongs into an [[instance]]", "Write it below a line [[instance]].", who)
    return Fault(place, "there is no such key", f"{closest(key, known)}Keys here: {listed(known)}.", who)


def _unknown_table(name: str) -> Fault:
    right = f"{closest(name, TABLES)}Tables here: {listed(f'[[{table}]]' for table in TABLES)}."
    return Fault(Place(name), f'there is no table "{name}"', right)


def _known(document: Mapping[str, object]) -> dict[str, object]:
    """The document without the keys that the inventory does not read."""
    out: dict[str, object] = {}
    for key in TOP.keys() & document.keys():
        value = document[key]
        known = TABLES.get(key, {})
        is_table = isinstance(value, list) and key in TABLES
        out[key] = [_pick(row, known) for row in value] if is_table else value  # type: ignore[attr-defined]
    return out


def _pick(row: object, known: Mapping[str, str]) -> object:
    return {key: value for key, value in row.items() if key in known} if isinstance(row, dict) else row


def _file(document: dict[str, object], text: str, source: str) -> FileRow:
    try:
        return msgspec.convert(document, FileRow)
    except msgspec.ValidationError as error:
        raise error_of(_type_fault(str(error), document), text, source) from None


def _type_fault(message: str, document: Mapping[str, object]) -> Fault:
    """msgspec's message made into a fault: it says what it expected, and the path to where."""
    at = _PATH.search(message)
    wrong = message[: at.start()] if at else message
    if at is None or at["table"] is None:
        return Fault(Place(), wrong, "")
    table, index = at["table"], int(at["index"] or 0)
    if table not in TABLES:
        return Fault(Place(None, 0, table), _in_words(wrong), f"For example: {TOP[table]}")
    if at["index"] is None:
        return Fault(
            Place(table), f"it is written once for each {table}", f"Write {TOP[table]}, with two brackets.", table
        )
    rows = document.get(table)
    row = rows[index] if isinstance(rows, list) else None
    return _row_fault(wrong, Place(table, index, at["key"]), _who(table, index, row), row)


def _row_fault(wrong: str, place: Place, who: str, row: object) -> Fault:
    known = TABLES[place.table or "instance"]
    if missing := re.search(r"missing required field `(\w+)`", wrong):
        return Fault(Place(place.table, place.index), f"{missing[1]} is missing", f"Add {known[missing[1]]}", who)
    choices = {"role": tuple(Role), "engine": tuple(Engine), "become": ("sudo",)}.get(place.key or "")
    value = row.get(place.key) if isinstance(row, dict) else None
    if choices and isinstance(value, str):
        right = f"{closest(value.lower(), choices)}It is one of: {listed(choices)}."
        return Fault(place, f'there is no {place.key} "{value}"', right, who)
    return Fault(place, _in_words(wrong), f"For example: {known[place.key]}" if place.key else "", who)


def _in_words(wrong: str) -> str:
    """``Expected `int | null`, got `str` `` in the words of a TOML file."""
    match = re.match(r"Expected `([^`]+)`, got `([^`]+)`", wrong)
    if not match:
        return wrong
    wanted = _KINDS.get(match[1].split(" | ")[0], match[1])
    return f"must be {wanted}, not {_KINDS.get(match[2], match[2])}"


def _who(table: str, index: int, row: object) -> str:
    """How people find the table: its name, or its number where it has none that can be shown."""
    name = row.get("name") if isinstance(row, dict) else None
    return f"{table} {name}" if isinstance(name, str) and name else f"{table} {index + 1}"


def _cluster(file: FileRow, source: str) -> Cluster:
    hosts = tuple(Host(row.name, row.ssh, row.become.value if row.become else None) for row in file.host)
    return Cluster(file.name, tuple(_instance(row) for row in file.instance), hosts, source)


def _instance(row: InstanceRow) -> Instance:
    return Instance(
        name=row.name,
        role=row.role,
        url=row.url.rstrip("/") if row.url else None,
        metrics_url=_metrics_url(row.metrics),
        host=row.host,
        unit=row.unit,
        script=row.script,
        log=row.log,
        bootstrap_port=row.bootstrap_port,
        engine=row.engine.value,
        api_key=KeySource(row.api_key_env, row.api_key_file) if row.api_key_env or row.api_key_file else None,
        ca_file=row.ca_file,
        watch=row.watch,
        restart_command=row.restart_command,
        nodes=row.nodes,
    )


def _metrics_url(url: str | None) -> str | None:
    """A metrics address without a path means its usual one."""
    if url is None:
        return None
    return url if "/" in url.partition("://")[2].rstrip("/") else f"{url.rstrip('/')}/metrics"
