"""A simulated PD router: it picks pairs, sends both legs, retries, opens its breakers, and ages what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Protocol

from pdctl.demo.core import routerlog
from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.fabric import Fabric
from pdctl.demo.core.leg import Leg
from pdctl.demo.core.rank import Counts
from pdctl.demo.core.routerstate import CLOSED, DURATION_BOUNDS, HALF_OPEN, OPEN, Job, RouterSpec, WorkerState
from pdctl.demo.core.series import Series
from pdctl.demo.core.timeline import Timeline

LOAD_POLL = 10.0


class Surroundings(Protocol):
    tl: Timeline
    fabric: Fabric
    rng: Random

    def utc(self, t: float) -> str: ...  # as router lines write it


class SimRouter:
    """The router. ``written`` receives each log line."""

    def __init__(
        self, spec: RouterSpec, world: Surroundings, engines: list[SimEngine], written: Callable[[str], None]
    ) -> None:
        self.spec = spec
        self.world = world
        self.tl = world.tl
        self.rng = world.rng
        self._written = written
        self.workers = [WorkerState(engine, _uuid(self.rng)) for engine in engines]
        self.jobs: dict[Job, None] = {}
        self.series = Series({"http": DURATION_BOUNDS, "router": DURATION_BOUNDS})
        self.aged: list[float] | None = None  # ages in flight as of the last sample
        self.leaked_connections = 0
        self._turn = Counter[str]()
        self.views: list[tuple[WorkerState, int, Counts]] = []
        self.tl.after(spec.age_sample, self._sample_ages)
        if spec.shape == "smg":
            self.tl.after(LOAD_POLL, self._poll_loads)
        if spec.health_interval:
            self.tl.after(spec.health_interval * self.rng.random(), self._check_health)

    # -- requests ----------------------------------------------------------------------------------------------
    def submit(self, job: Job) -> None:
        job.born = self.tl.now
        job.request_id = _request_id(job.path, self.rng)
        self.jobs[job] = None
        self.count("http_requests_total", method="POST", path=job.path)
        self.log(routerlog.started(self.spec.shape, job.path, job.request_id))
        self._try(job)

    def leave(self, job: Job) -> None:
        """The client is gone: both legs are called off."""
        if job.over:
            return
        self._release(job, cancel=True)
        job.over = True
        self.jobs.pop(job, None)
        if self.spec.shape == "smg":
            self._count_response(job, "499", "client_closed_request")
            self.log(routerlog.gone(job.path, job.request_id, self._micros(job)))
        else:
            self.leaked_connections = min(self.leaked_connections + 1, 3)

    def _try(self, job: Job) -> None:
        if job.over:
            return
        job.tries += 1
        pair = [self._select("prefill", None), self._select("decode", job.decode)]
        chosen = [worker for worker in pair if worker is not None]
        if len(chosen) < 2:
            self._no_pair(job, "prefill" if pair[0] is None else "decode")
            return
        endpoint = _endpoint(job.path)
        if job.tries == 1:
            streaming = "true" if job.stream else "false"
            self.count("router_requests_total", endpoint=endpoint, streaming=streaming)
        room = self.rng.getrandbits(63)
        job.answers = {}
        job.pair = chosen
        job.legs = [(worker, self._leg(job, worker, room)) for worker in chosen]
        for worker, leg in job.legs:
            worker.active += 1
            self.count("worker_selection_total", worker_type=worker.kind)
            if not job.lost:
                self._send(job, worker, leg)
        if job.held:
            self.world.fabric.hold(room, job.held)

    def _send(self, job: Job, worker: WorkerState, leg: Leg) -> None:
        if worker.engine.down:
            self.tl.after(0.001, self._answer, job, worker, leg, 502, "connection refused")
            return
        dp = job.dp if worker.kind == "prefill" else None
        self.tl.after(0.001, worker.engine.submit, leg, dp)

    def _leg(self, job: Job, worker: WorkerState, room: int) -> Leg:
        rid = f"{self.rng.getrandbits(128):032x}"
        leg = Leg(rid, room, job.prompt, job.max_new, born=self.tl.now, stream=job.stream, endpoint=job.path)
        leg.done = lambda status, text: self._answer(job, worker, leg, status, text)
        return leg

    def _select(self, kind: str, asked: str | None) -> WorkerState | None:
        now = self.tl.now
        for worker in self.workers:
            if worker.state == OPEN and now - worker.opened_at >= self.spec.breaker_seconds and self.jobs:
                self._to_state(worker, HALF_OPEN)
        able = [w for w in self.workers if w.kind == kind and w.healthy and w.state != OPEN]
        if asked is not None:
            able = [w for w in able if w.engine.spec.name == asked] or able
        if not able:
            return None
        self._turn[kind] += 1
        return able[self._turn[kind] % len(able)]

    def _no_pair(self, job: Job, kind: str) -> None:
        error = f"No available {kind} workers (all circuits open or unhealthy)"
        self.log(routerlog.no_pair(job.request_id, error))
        code = "no_available_workers" if self.spec.shape == "smg" else "server_selection_failed"
        self._respond(job, 503, code)

    def _answer(self, job: Job, worker: WorkerState, leg: Leg, status: int, text: str) -> None:
        if job.over or (worker, leg) not in job.legs:
            return
        job.answers[worker.kind] = status
        if self.spec.shape == "smg" and worker.kind == "prefill" and status == 200:
            worker.active -= 1  # this router lowers the prefill as soon as its leg is answered
            job.legs.remove((worker, leg))
        if status >= 400:
            self._leg_failed(job, worker, status, text)
        elif worker.kind == "decode":
            self._finish(job, leg)

    def _leg_failed(self, job: Job, worker: WorkerState, status: int, text: str) -> None:
        self.log(routerlog.worker_error(worker.kind, worker.engine.spec.url, status, text))
        self.count("worker_errors_total", worker_type=worker.kind, error_type="http" if status < 502 else "connect")
        both = job.pair
        self._release(job, cancel=True)
        for each in both:
            self._outcome(each, good=False)
        if job.tries < self.spec.max_retries:
            for each in both:
                self.count("worker_retries_total", worker_type=each.kind, endpoint=_endpoint(job.path))
            self.tl.after(0.05 * 1.5**job.tries, self._try, job)
            return
        for each in both:
            self.count("worker_retries_exhausted_total", worker_type=each.kind, endpoint=_endpoint(job.path))
        self._respond(job, 500 if status < 502 else 502, "decode_error")

    def _finish(self, job: Job, leg: Leg) -> None:
        for worker in job.pair:
            self._outcome(worker, good=True)
        self._release(job, cancel=False)
        self._respond(job, 200, "", leg.generated)

    def _respond(self, job: Job, status: int, code: str, tokens: int = 0) -> None:
        if job.over:
            return
        job.over = True
        self.jobs.pop(job, None)
        self._count_response(job, str(status), code)
        took = self.tl.now - job.born
        self.series.observe("http", took, (("method", "POST"), ("path", job.path)))
        if status == 200:
            self.series.observe("router", took, (("endpoint", _endpoint(job.path)),))
        self.log(routerlog.finished(self.spec.shape, job.path, job.request_id, status, self._micros(job)))
        if job.done is not None:
            job.done(status, tokens)

    def _count_response(self, job: Job, status: str, code: str) -> None:
        where = {"path": job.path} if self.spec.shape == "smg" else {}
        self.count("http_responses_total", **where, status_code=status, error_code=code)

    def _release(self, job: Job, *, cancel: bool) -> None:
        legs, job.legs = job.legs, []
        for worker, leg in legs:
            worker.active -= 1
            if cancel and not worker.engine.down:
                leg.done = None
                self.tl.after(0.002, worker.engine.leave, leg)

    def _micros(self, job: Job) -> int:
        """Microseconds until the headers: for a stream, not until its end."""
        took = self.tl.now - job.born
        return int((min(took, 0.053) if job.stream else took) * 1e6)

    # -- breaker and health ------------------------------------------------------------------------------------
    def _outcome(self, worker: WorkerState, *, good: bool) -> None:
        worker.outcomes["success" if good else "failure"] += 1
        if good:
            worker.successes += 1
            worker.failures = 0
            if worker.state == HALF_OPEN and worker.successes >= self.spec.breaker_successes:
                self._to_state(worker, CLOSED)
            return
        worker.failures += 1
        worker.successes = 0
        if not self.spec.breakers:
            return
        if worker.state == HALF_OPEN or (worker.state == CLOSED and worker.failures >= self.spec.breaker_failures):
            self._to_state(worker, OPEN)

    def _to_state(self, worker: WorkerState, state: int) -> None:
        names = ("closed", "open", "half_open")
        self.log(routerlog.breaker(worker.engine.spec.url, names[worker.state], names[state]))
        self.count("worker_cb_transitions_total", worker=worker.engine.spec.url,
                   **{"from": names[worker.state], "to": names[state]})  # fmt: skip
        worker.state = state
        worker.opened_at = self.tl.now
        worker.successes = worker.failures = 0

    def _check_health(self) -> None:
        assert self.spec.health_interval
        for worker in self.workers:
            if worker.engine.down:
                self._checked(worker, 502)
            else:
                worker.engine.probe(lambda status, worker=worker: self._checked(worker, status))  # type: ignore[misc]
        self.tl.after(self.spec.health_interval, self._check_health)

    def _checked(self, worker: WorkerState, status: int) -> None:
        good = status == 200
        self.count("worker_health_checks_total", worker_type=worker.kind, result="success" if good else "failure")
        worker.missed_checks = 0 if good else worker.missed_checks + 1
        healthy = worker.missed_checks < 3
        if healthy != worker.healthy:
            worker.healthy = healthy
            self.log(routerlog.health(worker.engine.spec.url, healthy))

    # -- what is told ------------------------------------------------------------------------------------------
    def _poll_loads(self) -> None:
        """smg alone keeps its own view of the engines, ten seconds old at most."""
        self.views = [
            (worker, rank.dp, rank.published(self.tl.now)[1]) for worker in self.workers for rank in worker.engine.ranks
        ]
        self.tl.after(LOAD_POLL, self._poll_loads)

    def _sample_ages(self) -> None:
        self.aged = [self.tl.now - job.born for job in self.jobs]
        self.tl.after(self.spec.age_sample, self._sample_ages)

    def count(self, family: str, **named: str) -> None:
        self.series.count(family, 1, tuple(named.items()))

    def log(self, line: tuple[str, str]) -> None:
        level, text = line
        self._written(routerlog.dress(self.world.utc(self.tl.now), level, text))


def _endpoint(path: str) -> str:
    return {"/generate": "generate", "/v1/completions": "completions"}.get(path, "chat")


def _request_id(path: str, rng: Random) -> str:
    head = {"/generate": "gnt", "/v1/completions": "cmpl"}.get(path, "chatcmpl")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    return f"{head}-{''.join(rng.choices(letters, k=24))}"


def _uuid(rng: Random) -> str:
    text = f"{rng.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
