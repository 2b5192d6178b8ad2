"""What is written is what is read; what is cut short, full or in the way is said."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from answers import CLUSTER, EVERY_KIND, START, answer
from hypothesis import given
from hypothesis import strategies as st

from pdctl.errors import CaptureError
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.reach.capture import open_capture
from pdctl.reach.capture_write import CaptureWriter


def written(path: Path, answers: object, cluster: Cluster = CLUSTER) -> Path:
    with CaptureWriter(path, cluster) as writer:
        for each in answers:  # type: ignore[attr-defined]
            writer.add(each)
    return path


@pytest.mark.parametrize(
    "name", ["capture", "capture.tar.gz", "capture.tgz", "capture.tar.zst", "deep/er/capture.tar.gz"]
)
def test_what_was_written_is_read_back_the_same(tmp_path: Path, name: str) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    path = written(tmp_path / name, EVERY_KIND)
    with open_capture(path) as capture:
        assert tuple(capture.answers()) == EVERY_KIND
        assert (len(capture), capture.started, capture.cut_short, capture.notes) == (12, START, False, ())
        assert replace(capture.cluster, source="") == replace(CLUSTER, source="")
        assert (capture.seconds, capture.first_t) == (90_061.5, 0.1)
    assert [p.name for p in path.parent.iterdir() if "capture" in p.name] == [path.name]


@given(
    body=st.none() | st.binary(max_size=300),
    detail=st.none() | st.text(max_size=60),
    title=st.text(max_size=60),
    t=st.floats(0, 1e6).map(lambda t: round(t, 6)),
)
def test_bytes_and_texts_of_any_kind_survive(
    tmp_path_factory: pytest.TempPathFactory, body: bytes | None, detail: str | None, title: str, t: float
) -> None:
    one = answer(t, Fact.METRICS, body, detail=detail, error=Why.OTHER, title=title)
    with open_capture(written(tmp_path_factory.mktemp("any") / "c", [one])) as capture:
        (back,) = capture.answers()
    assert (back.body, back.detail, back.more["title"], back.t) == (one.body, one.detail, title, t)


def test_the_layout_is_that_of_the_format(tmp_path: Path) -> None:
    path = written(tmp_path / "c", EVERY_KIND)
    lines = [json.loads(line) for line in (path / "index.jsonl").read_text().splitlines()]
    assert lines[0] == {
        "t": 0.1, "at": "2026-03-04T05:06:07.990000Z", "instance": "prefill-0", "fact": "metrics",
        "ask": "GET http://10.0.0.1:30000/metrics", "file": "prefill-0/metrics/00000.1.0.prom", "took": 0.25,
        "status": 200, "error": None, "detail": None, "content_type": "text/plain; version=0.0.4",
        "sha256": sha256(b"x 1\n").hexdigest(),
    }  # fmt: skip
    assert lines[2]["file"] is None
    assert [line["file"] for line in lines if line["fact"] == "script"] == [
        "prefill-0/script/00002.0.0.sh",
        "prefill-0/script/00002.0.1.sh",
    ]
    assert next(line["file"] for line in lines if line["fact"] == "sockets") == "host-gpu-01/sockets/00001.0.0.txt"
    assert lines[-1]["file"] == "decode-0/loads/90061.5.0.json"


def test_the_manifest_names_each_file_and_what_is_in_it(tmp_path: Path) -> None:
    path = written(tmp_path / "c", EVERY_KIND)
    manifest = json.loads((path / "manifest.json").read_text())
    files = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()} - {"manifest.json"}
    assert manifest["format"] == 1
    assert manifest["tool"].startswith("pdctl ")
    assert manifest["started"] == "2026-03-04T05:06:07.890000Z"
    assert manifest["ended"] > manifest["started"]
    assert manifest["sha256"] == {name: sha256((path / name).read_bytes()).hexdigest() for name in files}


def test_an_empty_recording_is_one(tmp_path: Path) -> None:
    with open_capture(written(tmp_path / "c", [])) as capture:
        assert (list(capture.answers()), capture.seconds, capture.cut_short) == ([], 0.0, False)


def test_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert written(tmp_path / "c", []).stat().st_mode & 0o077 == 0


# --- secrets ----------------------------------------------------------------------------------------------------------

SECRET = "s3cr3t-value-that-must-not-show"


@pytest.mark.parametrize(
    ("fact", "body"),
    [
        (Fact.SERVER_INFO, b'{"api_key":"%s","admin_api_key": "%s","port":30000}'),
        (Fact.ENVIRON, b"PATH=/bin\0HF_TOKEN=%s\0OPENAI_API_KEY=%s\0"),
        (Fact.ENVIRON, b"PATH=/bin\nHF_TOKEN=%s\nPASSWORD=%s\n"),
        (Fact.CMDLINE, b"python\0-m\0sglang.launch_server\0--api-key\0%s\0--admin-api-key=%s\0"),
        (Fact.PROCESSES, b'[{"pid":1,"cmdline":["sglang","--api-key","%s","--admin-api-key=%s"]}]'),
        (Fact.LOG, b"server_args=ServerArgs(api_key='%s', port=1)\nAuthorization: Bearer %s\n"),
        (Fact.SCRIPT, b"export ADMIN_API_KEY=%s\nexec sglang serve --api-key '%s'\n"),
        (Fact.UNIT, b"Environment=API_KEY=%s\nExecStart={ argv[]=sglang --api-key %s ; }\n"),
        (Fact.STACKS, b"Process 7: sglang --api-key %s\nProcess 8: sglang --api-key %s\n"),
    ],
    ids=lambda value: value.value if isinstance(value, Fact) else "",
)
@pytest.mark.parametrize("name", ["c", "c.tar.gz"])
def test_no_secret_is_written(tmp_path: Path, fact: Fact, body: bytes, name: str) -> None:
    said = body % (SECRET.encode(), SECRET.encode())
    path = written(tmp_path / name, [answer(0.0, fact, said)])
    with open_capture(path) as capture:
        (back,) = capture.answers()
    assert back.body is not None
    assert back.body != said
    assert SECRET.encode() not in back.body
    if path.is_dir():
        assert all(SECRET.encode() not in p.read_bytes() for p in path.rglob("*") if p.is_file())


def test_no_secret_in_asks_details_further_keys_and_inventory(tmp_path: Path) -> None:
    cluster = Cluster(
        "c",
        (Instance("p", Role.PREFILL, f"http://ops:{SECRET}@10.0.0.1:1", restart_command=("run", "--api-key", SECRET)),),
    )
    one = answer(
        0.0,
        ask=f"curl -H 'Authorization: Bearer {SECRET}' http://x",
        detail=f"api_key={SECRET} refused",
        stderr=f"password: {SECRET}",
    )
    path = written(tmp_path / "c", [one], cluster)
    for name in ("index.jsonl", "cluster.toml"):
        assert SECRET not in (path / name).read_text()
    with open_capture(path) as capture:
        assert capture.cluster.instances[0].name == "p"


def test_no_secret_in_what_came_instead_of_numbers(tmp_path: Path) -> None:
    """Pages of numbers are kept as they came; an error page, and a worker's URL with a login, are no numbers."""
    refused = answer(0.0, Fact.METRICS, f'{{"error": "bad key", "api_key": "{SECRET}"}}'.encode(), status=401)
    label = answer(1.0, Fact.METRICS, f'smg_worker_health{{worker="http://ops:{SECRET}@10.0.0.1:1"}} 1\n'.encode())
    with open_capture(written(tmp_path / "c", [refused, label])) as capture:
        bodies = [back.body or b"" for back in capture.answers()]
    assert len(bodies) == 2 and not any(SECRET.encode() in body for body in bodies)


