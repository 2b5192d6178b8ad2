"""Scenes of hosts: raw answers as tools print them, read as a capture's would be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from pdctl import facts
from pdctl.checks.base import Verdict
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.cluster import Cluster
from pdctl.model.finding import Finding, RuledOut, Unchecked
from pdctl.model.window import Window
from tests.unit.checks.scene import START, Scene, pair

Judge = Callable[[Window, Cluster], Iterable[Verdict]]


class HostScene(Scene):
    """A scene to which raw answers can be added."""

    def __init__(self, version: str | None = None, cluster: Cluster | None = None) -> None:
        super().__init__(version)
        self.cluster = cluster or pair(router=True)

    def raw(
        self,
        t: float,
        subject: str,
        fact: Fact,
        body: str | None,
        ask: str = "ask",
        error: Why | None = None,
        detail: str | None = None,
        **more: object,
    ) -> None:
        """One answer at ``t`` seconds into the window."""
        at = START + timedelta(seconds=t)
        data = body.encode() if body is not None else None
        answer = Answer(subject, fact, ask, t, at, 0.01, None, error, detail, data, None, more)
        self.rows.append(facts.read(answer, self.cluster.instance(subject)))

    def ss(self, t: float, subject: str, *lines: str, ask: str = "ss -tanpi") -> None:
        """A socket listing without header."""
        self.raw(t, subject, Fact.SOCKETS, "".join(f"{line}\n" for line in lines), ask)

    def verdicts(self, judge: Judge) -> list[Verdict]:
        return list(judge(self.window(), self.cluster))

    def found(self, judge: Judge) -> list[Finding]:
        return [v for v in self.verdicts(judge) if isinstance(v, Finding)]

    def one(self, judge: Judge) -> Finding:
        (finding,) = self.found(judge)
        return finding

    def ruled_out(self, judge: Judge) -> list[RuledOut]:
        return [v for v in self.verdicts(judge) if isinstance(v, RuledOut)]

    def unchecked(self, judge: Judge) -> list[Unchecked]:
        return [v for v in self.verdicts(judge) if isinstance(v, Unchecked)]


def seen_in(finding: Finding) -> str:
    """Everything a finding's evidence says."""
    return " | ".join(e.saw for e in finding.evidence)
