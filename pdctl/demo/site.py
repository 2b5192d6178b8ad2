"""Puts a simulated cluster on loopback: engines, bootstrap servers, router and its metrics, in real time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from random import Random

from pdctl.demo import generate
from pdctl.demo.core.answers import Reply, answer
from pdctl.demo.core.cluster import SimCluster
from pdctl.demo.core.engine import SimEngine
from pdctl.demo.core.leg import Leg
from pdctl.demo.core.passes import Passes
from pdctl.demo.core.routerstate import Job
from pdctl.demo.http import Answer, Listener, Request, Stream

PULSE = 0.1  # seconds between looks at the clock while nobody waits
FINE = 0.004  # the same while somebody does
TOKENS_EVERY = 0.04


class Site:
    """The servers over one simulation. Time passes as on the wall from the moment it is made."""

    def __init__(self, cluster: SimCluster, clock: Callable[[], float] = time.monotonic) -> None:
        self.cluster = cluster
        self.rng = Random(cluster.spec.seed + 1)
        self._clock = clock
        self._offset = cluster.tl.now - clock()
        self.waiting = 0
        self.engines: list[tuple[SimEngine, Listener]] = []
        self.others: list[Listener] = []

    def now(self) -> float:
        """Brings the simulation up to the present."""
        at = self._clock() + self._offset
        self.cluster.advance_to(at)
        return at

    async def open(self) -> None:
        """Listens on every port."""
        for listener in [*self.others, *(listener for _, listener in self.engines)]:
            await listener.resume()

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until told to stop."""
        try:
            while not stop.is_set():
                await self._beat()
        finally:
            for listener in [*self.others, *(listener for _, listener in self.engines)]:
                await listener.pause()

    async def _beat(self) -> None:
        self.now()
        for engine, listener in self.engines:
            await (listener.pause() if engine.down else listener.resume())
        await asyncio.sleep(FINE if self.waiting else PULSE)

    # -- an engine ---------------------------------------------------------------------------------------------
    async def engine(self, engine: SimEngine, request: Request) -> Answer:
        """What an engine's port answers."""
        self.now()
        name, path = engine.spec.name, request.path
        if request.method == "PRI":
            return self._garbage(engine)
        if request.method == "POST":
            return await self._post(engine, request)
        if path in ("/health", "/health_generate"):
            status = await self._health(engine)
            return Reply(status, b"")
        return answer(self.cluster, name, request.target)

    def _garbage(self, engine: SimEngine) -> Reply:
        """An HTTP/2 preface, as routers send it to find out: a request the engine does not know."""
        endpoint = engine.traits.garbage_endpoint
        engine.front.begin(endpoint, "PRI", stream=False)
        engine.front.end(endpoint, "PRI", 404, stream=False)
        engine.accessed("PRI", "%2A", 404, "2.0")
        return Reply(404, b'{"detail":"Not Found"}')

    async def _health(self, engine: SimEngine) -> int:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        engine.probe(lambda status: None if done.done() else done.set_result(status))
        return await self._awaited(done)

    async def _awaited(self, done: asyncio.Future[int]) -> int:
        self.waiting += 1
        try:
            return await done
        finally:
            self.waiting -= 1

    async def _post(self, engine: SimEngine, request: Request) -> Answer:
        body = request.json()
        if request.path in generate.PATHS:
            if body is None:
                return Reply(400, generate.error(400, "not a JSON object"))
            return await self._generate(engine, request, generate.read_wanted(request.path, body))
        if request.path == "/abort_request" and body is not None:
            rid = str(body.get("rid") or "")
            if rid or body.get("abort_all"):
                engine.abort_all(rid)
            return Reply(200, b"")
        return Reply(404, b'{"detail":"Not Found"}')

    async def _generate(self, engine: SimEngine, request: Request, wanted: generate.Wanted) -> Answer:
        fake = wanted.host == generate.FAKE_HOST
        if wanted.room is None and not fake:
            return Reply(400, generate.error(400, "Disaggregated request received without bootstrap room id."))
        rid = wanted.rid or f"{self.rng.getrandbits(128):032x}"
        leg = Leg(
            rid, wanted.room or 0, wanted.prompt, wanted.max_new, born=self.cluster.tl.now, stream=wanted.stream,
            fake=fake, endpoint=request.path,
        )  # fmt: skip
        ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        leg.done = lambda status, text: None if ended.done() else ended.set_result((status, text))
        engine.submit(leg, wanted.dp)
        waiter = _Waiter(self, request, ended, lambda: engine.leave(leg))
        if wanted.stream:
            total = (lambda: 0) if engine.spec.is_prefill else (lambda: _progress(engine, leg))
            return Stream(waiter.events(request.path, engine.spec.model, rid, wanted, total, leg))
        status, text = await waiter.result()
        tokens = 1 if engine.spec.is_prefill else leg.generated
        if status != 200:
            return Reply(status if status != 499 else 500, generate.error(500, text or "aborted"))
        return Reply(200, generate.whole(request.path, engine.spec.model, rid, wanted, tokens))

    # -- bootstrap server and router ---------------------------------------------------------------------------
    async def bootstrap(self, request: Request) -> Answer:
        if request.method == "GET" and request.path == "/health":
            return Reply(200, b"OK", "text/plain; charset=utf-8")
        return Reply(404, b"404: Not Found", "text/plain; charset=utf-8")

    async def router(self, request: Request) -> Answer:
        self.now()
        router = self.cluster.router
        if request.method == "POST" and request.path in generate.PATHS:
            return await self._routed(request)
        if request.path == "/metrics":
            return Reply(404)
        router.count("http_requests_total", method=request.method, path=request.path)
        return answer(self.cluster, router.spec.name, request.target)

    async def router_metrics(self, request: Request) -> Answer:
        self.now()
        router = self.cluster.router
        return answer(self.cluster, router.spec.name, "/metrics") if request.path == "/metrics" else Reply(404)

    async def _routed(self, request: Request) -> Answer:
        router, body = self.cluster.router, request.json()
        if body is None:
            return Reply(400, json.dumps({"error": {"code": "bad_request", "message": "not JSON"}}).encode())
        wanted = generate.read_wanted(request.path, body)
        ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        got = [0]
        job = Job(wanted.prompt, wanted.max_new, wanted.stream, request.path)

        def done(status: int, tokens: int) -> None:
            got[0] = tokens
            if not ended.done():
                ended.set_result((status, ""))

        job.done = done
        router.submit(job)
        model = self.cluster.engines[0].spec.model
        status, _ = await _Waiter(self, request, ended, lambda: router.leave(job)).result()
        if status != 200:
            message = "No available servers: No available prefill workers (all circuits open or unhealthy)"
            code = "server_selection_failed" if status == 503 else "decode_error"
            return Reply(status, json.dumps({"error": {"code": code, "message": message}}).encode())
        if wanted.stream:
            return Stream(_at_once(request.path, model, job.request_id, wanted, got[0]))
        return Reply(200, generate.whole(request.path, model, job.request_id, wanted, got[0]))


