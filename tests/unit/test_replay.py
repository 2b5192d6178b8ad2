"""A recording read back as a window: whole when it is short, its end when it is long, its settings always."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pdctl.model.answer import Fact, Missed, Why
from pdctl.model.engine import EngineMetrics, Gauge, ServerInfo
from pdctl.model.window import Window
from pdctl.reach.capture import open_capture
from pdctl.replay import read_window

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
TOML = '[[instance]]\nname = "prefill-0"\nrole = "prefill"\nurl = "http://192.0.2.11:30000"\n'


def page(queue: int) -> str:
    return (
        f'# TYPE sglang:num_queue_reqs gauge\nsglang:num_queue_reqs{{engine_type="prefill",model_name="m"}} {queue}.0\n'
    )


def recording(folder: Path, times: list[float], more: tuple[dict[str, object], ...] = ()) -> Path:
    """A capture with a metrics page at each time, its queue being the number of the page, and further lines."""
    folder.mkdir()
    (folder / "cluster.toml").write_text(TOML)
    rows = [_row(t, "metrics", f"m{n}", page(n), folder) for n, t in enumerate(times)]
    for number, keys in enumerate(more):
        text = str(keys.pop("text", "")) or None
        rows.append(_row(keys.pop("t"), keys.pop("fact"), f"x{number}", text, folder) | keys)  # type: ignore[arg-type]
    rows.sort(key=lambda row: row["t"])  # type: ignore[arg-type,return-value]
    (folder / "index.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "manifest.json").write_text('{"format": 1}')
    return folder


def _row(t: float, fact: str, name: str, text: str | None, folder: Path) -> dict[str, object]:
    if text is not None:
        (folder / name).write_text(text)
    at = (START + timedelta(seconds=t)).isoformat()
    file = None if text is None else name
    return {"t": t, "at": at, "instance": "prefill-0", "fact": fact, "file": file, "took": 0.1, "status": 200}


def window_of(folder: Path, **more: object) -> Window:
    with open_capture(folder) as capture:
        return read_window(capture, **more)  # type: ignore[arg-type]


def queues(window: Window) -> list[tuple[float, float | None]]:
    return [(at.t, at.value.total(Gauge.QUEUE)) for at in window.seen("prefill-0", Fact.METRICS, EngineMetrics)]


def test_a_short_recording_is_read_whole(tmp_path: Path) -> None:
    window = window_of(recording(tmp_path / "c", [2.0, 4.0, 6.0]))
    assert (window.start, window.end, window.live, window.note) == (START, START + timedelta(seconds=6), False, None)
    assert queues(window) == [(2.0, 0), (4.0, 1), (6.0, 2)]


def test_an_hour_is_still_whole(tmp_path: Path) -> None:
    window = window_of(recording(tmp_path / "c", [0.0, 1800.0, 3600.0]))
    assert len(queues(window)) == 3
    assert window.note is None


def test_of_a_longer_one_the_last_hour_is_read(tmp_path: Path) -> None:
    window = window_of(recording(tmp_path / "c", [t * 600.0 for t in range(61)]))  # ten hours
    assert window.start == START + timedelta(hours=9)
    assert window.end == START + timedelta(hours=10)
    assert queues(window) == [(n * 600.0, 54 + n) for n in range(7)]
    assert window.note == "only the last 3600 s are looked at; 54 earlier observations are left out"


def test_the_span_can_be_chosen(tmp_path: Path) -> None:
    path = recording(tmp_path / "c", [float(t) for t in range(100)])
    assert [queue for _, queue in queues(window_of(path, last_s=3.0))] == [96, 97, 98, 99]
    assert len(queues(window_of(path, last_s=1e9))) == 100


def test_however_dense_it_is_its_size_is_bounded(tmp_path: Path) -> None:
    window = window_of(recording(tmp_path / "c", [n / 10 for n in range(500)]), keep_most=50)
    assert [queue for _, queue in queues(window)] == list(range(450, 500))
    assert window.start == START + timedelta(seconds=45)
    assert window.note is not None
    assert "450 earlier observations are left out" in window.note


def test_settings_asked_long_ago_still_hold(tmp_path: Path) -> None:
    more: tuple[dict[str, object], ...] = (
        {"t": 0.0, "fact": "server-info", "text": '{"version": "0.5.19", "disaggregation_mode": "prefill"}'},
        {"t": 5.0, "fact": "server-info", "error": "read-timeout", "status": None},
        {"t": 6.0, "fact": "file", "path": "/a", "mtime": "2026-03-01T00:00:00Z"},
        {"t": 7.0, "fact": "file", "path": "/b", "mtime": "2026-03-01T00:00:00Z"},
        {"t": 8.0, "fact": "file", "path": "/b", "mtime": "2026-03-02T00:00:00Z"},
        {"t": 9.0, "fact": "file", "path": "/c", "mtime": "2026-03-01T00:00:00Z"},
        {"t": 99.0, "fact": "file", "path": "/c", "mtime": "2026-03-03T00:00:00Z"},
    )
    window = window_of(recording(tmp_path / "c", [float(t) for t in range(100)], more), last_s=10.0)
    settings = window.last("prefill-0", Fact.SERVER_INFO, ServerInfo)
    assert settings is not None
    assert (settings.value.version, settings.t, settings.seen.at) == ("0.5.19", -89.0, START)
    watched = [(row.t, row.more["path"], row.more["mtime"]) for row in window.timeline("prefill-0", Fact.FILE)]
    assert watched == [
        (-83.0, "/a", "2026-03-01T00:00:00Z"),
        (-81.0, "/b", "2026-03-02T00:00:00Z"),
        (10.0, "/c", "2026-03-03T00:00:00Z"),
    ]


def test_what_was_missed_stays_missed(tmp_path: Path) -> None:
    more = ({"t": 1.0, "fact": "loads", "error": "read-timeout", "status": None, "detail": "no answer in 5 s"},)
    window = window_of(recording(tmp_path / "c", [0.0], more))
    (missed,) = window.missed("prefill-0", Fact.LOADS)
    assert missed.got == Missed(Why.READ_TIMEOUT, "no answer in 5 s")


def test_a_recording_cut_short_says_so(tmp_path: Path) -> None:
    path = recording(tmp_path / "c", [0.0])
    (path / "manifest.json").unlink()
    with (path / "index.jsonl").open("a") as out:
        out.write('{"t": 1.0, "inst')
    assert window_of(path).note == (
        "the recording was cut short; the last line of index.jsonl is half written: ignored"
    )


@pytest.mark.parametrize("lines", ["", "\n", "junk\n"])
def test_an_empty_recording_is_an_empty_window(tmp_path: Path, lines: str) -> None:
    path = recording(tmp_path / "c", [])
    (path / "index.jsonl").write_text(lines)
    window = window_of(path)
    assert (window.observations, window.seconds) == ((), 0.0)
