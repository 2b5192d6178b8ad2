"""Which requests a probe makes, by which way, in which order, and how much load that is at most.

Held for every plan, whatever was wished for:
- Paths go from the inside out (engines, routers, proxies): where an inner one fails, the outer ones' failures are
  explained before they are seen.
- On each path that generates, one fresh generation goes before everything else: what else is tried is judged by its
  difference from that. Requests that clients leave come last of all, because they may leave something behind.
- At most one step loads the cluster at a time. The idle gaps of all paths pass at the same time: they load nothing.
- Nothing is sent that the plan does not count, but for what finds out how to ask: which models and which release there
  are, and the generation that is answered "not this endpoint". Counted with it are generations on fresh connections
  right after a failure (``CONTROLS`` of a stage at most).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pdctl.model.cluster import Cluster, Instance, Role
from pdctl.model.engine import parse_release
from pdctl.model.probe import Trial
from pdctl.model.probe_plan import LeftOut, ProbePlan, Stage, Way

INSIDE_OUT = (Role.PREFILL, Role.DECODE, Role.ROUTER, Role.PROXY)
GAPS = (1.0, 4.0, 6.0, 10.0, 30.0)
ONE_GAP = (1.0,)
GENTLE = (Trial.HEALTH, Trial.ONE, Trial.IDLE)
LOADED = (Trial.HEALTH, Trial.ONE, Trial.IDLE, Trial.ROUNDS, Trial.MANY)
ORDER = (*LOADED, Trial.ABORTS)
FEW = 8  # requests to one path, one at a time: no load on a cluster that serves anybody
CONTROLS = 2
SHORT = 8  # tokens, where only that an answer comes counts
SETTLE = 5.0  # seconds between requests that clients left and the look whether all is as before
# The first release that was read in which the bootstrap host 2.2.2.2 stands for no peer (disaggregation/utils.py).
NO_PEER_SINCE = (0, 4, 9, 0)


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants probed. ``names``: these instances alone; ``trials`` None: the gentle ones, or with ``load``
    all but aborts. ``gaps`` in seconds, ``tokens`` at most for one answer under load, ``repeat`` times ``one`` and
    ``many``."""

    names: tuple[str, ...] = ()
    trials: tuple[Trial, ...] | None = None
    load: bool = False
    at_once: int = 16
    agents: int = 4
    rounds: int = 6
    gaps: tuple[float, ...] | None = None
    repeat: int = 1
    tokens: int = 32


def plan_probe(
    cluster: Cluster, wish: Wish, *, versions: Mapping[str, str | None] | None = None, remote: Collection[str] = ()
) -> ProbePlan:
    """The plan for a wish. ``versions`` are the engines' releases, ``remote`` the hosts that SSH leads to."""
    ways = tuple(_way(i, versions or {}, remote) for i in _chosen(cluster, wish))
    trials = wanted_trials(wish)
    stages = [stage for way in ways for trial in _with_baseline(way, trials) if (stage := _stage(way, trial, wish))]
    left_out = [row for way in ways for trial in Trial if (row := _left_out(way, trial, trials, wish))]
    return ProbePlan(tuple(_steps(stages)), tuple(left_out))


def wanted_trials(wish: Wish) -> tuple[Trial, ...]:
    """The kinds wished for, in the order they are run."""
    chosen = wish.trials if wish.trials is not None else LOADED if wish.load else GENTLE
    return tuple(trial for trial in ORDER if trial in chosen)


def loads(plan: ProbePlan) -> bool:
    """Whether the plan loads the cluster: more than a few requests to a path, or several of a path at once."""
    by_way: dict[str, int] = {}
    for stage in plan.stages:
        by_way[stage.way.name] = by_way.get(stage.way.name, 0) + stage.requests
    return any(count > FEW for count in by_way.values()) or any(stage.at_once > 1 for stage in plan.stages)


# --- paths ------------------------------------------------------------------------------------------------------------


def _chosen(cluster: Cluster, wish: Wish) -> Iterator[Instance]:
    """The instances to probe, inside out: those named; else all, or without ``load`` those that clients talk to."""
    with_url = [i for i in cluster.instances if i.url]
    outer = [i for i in with_url if not i.is_engine]
    if wish.names:
        chosen = [i for i in with_url if i.name in wish.names]
    else:
        chosen = with_url if wish.load or not outer else outer
    yield from sorted(chosen, key=lambda i: INSIDE_OUT.index(i.role))


def _way(instance: Instance, versions: Mapping[str, str | None], remote: Collection[str]) -> Way:
    host = instance.host if instance.host in remote and not _from_outside(instance) else None
    if not instance.is_engine:
        return Way(instance, host)
    if instance.engine != "sglang":
        return Way(instance, host, note="an ordinary completion: nothing is transferred from or to another engine")
    version = versions.get(instance.name)
    release = parse_release(version)
    known = release is not None and release >= NO_PEER_SINCE
    return Way(instance, host, half=True, generates=known, note=_meaning(instance) if known else _unknown(version))


