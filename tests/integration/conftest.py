"""Servers that several tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loopback_sshd import MISSING, Sshd, find_sshd, start_sshd


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A plain OpenSSH server on loopback."""
    if find_sshd() is None:
        pytest.skip(MISSING)
    server = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def noisy_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One that shows a banner before the login, whose shells print before they run anything, in a locale that is not
    UTF-8, and which allows few sessions at once."""
    if find_sshd() is None:
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("noisy")
    banner, shell = folder / "banner", folder / "shell"
    banner.write_text("*** Authorised use only ***\n" * 20)
    shell.write_text(
        "#!/bin/sh\necho 'Welcome! MOTD: disk at 93 %'\nprintf 'no newline at the end'\n"
        "echo 'stdin is not a tty' >&2\n"
        'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    shell.chmod(0o755)
    settings = f"Banner {banner}\nForceCommand {shell}\nSetEnv LC_ALL=fr_FR.ISO-8859-1 LANG=fr_FR\nMaxSessions 3"
    server = start_sshd(folder, settings)
    yield server
    server.stop()
