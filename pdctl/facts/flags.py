"""Launch flags from command-line words: both forms, aliases, prefixes, values in one spelling.

``--x v`` and ``--x=v`` are the same, order does not count, ``.80`` is ``0.8``; ``--tp``, ``--tp-size`` and
``--tensor-parallel-size`` are one option, and an unambiguous prefix is its option, as argparse has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePosixPath

from pdctl.facts import options

SGLANG, ROUTER, VLLM = "sglang", "router", "vllm"
_MODULES = {
    "sglang.launch_server": SGLANG,
    "sglang.srt.entrypoints.http_server": SGLANG,
    "sglang_router.launch_router": ROUTER,
    "sglang_router.launch_server": ROUTER,
    "sglang_router": ROUTER,
    "sglang.srt.disaggregation.mini_lb": ROUTER,
    "sglang.srt.disaggregation.launch_lb": ROUTER,
    "vllm.entrypoints.openai.api_server": VLLM,
    "vllm.entrypoints.cli.main": VLLM,
}
_PROGRAMS = {"sglang": SGLANG, "vllm": VLLM, "sglang-router": ROUTER, "smg": ROUTER, "amg": ROUTER}
_SUBCOMMANDS = frozenset({"serve", "launch", "server", "start"})
_SCRIPTS = {"launch_server.py": SGLANG, "launch_router.py": ROUTER, "api_server.py": VLLM}
_NUMBER = re.compile(r"[-+]?(?:\d{1,15}\.?\d{0,15}|\.\d{1,15})(?:[eE][-+]?\d{1,2})?")
_NEGATIVE = re.compile(r"-(?:\d|\.\d)")


def read_launch(argv: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Which program a command line starts (sglang, router, vllm; None for anything else) and its flags: canonical long
    option -> value in one spelling, "" for a bare switch. Words before the program (env, nohup, numactl, nsys, a
    container's command) are passed over. Flags are read only where the program is known."""
    found = launch_at(argv)
    if found is None:
        return None, {}
    launcher, start = found
    return launcher, read_flags(argv[start:], launcher)


def launch_at(argv: Sequence[str]) -> tuple[str, int] | None:
    """The program a command line starts and the index of its first argument, None where none of ours is started."""
    for index, word in enumerate(argv):
        following = argv[index + 1] if index + 1 < len(argv) else ""
        if word == "-m" and following in _MODULES:
            launcher = _MODULES[following]
            skip = 1 if argv[index + 2 : index + 3] == ["serve"] else 0
            return launcher, index + 2 + skip
        name = PurePosixPath(word).name
        if name in _SCRIPTS and index > 0:
            return _SCRIPTS[name], index + 1
        if name in _PROGRAMS and following in _SUBCOMMANDS:
            return _PROGRAMS[name], index + 2
        if name in _PROGRAMS and following.startswith("--"):
            return _PROGRAMS[name], index + 1
    return None


def read_flags(words: Sequence[str], launcher: str = SGLANG) -> dict[str, str]:
    """The options among a program's arguments. Of a repeated option the last value counts, except for those that mean
    all of theirs (``--prefill``): these are joined by " | ". Several values of one option are joined by a space."""
    flags: dict[str, str] = {}
    for name, values in _grouped(words, launcher):
        value = " ".join(normal_value(v) for v in values)
        if name in options.REPEATED and name in flags:
            value = f"{flags[name]} | {value}"
        flags[name] = value
    return flags


def _grouped(words: Sequence[str], launcher: str) -> Iterator[tuple[str, list[str]]]:
    """Each option with its values; a leading positional is the model."""
    name: str | None = None
    values: list[str] = []
    for word in words:
        if not _is_option(word, launcher):
            values.append(word)
            continue
        yield from _closed(name, values, launcher)
        given, equals, value = word.partition("=")
        name, values = canonical(given, launcher), [value] if equals else []
    yield from _closed(name, values, launcher)


def _closed(name: str | None, values: list[str], launcher: str) -> Iterator[tuple[str, list[str]]]:
    if name is not None:
        yield name, values
    elif values and launcher != ROUTER:
        yield ("--model" if launcher == VLLM else "--model-path"), values[:1]


def _is_option(word: str, launcher: str) -> bool:
    if word.startswith("--"):
        return len(word) > 2
    return launcher == VLLM and word.startswith("-") and not _NEGATIVE.match(word) and len(word) > 1


@lru_cache(maxsize=4096)
def canonical(option: str, launcher: str = SGLANG) -> str:
    """The canonical long name of an option, through aliases and unambiguous prefixes; an unknown one as it is.

    >>> canonical("--tensor-parallel-size"), canonical("--mem-fr")
    ('--tp-size', '--mem-fraction-static')
    """
    option = "--" + option[2:].replace("_", "-") if option.startswith("--") else option
    names, aliases = _table(launcher)
    if option in aliases:
        return aliases[option]
    if option in names or not option.startswith("--"):
        return option
    meant = {aliases.get(name, name) for name in (*names, *aliases) if name.startswith(option)}
    return meant.pop() if len(meant) == 1 else option


@lru_cache(maxsize=8)
def _table(launcher: str) -> tuple[frozenset[str], dict[str, str]]:
    if launcher == ROUTER:
        return frozenset(f"--{n}" for n in options.ROUTER.split()), {}
    if launcher == VLLM:
        return frozenset(f"--{n}" for n in options.VLLM.split()), options.VLLM_ALIASES
    return frozenset(f"--{n}" for n in options.SGLANG.split()), options.SGLANG_ALIASES


def normal_value(value: str) -> str:
    """A value in one spelling: numbers without idle digits, JSON with its keys sorted; anything else as it is.

    >>> normal_value(".80"), normal_value("1e3"), normal_value('{"b":1, "a": 2}')
    ('0.8', '1000', '{"a": 2, "b": 1}')
    """
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return str(int(text)) if text.lstrip("+-").isdecimal() else format(float(text), ".12g")
    if text[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(text), sort_keys=True)
        except ValueError:
            return text
    return text
