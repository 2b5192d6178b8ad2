"""Where the files lie that a script reads in, and the script read again with their texts.

``source "$(dirname "$0")/nccl.env"`` and its many spellings mean a file beside the script. A plain relative path is
looked for there as well, since start-up scripts begin with ``cd "$(dirname "$0")"`` or run with their own folder as the
working directory. What cannot be placed (``~/x``, ``$CONDA/x``) is not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

from tree_sitter import Node

from pdctl.facts.script import script_of
from pdctl.facts.shell import parse
from pdctl.facts.shell_words import source_of
from pdctl.model.cluster import Instance
from pdctl.model.host import ScriptFile

_DEEPEST = 6  # rounds: files that read in files
_ITSELF = frozenset({"$0", "${0}", "$BASH_SOURCE", "${BASH_SOURCE}", "${BASH_SOURCE[0]}"})
_FOLDER = frozenset({"${0%/*}", "${BASH_SOURCE%/*}", "${BASH_SOURCE[0]%/*}", "$PWD", "${PWD}", "${BASH_SOURCE:-$0%/*}"})
_SAME = frozenset({"readlink", "realpath"})


def placed(written: str, script_path: str) -> str | None:
    """The absolute path of a file as the script writes it, None where it cannot be known.

    >>> placed('$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/nccl.env', "/opt/serve.sh")
    '/opt/nccl.env'
    """
    if not written or written.startswith("~"):
        return None
    tree = parse(f"source {written}\n")
    statements = tree.root_node.named_children
    if tree.root_node.has_error or len(statements) != 1 or len(statements[0].named_children) != 2:
        return None
    command = statements[0]
    text = _value(command.named_children[1], PurePosixPath(script_path))
    if not text:
        return None
    return _normal(PurePosixPath(script_path).parent / text)


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and len(parts) > 1:
            parts.pop()
        elif part != "..":
            parts.append(part)
    return str(PurePosixPath(*parts))


def _value(node: Node, script: PurePosixPath) -> str | None:
    """What a word means if only the script's own place is needed to know it."""
    text = source_of(node)
    if text in _ITSELF:
        return str(script)
    if text in _FOLDER:
        return str(script.parent)
    if node.type == "word":
        return None if any(c in text for c in "*?[") else text.replace("\\", "")
    if node.type == "number":
        return text
    if node.type == "raw_string":
        return text[1:-1]
    if node.type in ("string", "concatenation", "string_content"):
        parts = [_value(child, script) for child in node.children if child.type != '"'] or [text]
        return text if node.type == "string_content" else None if None in parts else "".join(p for p in parts if p)
    if node.type == "command_substitution":
        return _made(node.named_children, script)
    return None


def _made(nodes: list[Node], script: PurePosixPath) -> str | None:
    """``$(dirname X)``, ``$(readlink -f X)``, ``$(cd X && pwd)``, ``$(cd X; pwd)``."""
    if len(nodes) == 2 and source_of(nodes[1]).split()[:1] == ["pwd"]:
        return _entered(nodes[0], script)
    if len(nodes) != 1:
        return None
    node = nodes[0]
    if node.type == "list" and [c.type for c in node.children[1:2]] == ["&&"]:
        left, right = node.named_children[0], node.named_children[-1]
        left = left.child_by_field_name("body") or left if left.type == "redirected_statement" else left
        return _entered(left, script) if source_of(right).split()[:1] == ["pwd"] else None
    if node.type == "redirected_statement":
        return _made([c for c in node.named_children if not c.type.endswith("redirect")], script)
    if node.type != "command":
        return None
    name, target = _call(node, script)
    if target is None or name not in ("dirname", *_SAME):
        return None
    return str(PurePosixPath(target).parent) if name == "dirname" else target


def _entered(node: Node, script: PurePosixPath) -> str | None:
    if node.type != "command":
        return None
    name, target = _call(node, script)
    return target if name == "cd" else None


def _call(node: Node, script: PurePosixPath) -> tuple[str, str | None]:
    words = [c for c in node.named_children if not c.type.endswith("redirect")]
    operands = [w for w in words[1:] if not source_of(w).startswith("-")]
    return source_of(words[0]), _value(operands[0], script) if len(operands) == 1 else None


def sources_of(script: ScriptFile) -> dict[str, str]:
    """The files a script reads in or runs, as written, each with its path where that can be known."""
    paths = ((written, placed(written, script.path)) for written in script.sources)
    return {written: path for written, path in paths if path is not None and path != script.path}


def followed(script: ScriptFile, text_of: Callable[[str], str | None], instance: Instance | None) -> ScriptFile:
    """The script read again with the texts of the files it reads in, as far as ``text_of`` has them by path."""
    current, files = script, dict[str, str]()
    for _ in range(_DEEPEST):
        found = {w: t for w, path in sources_of(current).items() if (t := text_of(path)) is not None}
        if found.keys() <= files.keys():
            return current
        files |= found
        current = script_of(script.path, script.mtime, script.text, instance, files)
    return current


def missing(script: ScriptFile, have: Iterable[str]) -> tuple[str, ...]:
    """Paths of files that the script reads in and that are not at hand yet."""
    known = set(have)
    return tuple(path for path in dict.fromkeys(sources_of(script).values()) if path not in known)


def texts_of(scripts: Iterable[ScriptFile]) -> Mapping[str, str]:
    """Texts by path."""
    return {script.path: script.text for script in scripts}
