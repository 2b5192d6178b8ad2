"""Who may import whom: the walls of the house, held by reading every import in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import pdctl
from pdctl.cli import COMMANDS

ROOT = Path(pdctl.__file__).parent

# Rooms and single modules, each with the rooms it may import besides itself. `errors`, `exits` and the version are free
# to all: tables that import nothing that runs. What is missing here fails the test: a new room says where it stands.
MAY: dict[str, frozenset[str]] = {
    "model": frozenset(),
    "inventory": frozenset({"model"}),
    "facts": frozenset({"model"}),
    "checks": frozenset({"model"}),
    "plans": frozenset({"model"}),
    "reach": frozenset({"model"}),
    "render": frozenset({"model"}),
}
JOINTS = frozenset({"model", "inventory", "facts", "checks", "plans", "reach"})
MAY |= {
    "carry": JOINTS,
    "recent": JOINTS,
    "replay": JOINTS | {"recent"},
    "gather": JOINTS | {"carry"},
    "sample": JOINTS | {"carry", "gather", "recent", "replay"},
    "logbook": JOINTS,
    "keep": frozenset({"model", "reach"}),
    # a look at engines may take the hosts along (looks/side.py), which are looked at in step with it
    "watch": JOINTS | {"gather", "keep", "sample", "looks"},
    "looks": JOINTS | {"carry", "gather", "keep", "replay"},
    "probing": JOINTS | {"gather", "keep", "sample", "watch"},
    "checkup": JOINTS | {"gather", "sample", "watch", "looks", "probing"},
    "execute": JOINTS | {"carry", "gather", "sample", "recent", "replay", "watch", "looks"},
    "runbook": JOINTS | {"render"},
    "demo": JOINTS | {"carry", "gather"},
    "exits": frozenset({"model"}),
    "outlet": frozenset({"render", "model"}),
}
# A capture holds the inventory it was taken with: reading and writing the one reads and writes the other.
CAPTURES = frozenset({("reach/capture.py", "inventory"), ("reach/capture_write.py", "inventory")})
BELOW = frozenset(MAY)
MAY |= {"commands": BELOW, "lazy": frozenset(), "cli": BELOW | {"lazy"}, "__main__": frozenset({"cli"})}
FREE = frozenset({"errors", "exits", "__version__", "__init__", "__file__"})

PURE = ("model", "inventory", "facts", "checks", "plans")
# What a pure room may not even import: the world, the clock, the terminal.
_WORLD = """
typer rich httpx httpcore paramiko psutil subprocess socket ssl select selectors asyncio threading multiprocessing
time os sys pathlib shutil tempfile io glob urllib.request http signal random secrets logging
"""
WORLD = frozenset(_WORLD.split())
BY_NAME = frozenset({"pdctl", "urllib", "pathlib", "io"})  # of these, what is imported matters, not only from where
# Texts that look like the world: paths that are only read as words, streams that are already in memory.
HARMLESS = frozenset({"pathlib.PurePosixPath", "pathlib.PurePath", "io.StringIO", "io.BytesIO"})
# Except for these, each for a reason that does not touch the world.
ALLOWED_WORLD: dict[tuple[str, str], str] = {
    ("model/secrets.py", "os"): "urandom: the key of one run's masked forms, which nothing is judged by",
    ("facts/proc_net.py", "socket"): "inet_ntop: an address as text",
}
ONLY_IN = {"typer": {"commands", "lazy", "cli"}, "rich": {"render"}, "paramiko": {"reach"}, "psutil": {"reach"}}
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})
IMPURE_METHODS = frozenset({"now", "today", "utcnow"})  # of datetime and date


@dataclass(frozen=True)
class Import:
    """One import statement's module; ``lazy`` when it stands inside a function, ``typing`` under TYPE_CHECKING."""

    file: Path
    line: int
    module: str
    lazy: bool
    typing: bool

    @property
    def room(self) -> str:
        """The room of the importing file."""
        return room_of(self.file)

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT.parent)}:{self.line} imports {self.module}"


def room_of(file: Path) -> str:
    first = file.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def sources() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py"))