def _from_outside(instance: Instance) -> bool:
    """A proxy is probed as its clients reach it, unless it listens on its host alone."""
    here = ("://127.", "://localhost", "://[::1]")
    return instance.role is Role.PROXY and not any(place in (instance.url or "") for place in here)


def _meaning(instance: Instance) -> str:
    how = "asked directly as its own health check asks it (one token, bootstrap host 2.2.2.2: no peer)"
    if instance.role is Role.PREFILL:
        return f"{how}: shows HTTP, scheduler and a forward pass, no transfer; one token comes out"
    return f"{how}: shows HTTP, scheduler, memory and decoding, no transfer; the text means nothing"


def _unknown(version: str | None) -> str:
    said = f"release {version}" if version else "a release that is not known"
    return f"no direct generation on {said}: it takes a bootstrap host that stands for no peer, read from 0.4.9 on"


# --- stages -----------------------------------------------------------------------------------------------------------


def _with_baseline(way: Way, trials: tuple[Trial, ...]) -> tuple[Trial, ...]:
    generating = any(trial is not Trial.HEALTH for trial in trials)
    wanted = {*trials, *((Trial.ONE,) if generating and way.generates else ())}
    return tuple(trial for trial in ORDER if trial in wanted)


def _stage(way: Way, trial: Trial, wish: Wish) -> Stage | None:
    """The stage of one kind on one path, None where the path is not asked it."""
    if trial is Trial.HEALTH:
        return None if way.instance.role is Role.PROXY else Stage(way, trial, 1, seconds=1.0)
    if not way.generates:
        return None
    if trial is Trial.ONE:
        requests = wish.repeat + 1
        return Stage(way, trial, requests, tokens=requests * 16, repeat=wish.repeat, seconds=1.0 * wish.repeat)
    if trial is Trial.IDLE:
        return _idle(way, wish)
    if trial is Trial.ROUNDS:
        return _rounds(way, wish)
    return _many(way, wish) if trial is Trial.MANY else _aborts(way, wish)


def _idle(way: Way, wish: Wish) -> Stage:
    gaps = tuple(sorted(set(wish.gaps if wish.gaps is not None else GAPS if wish.load else ONE_GAP)))
    requests = 2 * len(gaps) + 1
    return Stage(
        way, Trial.IDLE, requests, tokens=requests * SHORT, gaps=gaps, most_tokens=SHORT,
        seconds=max(gaps, default=0.0) + 0.5 * len(gaps),
    )  # fmt: skip


def _rounds(way: Way, wish: Wish) -> Stage:
    requests = wish.agents * wish.rounds + CONTROLS
    return Stage(
        way, Trial.ROUNDS, requests, wish.agents, requests * wish.tokens, stream=True, agents=wish.agents,
        rounds=wish.rounds, most_tokens=wish.tokens, seconds=1.0 * wish.rounds,
    )  # fmt: skip


def _many(way: Way, wish: Wish) -> Stage:
    requests = wish.at_once * wish.repeat + CONTROLS
    return Stage(
        way, Trial.MANY, requests, wish.at_once, requests * wish.tokens, stream=True, repeat=wish.repeat,
        most_tokens=wish.tokens, seconds=3.0 * wish.repeat,
    )  # fmt: skip


def _aborts(way: Way, wish: Wish) -> Stage:
    requests = wish.at_once + 1
    return Stage(
        way, Trial.ABORTS, requests, wish.at_once, wish.at_once * wish.tokens + SHORT, stream=True,
        most_tokens=wish.tokens, seconds=2.0 + SETTLE,
    )  # fmt: skip


def _steps(stages: list[Stage]) -> Iterator[tuple[Stage, ...]]:
    """Health and one generation path by path, then the idle gaps of all paths at once, then what loads, aborts last."""
    first = (Trial.HEALTH, Trial.ONE)
    yield from ((stage,) for stage in stages if stage.trial in first)
    idle = tuple(stage for stage in stages if stage.trial is Trial.IDLE)
    if idle:
        yield idle
    for trial in ORDER:
        if trial not in first and trial is not Trial.IDLE:
            yield from ((stage,) for stage in stages if stage.trial is trial)


def _left_out(way: Way, trial: Trial, trials: tuple[Trial, ...], wish: Wish) -> LeftOut | None:
    if trial in _with_baseline(way, trials) and _stage(way, trial, wish) is not None:
        return None
    if trial is Trial.HEALTH and way.instance.role is Role.PROXY:
        return LeftOut(way.name, trial, "clients ask a proxy for none")
    if trial is not Trial.HEALTH and not way.generates:
        return LeftOut(way.name, trial, way.note or "it does not generate")
    if wish.trials is not None:
        return LeftOut(way.name, trial, "not asked for (--kind)")
    if trial is Trial.ABORTS:
        why = "only when named (--load --kind aborts): requests that clients leave may stay in engines before 0.5.13"
        return LeftOut(way.name, trial, why)
    return LeftOut(way.name, trial, "needs --load")