def test_a_workers_rank_is_no_login(tmp_path: Path) -> None:
    body = b'{"workers": [{"url": "http://10.0.0.1:30000@3", "worker_type": "prefill"}]}'
    with open_capture(written(tmp_path / "c", [answer(0.0, Fact.WORKERS, body)])) as capture:
        assert next(capture.answers()).body == body


def test_what_is_no_secret_stays_byte_for_byte(tmp_path: Path) -> None:
    body = b'{"tokenizer_path":"/m","eos_token":"</s>","api_key":null,"max_total_tokens":8192,"bos_token":"<s>"}'
    with open_capture(written(tmp_path / "c", [answer(0.0, Fact.SERVER_INFO, body)])) as capture:
        assert next(capture.answers()).body == body


# --- cut short --------------------------------------------------------------------------------------------------------


def test_without_a_close_everything_added_is_there(tmp_path: Path) -> None:
    writer = CaptureWriter(tmp_path / "c", CLUSTER)
    for each in EVERY_KIND:
        writer.add(each)
    with open_capture(tmp_path / "c") as capture:
        assert (tuple(capture.answers()), capture.cut_short) == (EVERY_KIND, True)
    writer.close()
    writer.close()
    with open_capture(tmp_path / "c") as capture:
        assert not capture.cut_short