def imports(file: Path) -> Iterator[Import]:
    yield from _walk(ast.parse(file.read_text("utf-8")), file, lazy=False, typing=False)


def _walk(node: ast.AST, file: Path, *, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(file, child.lineno, alias.name, lazy, typing) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{file}:{child.lineno}: imports are absolute here"
            base = child.module or ""
            names = [f"{base}.{alias.name}" for alias in child.names] if base in BY_NAME else [base]
            yield from (Import(file, child.lineno, name, lazy, typing) for name in names)
        else:
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            is_typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _walk(child, file, lazy=lazy or is_function, typing=typing or is_typing)


ALL = [found for file in sources() for found in imports(file)]


def test_the_walk_sees_imports_of_every_kind(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    text = "import a.b\nif TYPE_CHECKING:\n    from pdctl import c\ndef f():\n    from pdctl.d import e\n"
    file.write_text(text)
    found = [(i.module, i.lazy, i.typing) for i in imports(file)]
    assert found == [("a.b", False, False), ("pdctl.c", False, True), ("pdctl.d", True, False)]


def test_every_room_has_its_place() -> None:
    """A new room or module at the top says in MAY what it stands on."""
    assert {room_of(file) for file in sources()} - {"errors", "__init__"} <= set(MAY)


def test_every_room_imports_only_what_it_may() -> None:
    wrong = []
    for found in ALL:
        parts = found.module.split(".")
        if parts[0] != "pdctl":
            continue
        other = parts[1] if len(parts) > 1 else "__init__"
        allowed = FREE | MAY.get(found.room, frozenset()) | {found.room}
        if other not in allowed and (str(found.file.relative_to(ROOT)), other) not in CAPTURES:
            wrong.append(str(found))
    assert wrong == []


@pytest.mark.parametrize("file", [f for f in sources() if room_of(f) in ("errors", "__init__")], ids=lambda f: f.name)
def test_what_everybody_imports_imports_nothing(file: Path) -> None:
    assert [i.module for i in imports(file) if i.module != "__future__"] == []


def test_commands_never_import_one_another() -> None:
    """What several share stands in modules of that room which are no command themselves."""
    commands = {where.partition(":")[0] for where, _ in COMMANDS.values()}
    assert [str(i) for i in ALL if i.room == "commands" and i.module in commands] == []


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_has_one_home(library: str) -> None:
    homes = {i.room for i in ALL if i.module.split(".")[0] == library and not i.typing}
    assert homes <= ONLY_IN[library]


def test_http_clients_live_in_reach_alone() -> None:
    clients = ("httpx", "httpcore", "urllib.request", "http.client", "requests")
    assert {i.room for i in ALL if i.module.startswith(clients) and not i.typing} <= {"reach", "demo"}


@pytest.mark.parametrize("room", PURE)
def test_a_pure_room_does_not_reach_for_the_world(room: str) -> None:
    wrong = [
        str(i)
        for i in ALL
        if i.room == room
        and not i.typing
        and (i.module in WORLD or i.module.split(".")[0] in WORLD)
        and i.module not in HARMLESS
        and (str(i.file.relative_to(ROOT)), i.module) not in ALLOWED_WORLD
    ]
    assert wrong == []


@pytest.mark.parametrize("room", PURE)
def test_a_pure_room_neither_opens_prints_nor_looks_at_the_clock(room: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno} calls {ast.unparse(node.func)}"
        for file in sources()
        if room_of(file) == room
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and _is_impure(node.func)
    ]
    assert wrong == []


def _is_impure(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in IMPURE_CALLS
    if isinstance(function, ast.Attribute) and function.attr in IMPURE_METHODS:
        return ast.unparse(function.value) in ("datetime", "date", "datetime.datetime", "datetime.date")
    return False


def test_files_and_functions_keep_their_size() -> None:
    """90 in 100 functions have at most 35 lines, no file more than 400."""
    long_files = [
        f"{f.relative_to(ROOT)}: {n}" for f in sources() if (n := len(f.read_text("utf-8").splitlines())) > 400
    ]
    assert long_files == []
    lengths = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for file in sources()
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    assert sorted(lengths)[len(lengths) * 9 // 10] <= 35
