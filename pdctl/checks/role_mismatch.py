"""role-mismatch: settings that prefill and decode must share and do not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pdctl.checks.base import Check, Verdict, found, saw
from pdctl.checks.role_rules import DTYPE, RULES, Rule, dtype_name, model_name
from pdctl.checks.settings import same
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.engine import ServerInfo
from pdctl.model.events import Log
from pdctl.model.finding import Confidence, Evidence, RuledOut, Unchecked
from pdctl.model.window import At, Window

RESOLVED, COMMAND, SCRIPT = "server-info", "command line", "script"
UNKNOWN = re.compile(r"[$`*(]")
SAID = re.compile(r"(Page size|KV cache dtype|KV layout) mismatch:.{0,200}")
NAMED = {"Page size": "--page-size", "KV cache dtype": "--kv-cache-dtype", "KV layout": "--kv-layout"}


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """One instance's settings by source. ``doubtful`` names those a script cannot tell."""

    name: str
    by_source: Mapping[str, tuple[Mapping[str, str], At[object]]]
    doubtful: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """One setting in which a prefill and a decode differ, as both said it in the same kind of source."""

    rule: Rule
    source: str
    prefill: str
    decode: str
    seen: tuple[At[object], At[object]]

    @property
    def words(self) -> str:
        return f"{self.rule.name} {self.prefill} / {self.decode}"


def judge(window: Window, cluster: Cluster) -> Iterable[Verdict]:
    """Each pair of a prefill and a decode of one model; of pairs that differ in the same way the first is named."""
    known = {i.name: known_of(window, cluster, i.name) for i in cluster.engines}
    said = dict(mismatches_said(window, cluster))
    told: dict[tuple[str, ...], str] = {}
    for prefill, decode in pairs(cluster, known):
        found_ = tuple(differences(known[prefill], known[decode]))
        subject = f"{prefill}->{decode}"
        yield from undecided(known[prefill], known[decode], subject, said)
        key = tuple(d.words for d in found_)
        if found_ and key not in told:
            told[key] = subject
            yield finding(subject, found_, said)
        elif not found_ and not said and settled(known[prefill], known[decode]):
            yield RuledOut("role-mismatch", subject, "the settings that must agree do, as far as both are known")
    if said and not told:
        yield by_log(cluster, said)


def known_of(window: Window, cluster: Cluster, name: str) -> Known:
    """What an engine said of its settings, what its process was started with, and what its script would start."""
    sources: dict[str, tuple[Mapping[str, str], At[object]]] = {}
    info = window.last(name, Fact.SERVER_INFO, ServerInfo)
    if info is not None and info.value.args:
        args = {"--" + k.replace("_", "-"): text(v) for k, v in info.value.args.items() if v is not None}
        sources[RESOLVED] = (args, info)
    # What hosts say has modules of its own, which a look over HTTP alone need not import.
    if window.asked(name, Fact.CMDLINE) or window.asked(name, Fact.PROCESSES):
        sources |= started_with(window, name)
    doubtful: frozenset[str] = frozenset()
    if window.asked(name, Fact.SCRIPT):
        from pdctl.checks.scripts import scripts_of

        scripts = scripts_of(window, cluster, name)
        if scripts is not None and scripts.main.value.launcher:
            sources[SCRIPT] = (scripts.main.value.flags, scripts.main)
            doubtful = scripts.main.value.doubtful
    return Known(name, sources, doubtful)


def started_with(window: Window, name: str) -> dict[str, tuple[Mapping[str, str], At[object]]]:
    """The options of the instance's command line, as a source of settings; empty where it shows none."""
    from pdctl.checks.live_drift import main_process
    from pdctl.model.host import Cmdline, Processes

    line = window.last(name, Fact.CMDLINE, Cmdline)
    if line is not None and line.value.launcher:
        return {COMMAND: (line.value.flags, line)}
    processes = window.last(name, Fact.PROCESSES, Processes)
    main = main_process(processes.value if processes else None)
    if processes is not None and main is not None and main.launcher:
        return {COMMAND: (main.flags, processes)}
    return {}


def text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def pairs(cluster: Cluster, known: Mapping[str, Known]) -> Iterator[tuple[str, str]]:
    """Every prefill with every decode; in a cluster that serves several models, those of one model."""
    models = {name: model_of(k) for name, k in known.items()}
    prefills, decodes = ({models[i.name] for i in role} for role in (cluster.prefills, cluster.decodes))
    several = prefills == decodes and len(prefills) > 1
    for prefill in cluster.prefills:
        for decode in cluster.decodes:
            if not several or models[prefill.name] == models[decode.name]:
                yield prefill.name, decode.name


def model_of(known: Known) -> str | None:
    for values, _ in known.by_source.values():
        for flag in ("--model-path", "--model"):
            if flag in values:
                return model_name(values[flag])
    return None


def differences(prefill: Known, decode: Known) -> Iterator[Difference]:
    """Settings that differ, each by the best source in which both sides name it: resolved by the engine, else its
    command line. Scripts that differ although the running processes agree count as well: the next restart starts
    them."""
    for rule in rules_for(prefill, decode):
        running = next((s for s in (RESOLVED, COMMAND) if both_values(rule, s, prefill, decode)), None)
        for source in (running, SCRIPT):
            difference = compared(rule, source, prefill, decode) if source else None
            if difference is not None:
                yield difference
                break


def rules_for(prefill: Known, decode: Known) -> tuple[Rule, ...]:
    """The model's dtype matters where the KV takes it over."""
    kv = {dtype_name(v[0].get("--kv-cache-dtype", "auto")) for k in (prefill, decode) for v in k.by_source.values()}
    return (*RULES, DTYPE) if kv == {"auto"} else RULES