def test_killed_at_any_moment_it_can_be_read(tmp_path: Path) -> None:
    code = (
        "import sys; from answers import CLUSTER, answer; from pdctl.reach.capture_write import CaptureWriter\n"
        "writer = CaptureWriter(sys.argv[1], CLUSTER)\n"
        "for n in range(10**9):\n"
        "    writer.add(answer(n / 100, body=b'x %d\\n' % n))\n"
        "    if n == 200: print('going', flush=True)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "c")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"going\n"
        time.sleep(0.1)
        child.send_signal(signal.SIGKILL)
    with open_capture(tmp_path / "c") as capture:
        bodies = [each.body for each in capture.answers()]
        assert capture.cut_short
    assert len(bodies) > 200
    assert bodies == [b"x %d\n" % n for n in range(len(bodies))]


def test_ctrl_c_leaves_it_whole(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), CaptureWriter(tmp_path / "c.tar.gz", CLUSTER) as writer:
        writer.add(EVERY_KIND[0])
        raise KeyboardInterrupt
    with open_capture(tmp_path / "c.tar.gz") as capture:
        assert (len(capture), capture.cut_short) == (1, False)


# --- in the way, and full ---------------------------------------------------------------------------------------------


def test_nothing_is_ever_written_over(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.txt").write_text("years of work")
    (tmp_path / "c.tar.gz").write_text("too")
    (tmp_path / "file").write_text("too")
    for name in ("c", "c.tar.gz", "file"):
        with pytest.raises(CaptureError, match="is there already"):
            CaptureWriter(tmp_path / name, CLUSTER)
    assert (tmp_path / "c" / "thesis.txt").read_text() == "years of work"
    assert not (tmp_path / "c.partial").exists()


def test_an_empty_directory_will_do(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    written(tmp_path / "c", EVERY_KIND)


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match="cannot be recorded to: Not a directory"):
        CaptureWriter(tmp_path / "file" / "c", CLUSTER)


@contextlib.contextmanager
def small_files(most: int) -> Iterator[None]:
    """Stands in for a full disk: no file may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_body_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    with CaptureWriter(tmp_path / "c", CLUSTER) as writer:
        with small_files(4096), pytest.raises(CaptureError, match="cannot be recorded to"):
            writer.add(answer(0.0, body=b"x" * 10_000))
        writer.add(answer(1.0))
    with open_capture(tmp_path / "c") as capture:
        assert [each.t for each in capture.answers()] == [1.0]
    assert len(list((tmp_path / "c" / "prefill-0" / "metrics").iterdir())) == 1


def test_subjects_of_any_name_stay_inside(tmp_path: Path) -> None:
    names = ["../../up", "/etc", "a/b", "a-b", "..", "", "host:x", "n" * 300, "\x00\n", "漢字"]
    answers = [answer(float(n), subject=name) for n, name in enumerate(names)]
    path = written(tmp_path / "in" / "c", answers)
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == {p for p in path.rglob("*") if p.is_file()}
    with open_capture(path) as capture:
        assert [each.subject for each in capture.answers()] == [name for name in names if name]


def test_an_error_the_format_does_not_know_is_written_as_other(tmp_path: Path) -> None:
    with open_capture(written(tmp_path / "c", [answer(error=Why.NOT_ASKED, detail="no host")])) as capture:
        (back,) = capture.answers()
    assert isinstance(back, Answer)
    assert (back.error, back.detail) == (Why.OTHER, "not-asked: no host")
