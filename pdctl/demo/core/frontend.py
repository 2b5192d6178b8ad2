"""What the main process counts of HTTP: requests begun, answered, under way."""

from __future__ import annotations

from collections import Counter

from pdctl.demo.core.release import Traits


class FrontEnd:
    """Counts by (endpoint, method). Nothing is counted in releases without these metrics."""

    def __init__(self, traits: Traits) -> None:
        self._traits = traits
        self.active: Counter[tuple[str, str]] = Counter()
        self.total: Counter[tuple[str, str]] = Counter()
        self.answered: Counter[tuple[str, str, int]] = Counter()

    def begin(self, endpoint: str, method: str, stream: bool) -> None:
        key = endpoint, method
        self.total[key] += 1
        self.active[key] += 1
        if stream and self._traits.active_until_headers:
            self._drop(key, 200)

    def end(self, endpoint: str, method: str, status: int, stream: bool) -> None:
        """The answer is out. A client that left counts as begun without an answer."""
        if not (stream and self._traits.active_until_headers):
            self._drop((endpoint, method), status)

    def _drop(self, key: tuple[str, str], status: int) -> None:
        self.active[key] -= 1
        if status != 499:
            self.answered[(*key, status)] += 1
