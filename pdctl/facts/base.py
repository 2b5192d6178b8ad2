"""What every fact shares: the error that says why an answer could not be read."""

from __future__ import annotations

from pdctl.model.answer import Why


class Unreadable(Exception):
    """The answer came and is not what was asked for; ``detail`` is one line for people."""

    def __init__(self, why: Why, detail: str = "") -> None:
        super().__init__(detail or why)
        self.why = why
        self.detail = detail
