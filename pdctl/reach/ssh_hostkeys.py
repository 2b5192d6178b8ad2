"""Is this the host it says it is? Its key against known_hosts, strictly: an unknown or changed key is a refusal.

Reads what OpenSSH writes there: plain and hashed names, ``[host]:port``, patterns, ``!`` exceptions, ``@revoked``.
``@cert-authority`` lines are passed over, as pdctl does not speak host certificates: such a host counts as unknown.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pdctl.reach.ssh_config import SshFailure, Target

# The signature algorithms that a key of a type can answer with, best first.
ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


@dataclass(frozen=True, slots=True)
class HostKey:
    """A host's public key: its type as SSH names it, and the key itself."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """``SHA256:...``, as ``ssh-keygen -l`` shows it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"

    def __str__(self) -> str:
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a known_hosts file."""

    names: str
    key: HostKey
    revoked: bool
    file: str
    line: int

    def is_for(self, name: str) -> bool:
        if self.names.startswith("|1|"):
            return _hashes_to(self.names, name)
        patterns = self.names.split(",")
        if any(p.startswith("!") and _fits(p[1:], name) for p in patterns):
            return False
        return any(_fits(p, name) for p in patterns)


def _hashes_to(hashed: str, name: str) -> bool:
    try:
        _, _, salt, digest = hashed.split("|")
        expected = base64.b64decode(digest, validate=True)
        return hmac.compare_digest(
            hmac.digest(base64.b64decode(salt, validate=True), name.lower().encode(), "sha1"), expected
        )
    except (ValueError, binascii.Error):
        return False


def _fits(pattern: str, name: str) -> bool:
    """Whether a pattern with ``*`` and ``?`` fits; brackets mean themselves, as in ``[host]:port``."""
    return fnmatch.fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))


def read_known_hosts(text: str, file: str = "known_hosts") -> Iterator[Entry]:
    """The lines that hold a key; others (comments, certificates' authorities, broken lines) are passed over."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else None
        if len(words) < 3 or words[0].startswith("#") or marker not in (None, "@revoked"):
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        yield Entry(words[0], HostKey(words[1], blob), marker is not None, file, number)


class KnownHosts:
    """The keys known of one target."""

    def __init__(self, target: Target) -> None:
        self._target = target
        entries = [e for file in target.known_hosts for e in _entries(file)]
        self._named = [e for e in entries if e.is_for(target.key_name)]
        # OpenSSH takes a key listed without the port, too, as long as it is the same key.
        bare = target.hostname if target.key_alias is None else target.key_alias
        self._bare = [e for e in entries if e.is_for(bare)]

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The host key algorithms to ask for first: those of known keys, so that a host is not taken for another
        because it shows a key of a type it was never seen with."""
        kinds = dict.fromkeys(e.key.kind for e in (*self._named, *self._bare) if not e.revoked)
        return tuple(name for kind in kinds for name in ALGORITHMS.get(kind, (kind,)))

    def check(self, shown: HostKey) -> None:
        """Returns when the key is the known one. Raises SshFailure for a revoked, changed or unknown key."""
        both = (*self._named, *self._bare)
        if any(e.revoked and e.key == shown for e in both):
            raise SshFailure(f"HOST KEY REVOKED: {self._of} shows a key marked @revoked ({shown.fingerprint})")
        good = [e for e in both if not e.revoked]
        if any(e.key == shown for e in good):
            return
        of_kind = [e for e in self._named if not e.revoked and e.key.kind == shown.kind]
        raise self._changed(of_kind[0], shown) if of_kind else self._unknown(shown, good)

    @property
    def _of(self) -> str:
        target = self._target
        return target.name if target.name == target.key_name else f"{target.name} ({target.key_name})"

    def _changed(self, known: Entry, shown: HostKey) -> SshFailure:
        return SshFailure(
            f"HOST KEY CHANGED: {self._of} shows {shown.kind} {shown.fingerprint}, but {known.file}:{known.line} has "
            f"{known.key.fingerprint}. Either the host was installed anew or somebody is in between. Not connected. "
            f"If you know why, remove the old key: ssh-keygen -R {shlex.quote(self._target.key_name)} "
            f"-f {shlex.quote(known.file)}"
        )

    def _unknown(self, shown: HostKey, others: Iterable[Entry]) -> SshFailure:
        target = self._target
        file = target.known_hosts[0] if target.known_hosts else "~/.ssh/known_hosts"
        kinds = ", ".join(dict.fromkeys(e.key.kind for e in others))
        other = f" (only its {kinds} key is known)" if kinds else ""
        line = shlex.quote(f"{target.key_name} {shown}")
        return SshFailure(
            f"host key of {self._of} is not known{other}: {shown.kind} {shown.fingerprint}. Compare that with what the "
            f"host's administrator says, then add it: echo {line} >> {shlex.quote(file)}"
        )


def _entries(file: str) -> list[Entry]:
    try:
        return list(read_known_hosts(Path(file).read_text("utf-8", "replace"), file))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise SshFailure(f"{file}: {error.strerror}: no host key can be checked") from None
