"""After which requests a probe goes on looking, so that rules which need some seconds of stillness can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdctl.model.probe import Attempt
from pdctl.probing.run import leaves_something

GOOD = Attempt("router-0", status=200)


@pytest.mark.parametrize(
    ("attempt", "longer"),
    [
        (GOOD, False),
        (replace(GOOD, status=503), True),
        (replace(GOOD, status=429), False),
        (replace(GOOD, status=None, error="read-timeout"), True),
        (replace(GOOD, error="truncated"), True),
        (replace(GOOD, kind="abort", status=None), True),
        (replace(GOOD, status=None, error="reset", connection="reused", idle_s=6.0, closed_after_s=5.0), False),
    ],
)
def test_what_failed_of_the_cluster_is_looked_at_longer(attempt: Attempt, longer: bool) -> None:
    assert leaves_something(attempt) is longer
