"""YAML text into plain values, with the line of each. Scalars stay text: what a word means is for the schema to say,
so that ``no`` is no boolean, ``12:30`` no number of seconds and ``1e3`` no float. What YAML has for tricks (aliases,
tags, merged or repeated keys, several documents) is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml
from yaml.reader import ReaderError

Path = tuple[str | int, ...]
LONGEST = 256 * 1024
DEEPEST = 12
ALIGNED = "Keys that belong together begin in the same column."
QUOTED = "Text with a colon, a comma or a question mark in it goes into quotes, or below `key: |` and indented."
_PREFIX = "tag:yaml.org,2002:"
_PLAIN = frozenset({"str", "int", "float", "bool", "null", "timestamp", "value", "merge", "map", "seq"})


class Malformed(Exception):
    """The text is no plain YAML; ``line`` from 1."""

    def __init__(self, line: int, wrong: str, right: str = "") -> None:
        super().__init__(wrong)
        self.line = line
        self.wrong = wrong
        self.right = right


@dataclass(frozen=True, slots=True)
class Lined:
    """The values of a text (dict, list, str, None), and at which line each key and item stands."""

    value: object
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of ``path``, or of the nearest thing around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str) -> Lined:
    """The values of a YAML text. Raises Malformed."""
    if len(text) > LONGEST:
        raise Malformed(1, f"longer than {LONGEST // 1024} KB", "A playbook is a page or two.")
    node = _composed(text)
    if node is None:
        raise Malformed(1, "the file is empty", "It begins with: about: one line that says what it answers")
    lines: dict[Path, int] = {}
    return Lined(_value(node, (), lines, set()), lines)


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise Malformed(line, f"a character that YAML does not allow (U+{_code(error):04X})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if "end of stream" in str(error.problem):  # what was opened and not closed is of more use than the end
            mark = error.context_mark or mark
        wrong = " ".join(part for part in (error.context, error.problem) if part)
        raise Malformed(
            mark.line + 1 if mark else 1, f"not YAML: {wrong}", _hint(text, mark, str(error.problem))
        ) from None
    except RecursionError:
        raise Malformed(1, "nested too deeply") from None


def _code(error: ReaderError) -> int:
    char = error.character
    return char if isinstance(char, int) else ord(str(char)[:1] or "?")


def _hint(text: str, mark: object, problem: str) -> str:
    line = getattr(mark, "line", None)
    rows = text.splitlines()
    written = rows[line].strip() if isinstance(line, int) and line < len(rows) else ""
    if "\t" in (rows[line] if written and isinstance(line, int) else ""):
        return "Indent with spaces: YAML takes no tabs."
    if "end of stream" in problem:
        return "A quote that begins here does not end."
    if "mapping values" in problem or "block end" in problem:
        return f"{ALIGNED} {QUOTED}"
    return QUOTED if ": " in written else ""


def _value(node: yaml.Node, path: Path, lines: dict[Path, int], seen: set[int]) -> object:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if id(node) in seen:
        raise Malformed(line, "an alias (*name) repeats what stands elsewhere", "Write it out.")
    seen.add(id(node))
    if len(path) > DEEPEST:
        raise Malformed(line, "nested too deeply")
    if node.tag.removeprefix(_PREFIX) not in _PLAIN:
        raise Malformed(line, f"a tag ({node.tag.removeprefix(_PREFIX)})", "Write the plain value.")
    if isinstance(node, yaml.MappingNode):
        return dict(_pairs(node, path, lines, seen))
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, index), lines, seen) for index, item in enumerate(node.value)]
    is_null = node.tag == f"{_PREFIX}null" and getattr(node, "style", None) is None
    return None if is_null else str(node.value)


def _pairs(node: yaml.MappingNode, path: Path, lines: dict[Path, int], seen: set[int]) -> Iterator[tuple[str, object]]:
    known: set[str] = set()
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise Malformed(line, "a key that is no word")
        key = str(key_node.value)
        if key in known:
            raise Malformed(line, f'the key "{key}" stands here twice', "Each key is written once.")
        known.add(key)
        lines[(*path, key)] = line
        yield key, _value(value_node, (*path, key), lines, seen)
