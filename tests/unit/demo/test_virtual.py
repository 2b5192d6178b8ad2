"""Windows in virtual time: raw answers that the readers read, faults of the way there by their names."""

from __future__ import annotations

import pytest

from pdctl import facts
from pdctl.demo.virtual import record
from pdctl.model.answer import Answer, Fact, Missed, Seen, Why
from pdctl.model.engine import EngineMetrics, Gauge, Loads


def of(answers: tuple[Answer, ...], subject: str, fact: Fact) -> list[Answer]:
    return [a for a in answers if a.subject == subject and a.fact is fact]


@pytest.mark.parametrize("release", ["0.4.6.post5", "0.4.9", "0.5.6", "0.5.9", "0.5.15", "0.5.23"])
def test_every_answer_can_be_read(release: str) -> None:
    cluster, answers, truth = record("pinned", release, seconds=10.0, interval=5.0)
    read = [facts.read(answer, cluster.instance(answer.subject)) for answer in answers]
    missed = {(o.subject, o.fact) for o in read if isinstance(o.got, Missed)}
    absent = {("prefill-0", Fact.LOADS), ("decode-0", Fact.LOADS)} if release == "0.4.6.post5" else set()
    assert missed == absent
    older = {a.ask.endswith("/get_load") for a in answers if a.fact is Fact.LOADS and a.status == 200}
    assert older == ({release in ("0.4.9", "0.5.6")} if not absent else set())
    assert truth.t == pytest.approx(10.0)


def test_the_readers_see_what_was_simulated() -> None:
    cluster, answers, truth = record("pinned", "0.5.23", seconds=10.0, interval=5.0, count=3)
    page = facts.read(of(answers, "prefill-0", Fact.METRICS)[-1], cluster.instance("prefill-0"))
    live = facts.read(of(answers, "decode-0", Fact.LOADS)[-1], cluster.instance("decode-0"))
    assert isinstance(page.got, Seen) and isinstance(page.got.value, EngineMetrics)
    assert page.got.value.http_active == 3
    assert page.got.value.total(Gauge.INFLIGHT) in (3, 4)
    assert isinstance(live.got, Seen) and isinstance(live.got.value, Loads)
    assert live.got.value.rows[0].transfer == sum(s.count for s in truth.pinned if s.queue == "transfer") == 3


def test_cadence_and_order() -> None:
    _, answers, _ = record("load", seconds=20.0, interval=4.0, loads_every=4)
    pages = of(answers, "prefill-0", Fact.METRICS)
    assert [round(a.t) for a in pages] == [0, 4, 8, 12, 16, 20]
    assert [round(a.t) for a in of(answers, "prefill-0", Fact.LOADS)] == list(range(21))
    assert len(of(answers, "prefill-0", Fact.SERVER_INFO)) == len(of(answers, "router-0", Fact.LOG)) == 1
    assert all(a.at.utcoffset() is not None for a in answers)


@pytest.mark.parametrize(
    ("fault", "status", "error"),
    [
        ("metrics-off", 404, None),
        ("lying", 200, None),
        ("unauthorized", 401, None),
        ("empty", 200, None),
        ("truncated", 200, Why.TRUNCATED),
        ("dripping", None, Why.READ_TIMEOUT),
        ("silent", None, Why.READ_TIMEOUT),
        ("endless", 200, Why.TOO_LARGE),
        ("redirected", 307, Why.REDIRECT_LOOP),
    ],
)
def test_faults_of_the_way_there(fault: str, status: int | None, error: Why | None) -> None:
    cluster, answers, _ = record(fault, seconds=4.0, interval=4.0)
    first = of(answers, "decode-0", Fact.METRICS)[0]
    assert (first.status, first.error) == (status, error)
    assert isinstance(facts.read(first, cluster.instance("decode-0")).got, Missed)
    assert of(answers, "prefill-0", Fact.METRICS)[0].error is None


def test_a_restart_refuses_and_starts_from_nothing() -> None:
    _, answers, _ = record("restart", seconds=30.0, interval=2.0)
    errors = [a.error for a in of(answers, "decode-0", Fact.METRICS)]
    assert errors[0] is None
    assert Why.CONNECT_REFUSED in errors
    assert errors[-1] is None


def test_an_unknown_fault() -> None:
    with pytest.raises(KeyError):
        record("no-such-fault")
