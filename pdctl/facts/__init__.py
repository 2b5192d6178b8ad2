"""What to ask of an instance or host, and how to read the answer. Pure: no I/O, no clock.

``read`` is the one door: an answer goes in, an observation comes out, whatever the answer was.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from pdctl.facts.base import Unreadable
from pdctl.facts.http_status import refuse_bad_status
from pdctl.model.answer import Answer, Fact, Missed, Observation, Seen, Why
from pdctl.model.cluster import Instance

# Each module holds ``read(answer, instance) -> value``; it is imported when its fact is first read.
FACTS: dict[Fact, str] = {
    Fact.METRICS: "metrics",
    Fact.LOADS: "loads",
    Fact.HEALTH: "health",
    Fact.SERVER_INFO: "server_info",
    Fact.WORKERS: "workers",
    Fact.LOG: "log",
    Fact.PROCESSES: "processes",
    Fact.CMDLINE: "cmdline",
    Fact.ENVIRON: "environ",
    Fact.UNIT: "unit",
    Fact.LIMITS: "limits",
    Fact.SOCKETS: "sockets",
    Fact.NSTAT: "nstat",
    Fact.STACKS: "stacks",
    Fact.GPU: "gpu",
    Fact.SCRIPT: "script",
    Fact.FILE: "watched",
    Fact.GIT: "checkout",
    Fact.PROBE: "probe",
}

# Facts asked over HTTP: their answer's status is an HTTP status, not an exit status.
HTTP_FACTS = frozenset({Fact.METRICS, Fact.LOADS, Fact.HEALTH, Fact.SERVER_INFO, Fact.WORKERS})

Reader = Callable[[Answer, Instance | None], object]


def read(answer: Answer, instance: Instance | None) -> Observation[object]:
    """What an answer says (``Seen``), or why it says nothing (``Missed``). Never raises."""
    return Observation(
        answer.subject, answer.fact, answer.t, answer.at, answer.took, answer.ask,
        _outcome(answer, instance), answer.status, answer.more,
    )  # fmt: skip


def reader(fact: Fact) -> Reader:
    """The function that reads this fact's answers."""
    found: Reader = import_module(f"pdctl.facts.{FACTS[fact]}").read
    return found


def _outcome(answer: Answer, instance: Instance | None) -> Seen[object] | Missed:
    try:
        return Seen(_value(answer, instance))
    except Unreadable as why:
        return Missed(why.why, why.detail)
    except Exception as error:  # noqa: BLE001 - a hostile answer must not end the run; it is reported as missed
        return Missed(Why.OTHER, f"could not be read: {type(error).__name__}: {str(error)[:200]}")


def _value(answer: Answer, instance: Instance | None) -> object:
    if answer.fact in HTTP_FACTS and answer.error is not Why.REDIRECT_LOOP:
        refuse_bad_status(answer, instance)  # first: a status says more than "not-found" or "auth" does
    if answer.error is not None:
        raise Unreadable(answer.error, answer.detail or _said(answer.error))
    return reader(answer.fact)(answer, instance)


def _said(error: Why) -> str:
    return "unauthorized" if error is Why.AUTH else str(error)
