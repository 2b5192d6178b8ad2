"""Logging in: with the agent's keys and the key files, as OpenSSH orders them. Never with a password.

The one question ever asked of a person is a key's passphrase, at a terminal, once for each file.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paramiko import (
    Agent,
    AuthenticationException,
    BadAuthenticationType,
    ECDSAKey,
    Ed25519Key,
    PasswordRequiredException,
    PKey,
    RSAKey,
    SSHException,
    Transport,
)

from pdctl.reach.ssh_config import SshFailure, Target

TRIES = 3  # for a passphrase
Prompt = Callable[[str], str]


def terminal_prompt() -> Prompt | None:
    """What asks for a passphrase, None where there is no terminal to ask at."""
    if not (sys.stdin and sys.stdin.isatty()):
        return None
    import getpass

    return getpass.getpass


class KeyRing:
    """The key files, each read once whatever number of hosts want it. Safe to use from several threads."""

    def __init__(self, prompt: Prompt | None = None) -> None:
        self._prompt = prompt
        self._lock = threading.Lock()
        self._keys: dict[str, PKey | str] = {}
        self._asking_since: float | None = None
        self._asked = 0.0

    @property
    def asked_seconds(self) -> float:
        """How long a person has been kept thinking so far; deadlines do not count it."""
        since = self._asking_since
        return self._asked + (time.monotonic() - since if since is not None else 0.0)

    def key(self, path: str, *, ask: bool) -> PKey | str | None:
        """The private key in the file, or why there is none; None for an encrypted one, unless ``ask``."""
        with self._lock:
            if path not in self._keys:
                try:
                    self._keys[path] = _load(path, None)
                except _Locked:
                    if not ask:
                        return None
                    self._keys[path] = self._opened(path)
            return self._keys[path]

    def _opened(self, path: str) -> PKey | str:
        if self._prompt is None:
            return f"needs its passphrase, and there is no terminal to ask at: ssh-add {path}"
        self._asking_since = time.monotonic()
        try:
            return self._ask(path, self._prompt)
        finally:
            self._asked += time.monotonic() - self._asking_since
            self._asking_since = None

    def _ask(self, path: str, prompt: Prompt) -> PKey | str:
        for _ in range(TRIES):
            try:
                passphrase = prompt(f"Passphrase for {path}: ")
            except (EOFError, OSError):
                break
            if not passphrase:
                break
            with contextlib.suppress(_Locked):
                found = _load(path, passphrase)
                if isinstance(found, PKey):
                    return found
        return "was not opened: wrong passphrase"


class _Locked(Exception):
    """The key file is encrypted."""


def _load(path: str, passphrase: str | None) -> PKey | str:
    """The key in the file, whatever its type; with the certificate beside it, if there is one. Raises _Locked."""
    for kind in (Ed25519Key, ECDSAKey, RSAKey):
        try:
            key: PKey = kind.from_private_key_file(path, passphrase)
        except FileNotFoundError:
            return "is not there"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        except PasswordRequiredException:
            raise _Locked from None
        except (SSHException, ValueError, UnicodeDecodeError, IndexError):
            continue  # a key of another type, a wrong passphrase, or no key
        if Path(f"{path}-cert.pub").exists():
            key.load_certificate(f"{path}-cert.pub")
        return key
    return "holds no private key that can be used"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A key to try, and how it is called in a message."""

    key: PKey
    name: str


def log_in(transport: Transport, target: Target, keys: KeyRing) -> None:
    """Returns when the host has let ``target.user`` in. Raises SshFailure saying what was tried."""
    tried: list[str] = []
    with _agent(target) as agent:
        for candidate in _candidates(target, keys, agent, tried):
            tried.append(candidate.name)
            if _accepted(transport, target, candidate, tried):
                return
    what = "; ".join(tried) or "there is no key to try"
    raise SshFailure(f"{target.name} did not let {target.user} in: {what}")


def _accepted(transport: Transport, target: Target, candidate: Candidate, tried: list[str]) -> bool:
    try:
        more = transport.auth_publickey(target.user, candidate.key)
    except BadAuthenticationType as error:
        takes = ", ".join(error.allowed_types)
        raise SshFailure(f"{target.name} takes no key from {target.user}, only: {takes}") from None
    except AuthenticationException as error:
        if transport.is_active() and "timeout" not in str(error).lower():
            return False
        raise SshFailure(_cut_off(target, tried, error)) from None
    except SSHException as error:
        if transport.is_active():
            tried[-1] += f" ({error})"
            return False
        raise SshFailure(_cut_off(target, tried, error)) from None
    if more:
        raise SshFailure(f"{target.name} wants more than a key from {target.user}: {', '.join(more)}")
    return True


def _cut_off(target: Target, tried: list[str], error: Exception) -> str:
    many = " (too many keys tried? name one: IdentityFile and IdentitiesOnly yes)" if len(tried) > 3 else ""
    return f"{target.name} ended the login of {target.user} after {'; '.join(tried)}: {error}{many}"


def _candidates(target: Target, keys: KeyRing, agent: list[Candidate], tried: list[str]) -> Iterator[Candidate]:
    """The agent's copies of the named keys, its others, then the files; those that need a person last."""
    named = {blob for path in target.identities if (blob := _public_blob(path)) is not None}
    yield from (c for c in agent if c.key.asbytes() in named)
    if not target.identities_only:
        yield from (c for c in agent if c.key.asbytes() not in named)
    held = {c.key.asbytes() for c in agent}
    files = [path for path in target.identities if _public_blob(path) not in held]
    closed = []
    for path in files:
        key = keys.key(path, ask=False)
        if isinstance(key, PKey):
            yield Candidate(key, path)
        elif key is None:
            closed.append(path)
        elif Path(path).exists():
            tried.append(f"{path} {key}")
    for path in closed:
        key = keys.key(path, ask=True)
        if isinstance(key, PKey):
            yield Candidate(key, path)
        else:
            tried.append(f"{path} {key}")


def _public_blob(path: str) -> bytes | None:
    """The public half of a key file: the ``.pub`` beside it, or the file itself where it is one."""
    for file in (Path(f"{path}.pub"), Path(path)):
        with contextlib.suppress(OSError, ValueError, IndexError, binascii.Error):
            with file.open("rb") as stream:
                words = stream.read(64 * 1024).split()
            if not words[0].startswith(b"-----"):
                return base64.b64decode(words[1], validate=True)
    return None


@contextlib.contextmanager
def _agent(target: Target) -> Iterator[list[Candidate]]:
    """The keys of the agent that is running, none where there is none or the configuration says not to ask it."""
    if not target.agent:
        yield []
        return
    try:
        agent = Agent()
    except (SSHException, OSError):
        yield []
        return
    try:
        yield [Candidate(key, f"agent key {key.comment or key.get_name()}") for key in agent.get_keys()]
    finally:
        agent.close()