def _progress(engine: SimEngine, leg: Leg) -> int:
    for rank in engine.ranks:
        passes = getattr(rank, "passes", None)
        if isinstance(passes, Passes) and leg in passes.running:
            return passes.progress(leg)
    return leg.generated


async def _at_once(path: str, model: str, rid: str, wanted: generate.Wanted, tokens: int) -> AsyncIterator[bytes]:
    yield generate.event(path, model, rid, wanted, tokens, tokens, last=True)
    yield b"data: [DONE]\n\n"


class _Waiter:
    """Waits for a request's end, and leaves it when its client does."""

    def __init__(
        self, site: Site, request: Request, ended: asyncio.Future[tuple[int, str]], leave: Callable[[], None]
    ) -> None:
        self._site, self._request, self._ended, self._leave = site, request, ended, leave

    async def result(self) -> tuple[int, str]:
        """Status and text. Raises ConnectionResetError when the client left first."""
        self._site.waiting += 1
        try:
            while not self._ended.done():
                await asyncio.wait([self._ended], timeout=0.1)
                self._check()
            return self._ended.result()
        finally:
            self._site.waiting -= 1

    async def events(
        self, path: str, model: str, rid: str, wanted: generate.Wanted, total: Callable[[], int], leg: Leg
    ) -> AsyncIterator[bytes]:
        """Server-sent events as tokens come."""
        sent = 0
        self._site.waiting += 1
        try:
            while not self._ended.done():
                await asyncio.wait([self._ended], timeout=TOKENS_EVERY)
                self._check()
                have = total()
                if have > sent and not self._ended.done():
                    yield generate.event(path, model, rid, wanted, have - sent, have, last=False)
                    sent = have
            status, text = self._ended.result()
            have = max(leg.generated, 1) if status == 200 else sent
            if status == 200:
                yield generate.event(path, model, rid, wanted, have - sent, have, last=True)
            else:
                yield b"data: " + generate.error(500, text or "aborted") + b"\n\n"
            yield b"data: [DONE]\n\n"
        finally:
            self._site.waiting -= 1

    def _check(self) -> None:
        if self._request.gone() and not self._ended.done():
            self._leave()
            raise ConnectionResetError("the client left")
