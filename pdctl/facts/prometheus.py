"""What a Prometheus server remembers of metrics pages: its HTTP API's answers -> the pages, as they were scraped.

Samples of one scrape carry the moment of that scrape, whatever their metric (``scrape.go`` appends them all with the
same timestamp). So the raw samples of the wanted metrics, asked for with a range selector over the time of interest,
are the wanted part of every page that was scraped, with nothing filled in between: a graph's ``query_range`` would
repeat the last value at each step for up to five minutes, which looks like a gauge that stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from pdctl.facts import names
from pdctl.facts.base import Unreadable
from pdctl.facts.json_body import object_of, read_json, text_of
from pdctl.model.answer import Answer, Fact, Why
from pdctl.model.ask import HttpAsk
from pdctl.model.cluster import Cluster, Instance, KeySource, Role
from pdctl.model.engine import Gauge

UP = "up"  # by every scrape: 1 when the page came
TOOK = "scrape_duration_seconds"
WANTED = frozenset(name.decode() for name in (*names.ENGINE_WANTED, *names.ROUTER_WANTED))
# What every page of an engine holds, and what a router writes as soon as it has workers or requests.
ENGINES = tuple(p + row for p in names.SGLANG_PREFIXES for row in names.SGLANG[Gauge.RUNNING]) + tuple(
    p + row for p in names.VLLM_PREFIXES for row in names.VLLM[Gauge.RUNNING]
)
ROUTERS = (*names.ROUTER_HEALTHY, names.ROUTER_CONNECTIONS, names.SMG_REQUESTS, names.SGL_REQUESTS)
SUBJECT = "prometheus"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MOST_NAMED = 100  # instances named in a selector; with more of them it would be longer than a URL should be
_LABEL_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = Mapping[str, str]
Points = Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Server:
    """A Prometheus server, or what speaks its API. ``match``: label and value that every series must have."""

    url: str
    api_key: KeySource | None = None
    ca_file: str | None = None
    match: tuple[tuple[str, str], ...] = ()
    timeout: float = 30.0

    def ask(self, path: str, **params: str) -> HttpAsk:
        url = f"{self.url.rstrip('/')}/api/v1/{path}?{urlencode(params)}"
        return HttpAsk(SUBJECT, Fact.METRICS, url, self.timeout, api_key=self.api_key, ca_file=self.ca_file)

    def names_ask(self, start: float, end: float) -> HttpAsk:
        """Which metrics there were between two epoch seconds."""
        return self.ask("label/__name__/values", start=f"{start:.3f}", end=f"{end:.3f}")

    def labels_ask(self, start: float, end: float) -> HttpAsk:
        """The labels of the series by which engines and routers are known, without a sample."""
        wanted = [f'__name__=~"{"|".join(map(_plain, (*ENGINES, *ROUTERS)))}"', *self._matchers()]
        return self.ask("series", **{"match[]": f"{{{','.join(wanted)}}}"}, start=f"{start:.3f}", end=f"{end:.3f}")

    def samples_ask(self, name: str, start: float, end: float, places: Sequence[str] = ()) -> HttpAsk:
        """The raw samples of one metric after ``start``, up to and with ``end``, of the targets named, or of all."""
        wanted = [f'__name__="{_quoted(name)}"', *self._matchers()]
        if 0 < len(places) <= MOST_NAMED:
            wanted.append(f'instance=~"{_quoted("|".join(map(_plain, places)))}"')
        span = max(1, round((end - start) * 1000))
        return self.ask("query", query=f"{{{','.join(wanted)}}}[{span}ms]", time=f"{end:.3f}")

    def _matchers(self) -> Iterator[str]:
        yield from (f'{label}="{_quoted(value)}"' for label, value in self.match)


@dataclass(frozen=True, slots=True)
class Target:
    """What Prometheus scrapes: a job's instance."""

    job: str
    instance: str


@dataclass(frozen=True, slots=True)
class Series:
    """One series' raw samples: epoch seconds, and the value as the page had it."""

    labels: Labels
    points: Points

    @property
    def target(self) -> Target:
        return target_in(self.labels)


def target_in(labels: Labels) -> Target:
    """The target that a series is of."""
    return Target(labels.get("job", ""), labels.get("instance", ""))


@dataclass(slots=True)
class Scrape:
    """One scrape of a target. ``up`` is None where Prometheus does not say, ``took`` in seconds."""

    lines: list[str] = field(default_factory=list)
    up: bool | None = None
    took: float = 0.0


def read_names(answer: Answer) -> frozenset[str]:
    """The names of all metrics. Raises Unreadable for an answer of anything but Prometheus."""
    rows = _data(answer)
    if not isinstance(rows, list):
        raise Unreadable(Why.NOT_JSON, "JSON that does not list metrics")
    return frozenset(row for row in rows if isinstance(row, str))


def read_series(answer: Answer) -> tuple[Series, ...]:
    """The series of a query with a range selector. Raises Unreadable, with Prometheus's own words where it refused."""
    data = object_of(_data(answer))
    rows = data.get("result")
    if data.get("resultType") != "matrix" or not isinstance(rows, list):
        raise Unreadable(Why.NOT_JSON, f"samples were asked for, and {data.get('resultType') or 'nothing'} came")
    return tuple(_series(object_of(row)) for row in rows)


def read_labels(answer: Answer) -> tuple[Labels, ...]:
    """The labels of each series there was. Raises Unreadable."""
    rows = _data(answer)
    if not isinstance(rows, list):
        raise Unreadable(Why.NOT_JSON, "JSON that does not list series")
    return tuple(_labels(row) for row in rows)


