"""Commands of this machine, asked as those of a host are."""

from __future__ import annotations

import time

from pdctl.model.answer import Answer
from pdctl.model.ask import CommandAsk
from pdctl.model.cluster import Host
from pdctl.reach.local import LocalReach

HERE = Host("here")


def run(ask: CommandAsk) -> Answer:
    now = time.monotonic()
    return LocalReach(HERE).run(ask, started=now, deadline=now + 20)
