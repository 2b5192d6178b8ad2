"""Scripts inside a script: here-documents, ``bash -c``, files it writes and then runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tree_sitter import Node

from pdctl.facts.shell_scope import Scope, Word
from pdctl.facts.shell_words import pieces_of, source_of, words_of

SHELLS = frozenset({"bash", "sh", "dash", "zsh", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/env"})
# What runs a command where this script's variables are not.
ELSEWHERE = frozenset({"ssh", "docker", "podman", "nerdctl", "kubectl", "nsenter", "pdsh", "clush", "apptainer"})
_PREFIXES = frozenset({"exec", "nohup", "setsid", "sudo", "time", "command"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_ESCAPED = re.compile(r"\\([\\$`]|\n)")
_SSH_VALUES = frozenset(f"-{letter}" for letter in "bcDEeFIiJLlmOopQRSWw")  # options of ssh that take a value
_PAIR_OPTIONS = ("-e", "--env", "-x", "-E")


class Inner(NamedTuple):
    """A script that a command hands to a shell: its text or the path of the file, its arguments, whether it runs where
    this script's exported variables are not."""

    text: str | None
    path: str | None
    arguments: tuple[Word, ...]
    elsewhere: bool


def inner_of(words: Sequence[Word]) -> Inner | None:
    """The script a command runs: ``bash -c TEXT``, ``bash FILE``, ``./FILE.sh``. None for any other command."""
    elsewhere = is_elsewhere(words)
    over_ssh = ssh_command(words)
    if over_ssh:
        return Inner(" ".join(w.text for w in over_ssh), None, (), True)
    for index, word in enumerate(words[:-1]):
        if word.text not in SHELLS:
            continue
        at = index + 1
        while at < len(words) and words[at].text.startswith("-") and len(words[at].text) > 1:
            option = words[at].text
            at += 1
            if option.endswith("c") and not option.startswith("--"):
                return Inner(words[at].text, None, tuple(words[at + 2 :]), elsewhere) if at < len(words) else None
        if at < len(words) and _is_file(words[at].text):
            return Inner(None, words[at].text, tuple(words[at + 1 :]), elsewhere)
    own = [w for i, w in enumerate(words) if w.text not in _PREFIXES or i > 3]
    if own and own[0].text.endswith((".sh", ".bash")) and "/" in own[0].text:
        return Inner(None, own[0].text, tuple(own[1:]), elsewhere)
    return None


def ssh_command(words: Sequence[Word]) -> Sequence[Word]:
    """The words ``ssh HOST`` hands to the shell at the other end, which reads them as one line; none for anything
    else."""
    if not words or words[0].text.rpartition("/")[2] != "ssh":
        return ()
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in _SSH_VALUES else 1
    return words[at + 1 :]


def _is_file(word: str) -> bool:
    return "/" in word or word.endswith((".sh", ".bash"))


def is_elsewhere(words: Sequence[Word]) -> bool:
    """Whether a command runs another on a machine or in a container of its own."""
    return any(w.text.rpartition("/")[2] in ELSEWHERE for w in words[:4])


def environment_of(words: Sequence[Word]) -> dict[str, str]:
    """Variables that a command's words give to what it starts: ``env X=1 ...``, ``docker run -e X=1``, ``--env=X=1``,
    ``mpirun -x X=1``."""
    out: dict[str, str] = {}
    after_env = False
    before = ""
    for word in (w.text for w in words if w.why is None):
        pair = _ASSIGNMENT.fullmatch(word.removeprefix("--env="))
        if word == "env" or word.endswith("/env"):
            after_env = True
        elif pair and (after_env or before in _PAIR_OPTIONS or word.startswith("--env=")):
            out[pair[1]] = pair[2]
        elif not word.startswith("-"):
            after_env = False
        before = word
    return out


# --- here-documents ------------------------------------------------------------------------------------------------


def reads_script(words: Sequence[Word]) -> bool:
    """Whether a command runs what it gets on its standard input: ``bash``, ``bash -s ARGS``, ``ssh HOST``,
    ``docker exec -i NAME bash``."""
    texts = [w.text for w in words]
    shells = [i for i, text in enumerate(texts) if text in SHELLS and text != "/usr/bin/env"]
    if shells:
        rest = texts[shells[-1] + 1 :]
        return "-s" in rest or all(text.startswith("-") and not text.endswith("c") for text in rest)
    return bool(texts) and texts[0].rpartition("/")[2] == "ssh" and not ssh_command(words)


def document_of(redirect: Node, scope: Scope) -> str:
    """The text of a here-document, variables put in unless its delimiter is quoted."""
    start = source_of(next(c for c in redirect.children if c.type == "heredoc_start"))
    body = next((c for c in redirect.children if c.type == "heredoc_body"), None)
    if body is None:
        return ""
    text = source_of(body) if start[:1] in "'\"\\" else _expanded(body, scope)
    if any(c.type == "<<-" for c in redirect.children):
        text = "\n".join(line.lstrip("\t") for line in text.split("\n"))
    return text


def _expanded(body: Node, scope: Scope) -> str:
    raw = body.text or b""
    at, out = body.start_byte, []
    for part in (c for c in body.named_children if c.type != "heredoc_content"):
        out.append(_plain(raw[at - body.start_byte : part.start_byte - body.start_byte]))
        out += [p.text if p.words is None else " ".join(w.text for w in p.words) for p in pieces_of(part, scope, True)]
        at = part.end_byte
    return "".join([*out, _plain(raw[at - body.start_byte :])])


def _plain(raw: bytes) -> str:
    return _ESCAPED.sub(lambda m: "" if m[1] == "\n" else m[1], raw.decode("utf-8", "replace"))


def written_to(node: Node, redirect: Node, scope: Scope) -> str | None:
    """The file a here-document is kept in: ``cat > FILE <<EOF``, ``tee FILE <<EOF``; None where it goes elsewhere."""
    body = node.child_by_field_name("body")
    words = [w.text for child in body.named_children for w in words_of(child, scope)] if body is not None else []
    names = [w for w in words if w not in _PREFIXES]
    if names[:1] == ["tee"]:
        return next((w for w in names[1:] if not w.startswith("-")), None)
    if names[:1] != ["cat"]:
        return None
    targets = [c for holder in (node, redirect) for c in holder.named_children if c.type == "file_redirect"]
    return next((words_of(t.named_children[-1], scope)[0].text for t in targets if t.named_children), None)
