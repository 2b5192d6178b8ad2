"""What every test starts from: an environment of its own, with nothing of the machine's in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)  # no test may fail for being slow on a busy machine
settings.load_profile("patient")

KEPT = (
    "PATH",
    "PDCTL_ROUTERS",
    "PDCTL_ROUTERS_REQUIRED",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "PDCTL_REAL_RIG",
    "RIG_HOME",
    "RIG_PORT_OFFSET",
    "PYTHONWARNINGS",
    "VIRTUAL_ENV",
)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No inventory, no colours asked for or forbidden, no proxy, no SSH agent, and a home that is empty."""
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(("PYTEST_", "COV_")):
            monkeypatch.delenv(name)
    home: Path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    yield


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, so that no pdctl.toml of a checkout is found."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