def both_values(rule: Rule, source: str, prefill: Known, decode: Known) -> tuple[str, str] | None:
    """What both sides say of a setting in one kind of source, None where one of them says nothing. An option that is
    absent from a command line has its default; one that is absent from an engine's answer is not known."""
    values = []
    for side in (prefill, decode):
        if source not in side.by_source:
            return None
        value = side.by_source[source][0].get(rule.flag, None if source == RESOLVED else rule.default)
        doubtful = source == SCRIPT and rule.flag in side.doubtful
        if value is None or doubtful or UNKNOWN.match(value):
            return None
        values.append(value)
    return values[0], values[1]


def compared(rule: Rule, source: str, prefill: Known, decode: Known) -> Difference | None:
    """The difference in one setting; None where both agree, or where one side's value is not known."""
    values = both_values(rule, source, prefill, decode)
    if values is None or same(rule.form(values[0]), rule.form(values[1])):
        return None
    return Difference(rule, source, *values, (prefill.by_source[source][1], decode.by_source[source][1]))


def settled(prefill: Known, decode: Known) -> bool:
    """Whether at least one setting that must agree was named by both sides."""
    told = {flag for k in (prefill, decode) for values, _ in k.by_source.values() for flag in values}
    return any(r.flag in told and both_values(r, s, prefill, decode) for r in RULES for s in (RESOLVED, COMMAND))


def undecided(prefill: Known, decode: Known, subject: str, said: Mapping[str, At[Log]]) -> Iterator[Unchecked]:
    """A setting that one side names and the other leaves to its default, which the release decides."""
    if RESOLVED in prefill.by_source and RESOLVED in decode.by_source:
        return
    if COMMAND not in prefill.by_source or COMMAND not in decode.by_source:
        return
    mine, other = prefill.by_source[COMMAND][0], decode.by_source[COMMAND][0]
    for rule in RULES:
        if rule.default is None and rule.flag not in said and (rule.flag in mine) != (rule.flag in other):
            value, side = (mine[rule.flag], prefill) if rule.flag in mine else (other[rule.flag], decode)
            why = f"{side.name} sets {value}, the other side leaves it to its release's default"
            yield Unchecked(f"whether {rule.name} agrees", subject, why)


def mismatches_said(window: Window, cluster: Cluster) -> Iterator[tuple[str, At[Log]]]:
    """Settings an engine itself refused, by flag, with the log that tells it."""
    for engine in cluster.engines:
        for seen in window.seen(engine.name, Fact.LOG, Log):
            for event in seen.value.events:
                told = SAID.search(event.text) or SAID.search(event.words.get("reason", ""))
                if told:
                    yield NAMED[told[1]], seen


def finding(subject: str, differs: tuple[Difference, ...], said: Mapping[str, At[Log]]) -> Verdict:
    """The finding for one pair."""
    prefill, decode = subject.split("->")
    evidence: list[Evidence] = []
    for d in differs:
        for name, value, at in ((prefill, d.prefill, d.seen[0]), (decode, d.decode, d.seen[1])):
            evidence.append(saw(f"{name} ({d.source}): {d.rule.flag} {value}", at, value=value))
    evidence += [saw(f"the engine refused it: {flag} differs", at) for flag, at in said.items()]
    reasons = "; ".join(f"{d.rule.name}: {d.rule.why}" for d in differs)
    later = all(d.source == SCRIPT for d in differs)
    when = " after a restart from the scripts" if later else ""
    return found(
        "role-mismatch",
        subject,
        f"{prefill} and {decode} must agree and do not{when}: {', '.join(d.words for d in differs)} ({reasons})",
        confidence=Confidence.CERTAIN if any(d.rule.flag in said for d in differs) else Confidence.LIKELY,
        evidence=evidence,
        against=("what runs now was not seen to differ",) if later else (),
        limits=limits(differs, said),
        next=(f"pdctl diff {prefill} {decode}", f"pdctl logs {prefill} {decode}", "pdctl explain role-mismatch"),
    )


def limits(differs: tuple[Difference, ...], said: Mapping[str, At[Log]]) -> tuple[str, ...]:
    told = []
    if not any(d.rule.flag in said for d in differs):
        told.append("no engine was seen to refuse the other: the settings alone say it")
    if any("auto" in (d.prefill, d.decode) for d in differs):
        told.append("auto is resolved by each engine from its model: it may come to the same")
    if any(d.rule.form is model_name for d in differs):
        told.append("models are told by the last part of their path: one model under two names looks like two")
    return tuple(told)


def by_log(cluster: Cluster, said: Mapping[str, At[Log]]) -> Verdict:
    """The finding where only the engines' own refusal is known."""
    flag, at = next(iter(said.items()))
    texts = (SAID.search(e.text) or SAID.search(e.words.get("reason", "")) for e in at.value.events)
    told = next(t[0] for t in texts if t)
    return found(
        "role-mismatch",
        at.seen.subject,
        f"{at.seen.subject} refuses its peer: {told}",
        confidence=Confidence.LIKELY,
        evidence=(saw(told, at),),
        limits=(f"neither command lines nor scripts of both sides were read: only the log says it ({flag})",),
        next=(f"pdctl logs {at.seen.subject}", "pdctl explain role-mismatch"),
    )


CHECKS = (
    Check(
        "role-mismatch",
        "settings that prefill and decode must share",
        ("role-mismatch",),
        (Fact.SERVER_INFO, Fact.CMDLINE, Fact.PROCESSES, Fact.SCRIPT, Fact.LOG),
        judge,
    ),
)
