"""One line for each thing that happens while a restart is carried out."""

from __future__ import annotations

from pdctl.model.plan import Step
from pdctl.render.text import span

WORDS = {"note": "note", "begin": "now", "wait": "...", "passed": "seen", "done": "done", "failed": "FAILED"}


def happening_line(kind: str, says: str, step: Step | None, elapsed: float | None, log: str | None) -> str:
    """What happened, to whom, how long after its step began, and what its log said last. Not yet made safe to show."""
    whose = f" {step.instance}" if step is not None and step.instance else ""
    when = f" after {span(elapsed)}" if elapsed is not None else ""
    last = f" | log: {log}" if log else ""
    return f"{WORDS.get(kind, kind)}{whose}{when}: {says}{last}"
