"""Writes the golden files anew: python tests/unit/render/golden_write.py. Read every changed line before committing."""

from __future__ import annotations

import re
from pathlib import Path

from render_reports import GOLDEN

from pdctl.render.human import triage_lines
from pdctl.render.look import Look
from pdctl.render.pinned import pinned_lines
from pdctl.render.short import short_line
from pdctl.render.wire import report_json, report_jsonl

_DIGEST = re.compile(r"\*\*\*[0-9a-f]{6}")  # another in each run
HERE = Path(__file__).parent / "golden"
SHAPES = {"80": Look(), "60": Look(width=60), "200": Look(width=200), "80-ascii": Look(ascii=True)}
ALL_SHAPES = ("pinned", "hostile")


def golden_texts() -> dict[str, str]:
    """File name -> what it must hold."""
    texts = {}
    for name, report in GOLDEN.items():
        for shape in SHAPES if name in ALL_SHAPES else ("80",):
            texts[f"triage-{name}-{shape}.txt"] = "\n".join(triage_lines(report, SHAPES[shape])) + "\n"
        texts[f"pinned-{name}-80.txt"] = "\n".join(pinned_lines(report, SHAPES["80"])) + "\n"
        texts[f"short-{name}.txt"] = short_line(report) + "\n"
    texts["report-pinned.json"] = report_json(GOLDEN["pinned"]) + "\n"
    texts["report-pinned.jsonl"] = report_jsonl(GOLDEN["pinned"]) + "\n"
    return {file: _DIGEST.sub("***digest", text) for file, text in texts.items()}


if __name__ == "__main__":
    for file, text in golden_texts().items():
        (HERE / file).write_text(text, "utf-8")