def _data(answer: Answer) -> object:
    body = object_of(read_json(answer))
    status = text_of(body.get("status"))
    if status == "error":
        words = f"{text_of(body.get('errorType')) or 'error'}: {text_of(body.get('error')) or 'without words'}"
        raise Unreadable(Why.HTTP_ERROR, f"Prometheus refuses: {words}")
    if status != "success":
        raise Unreadable(Why.NOT_JSON, "JSON that is none of Prometheus's")
    return body.get("data")


def _series(row: Mapping[str, object]) -> Series:
    labels = _labels(row.get("metric"))
    values = row.get("values")
    points = [_point(pair) for pair in values] if isinstance(values, list) else []
    return Series(labels, [point for point in points if point is not None])


def _labels(value: object) -> Labels:
    return {key: text for key, text in object_of(value).items() if isinstance(text, str)}


def _point(pair: object) -> tuple[float, str] | None:
    match pair:
        case [int() | float() as at, str() as value]:
            return float(at), value
    return None


def pages_of(series: Iterable[tuple[str, Series]], wanted: Mapping[Target, str]) -> dict[str, dict[float, Scrape]]:
    """The scrapes of each instance by their moment, from series with the names of their metrics. ``wanted`` says which
    target is which instance; other targets are left out."""
    out: dict[str, dict[float, Scrape]] = {}
    for name, one in series:
        instance = wanted.get(one.target)
        if instance is not None:
            _into(out.setdefault(instance, {}), name, one)
    return out


def _into(scrapes: dict[float, Scrape], name: str, series: Series) -> None:
    head = _head(name, series.labels)
    for at, value in series.points:
        scrape = scrapes.setdefault(at, Scrape())
        if name == UP:
            scrape.up = value == "1"
        elif name == TOOK:
            scrape.took = _seconds(value)
        else:
            scrape.lines.append(f"{head} {value}\n")


def _head(name: str, labels: Labels) -> str:
    """``name{label="value",...}`` as a page has it; what Prometheus added to every series is harmless there."""
    pairs = [f'{key}="{value.translate(_LABEL_ESCAPES)}"' for key, value in labels.items() if key != "__name__"]
    return f"{name}{{{','.join(pairs)}}}"


def _seconds(value: str) -> float:
    try:
        return max(0.0, float(value))
    except ValueError:
        return 0.0


# --- which target is which instance ------------------------------------------------------------------------------


def targets_of(cluster: Cluster, targets: Iterable[Target]) -> dict[Target, str]:
    """The targets that are instances of the cluster. An engine that listens on 127.0.0.1 is known to Prometheus by its
    host's name, so that and the port will do. Of several jobs that scrape one instance the first by name is taken."""
    by_place: dict[str, list[Target]] = {}
    for target in targets:
        by_place.setdefault(target.instance.lower(), []).append(target)
    found: dict[Target, str] = {}
    for instance in cluster.instances:
        for place in places_of(cluster, instance):
            if place in by_place:
                found[min(by_place[place], key=lambda t: t.job)] = instance.name
                break
    return found


def places_of(cluster: Cluster, instance: Instance) -> tuple[str, ...]:
    """The ``instance`` labels under which Prometheus may scrape this instance, likeliest first."""
    if instance.metrics is None or instance.role is Role.PROXY:
        return ()
    parts = urlsplit(instance.metrics)
    name, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    hosts = [name]
    if instance.host is not None:
        ssh = next((h.ssh for h in cluster.hosts if h.name == instance.host), None)
        hosts += [instance.host, *([_host_in(ssh)] if ssh else [])]
    if name in LOOPBACK:
        hosts += [other for other in LOOPBACK if other != name]
    shown = [f"[{host}]" if ":" in host else host for host in hosts]
    return tuple(dict.fromkeys(f"{host}:{port}".lower() for host in shown))


def _host_in(ssh: str) -> str:
    """The name in ``[user@]name[:port]``."""
    place = ssh.rpartition("@")[2]
    name, _, port = place.rpartition(":")
    return name.strip("[]") if port.isdigit() and name else place


def cluster_in(found: Iterable[Labels]) -> Cluster:
    """The cluster as the labels tell it, for when no inventory does, named after its scrape jobs: engines say what they
    are (``engine_type``: prefill, decode; SGLang 0.4.6 and later), routers are what exports a router's metrics."""
    places: dict[Role, set[str]] = {Role.PREFILL: set(), Role.DECODE: set(), Role.ROUTER: set()}
    jobs: set[str] = set()
    for labels in found:
        if (role := _role(labels)) is not None:
            places[role].add(target_in(labels).instance)
            jobs.add(target_in(labels).job)
    return Cluster(
        "+".join(sorted(jobs)) or "past",
        tuple(
            Instance(f"{role}-{number}", role, _url(role, place), f"http://{place}/metrics")
            for role, known in places.items()
            for number, place in enumerate(sorted(known - {""}))
        ),
        source="Prometheus's labels",
    )


def _role(labels: Labels) -> Role | None:
    if labels.get("__name__") in ROUTERS:
        return Role.ROUTER
    kind = labels.get("engine_type")
    return Role(kind) if kind in (Role.PREFILL, Role.DECODE) else None


def _url(role: Role, place: str) -> str | None:
    """An engine's metrics are on its own port, a router's are not."""
    return None if role is Role.ROUTER else f"http://{place}"


def release_body(release: str, role: Role) -> bytes:
    """What ``--release`` says, in the form in which an engine says it."""
    return json.dumps({"version": release, "disaggregation_mode": str(role)}).encode()


def _quoted(text: str) -> str:
    return text.translate(_LABEL_ESCAPES)


def _plain(text: str) -> str:
    """A regular expression for just this text; RE2's special characters, each behind a backslash."""
    return "".join(f"\\{char}" if char in r"\.+*?()|[]{}^$" else char for char in text)
