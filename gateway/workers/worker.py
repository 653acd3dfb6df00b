"""One of several processes behind one port. It does what its parent says, and ends when that is gone.

Signals that end or reload a gateway are the parent's to take: a terminal or a service manager sends them to every process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from gateway import log, loops
from gateway.admin.routes import Everywhere
from gateway.downstream.responses import Elsewhere, responder
from gateway.index.opening import IndexUnusable
from gateway.server.assemble import assemble
from gateway.server.fellows import Parts
from gateway.server.lifecycle import Gateway, Stop, run
from gateway.server.listen import BACKLOG, CannotListen
from gateway.server.unix_socket import bind_unix
from gateway.settings import Settings
from gateway.tasks import Tasks
from gateway.traces import NoTraces
from gateway.upstream.entries import revived
from gateway.upstream.key import KeyUnusable
from gateway.upstream.route import NoRoute
from gateway.upstream.team import heard_team
from gateway.workers import private
from gateway.workers.control import Control
from gateway.workers.private import IDENTITY_HEADER, LEAVING_HEADER, Fellow, path_of, private_runner
from gateway.workers.relaying import ASKING, Relaying
from gateway.workers.together import Together, import_prometheus

_UNUSABLE = (NoRoute, KeyUnusable, NoTraces, IndexUnusable)
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2")


def work(told: str) -> int:
    """Be a worker whose parent is at the other end of an open socket: its number, a colon and the loop. Returns the exit code."""
    descriptor, _, loop = told.partition(":")
    for name in _IGNORED:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    return loops.run(_work(socket.socket(fileno=int(descriptor))), loops.factory(loop))


async def _work(end: socket.socket) -> int:
    control = await Control.over(end)
    tasks = Tasks(log.failed)
    crew: Crew | None = None
    try:
        begin = await control.hear()
        if begin is None:
            return 1
        crew = Crew(begin, tasks)
        log.configure(crew.settings.log_level, crew.settings.log_format)
        try:
            gateway = assemble(crew.settings, token=begin["tokens"], fellows=crew)
        except _UNUSABLE as error:
            control.say("unusable", why=str(error))
            return 1
        try:
            return await _begin(control, gateway, crew, begin["listeners"])
        finally:
            await gateway.close()
    finally:
        if crew is not None:
            await crew.close()
        await tasks.close()
        await control.close()


async def _begin(control: Control, gateway: Gateway, crew: Crew, listeners: Sequence[int]) -> int:
    """Serve once all workers are up."""
    try:
        entrance = bind_unix(crew.path)
    except CannotListen as error:
        control.say("unusable", why=str(error))
        return 1
    with entrance:
        control.say("up")
        told = await control.hear()
        while told is not None and told["say"] not in {"go", "stop", "move"}:
            # Nothing that is said meanwhile may be missed: the settings may have been read again.
            crew.take(told, gateway)
            told = await control.hear()
        if told is None or told["say"] != "go":
            # Asked to stop before anything began.
            return 0
        crew.leave_out(told["left_out"])
        await _serve(control, gateway, crew, [socket.socket(fileno=number) for number in listeners], entrance)
    return 0


async def _serve(
    control: Control, gateway: Gateway, crew: Crew, listeners: list[socket.socket], entrance: socket.socket
) -> None:
    stop, settings, tasks = Stop(), crew.settings, crew.tasks
    inner = private_runner(crew.routes, settings, crew.secret)
    await inner.setup()

    async def open_up() -> None:
        # Not before turns are taken: others may have waited for this one.
        await web.SockSite(inner, entrance, backlog=BACKLOG).start()
        control.say("ready")

    def ready() -> None:
        for listener in listeners:
            # What waits is shared out one by one, but the queue is as long as it was.
            listener.listen(BACKLOG)
        tasks.spawn(open_up(), name="open up")

    tasks.spawn(_obey(control, gateway, stop, crew), name="obey")
    try:
        await run(
            gateway,
            listeners,
            drain_timeout=settings.drain_timeout,
            drain_grace=settings.drain_grace,
            handover_timeout=settings.handover_timeout,
            stop=stop,
            ready=ready,
            backlog=1,
        )
    finally:
        await inner.cleanup()
        entrance.close()
        crew.tidy_up()


async def _obey(control: Control, gateway: Gateway, stop: Stop, crew: Crew) -> None:
    """Do what the parent says until it is gone."""
    while (heard := await control.hear()) is not None:
        match heard["say"]:
            case "stop":
                stop.ask(heard["number"])
            case "move":
                stop.move()
            case "beat":
                control.say("beat")
            case _:
                crew.take(heard, gateway)
    if not stop.asked.is_set():
        # Whoever starts another gateway must find the port free.
        stop.move()
        stop.ask(signal.SIGTERM)
        crew.forsaken = True


def _settings(told: Mapping[str, Any]) -> Settings:
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in told.items()}
    values["upstreams"] = revived(told["upstreams"])
    return Settings(**values)


class Crew:
    """All workers of this run, seen from one of them. ``begin`` is what the parent said first."""

    def __init__(self, begin: Mapping[str, Any], tasks: Tasks) -> None:
        self.number: int = begin["number"]
        self.count: int = begin["count"]
        self.key = bytes.fromhex(begin["key"])
        self.secret: str = begin["secret"]
        self._folder: str = begin["folder"]
        self.settings = _settings(begin["settings"])
        self.team = heard_team(begin["team"])
        self._relaying: Relaying | None = None
        self.tasks = tasks
        self._fellows: dict[int, Fellow] = {}
        self._parts: Parts | None = None
        self.forsaken = False
        self.path = path_of(self._folder, self.number)
        self.routes: Sequence[web.AbstractRouteDef] = ()

    def meet(self, parts: Parts) -> tuple[Elsewhere, Everywhere]:
        """Begin to work together."""
        self._parts = parts
        self._fellows = {
            number: Fellow(number, path_of(self._folder, number), self.secret, parts.settings)
            for number in range(self.count)
            if number != self.number
        }
        relaying = self._relaying = Relaying(self.number, self._fellows, parts.links.main.driver)
        together = Together(self.number, self._fellows, parts.observed, self.tasks)
        self.routes = _routes(parts, relaying, together)
        return relaying, together

    def take(self, said: Mapping[str, Any], gateway: Gateway) -> None:
        """Go on as the parent says: with other settings, or with other workers."""
        if said["say"] == "reload":
            self.team = heard_team(said["team"])
            self.settings = _settings(said["settings"])
            gateway.reconfigure(self.settings)
            log.configure(self.settings.log_level, self.settings.log_format)
        elif said["say"] == "left_out":
            self.leave_out(said["numbers"])

    def leave_out(self, numbers: Collection[int]) -> None:
        """No process has these numbers for now."""
        assert self._relaying is not None  # noqa: S101 (``meet`` comes first)
        self._relaying.leave_out(numbers)

    async def deleted(self, identity: bytes, response_id: str) -> None:
        """A response was deleted; every worker that can be told in time forgets it."""
        assert self._parts is not None  # noqa: S101 (``meet`` comes first)
        self._parts.shared.deleted(identity, response_id)
        told = orjson.dumps({"identity": identity.hex(), "response": response_id})

        async def tell(fellow: Fellow) -> None:
            async with asyncio.timeout(ASKING), fellow.request("POST", private.DELETED, (), told):
                pass

        # One that is gone knows nothing any more.
        await asyncio.gather(*map(tell, self._fellows.values()), return_exceptions=True)

    async def close(self) -> None:
        """Close the connections to all others."""
        for fellow in self._fellows.values():
            await fellow.close()

    def tidy_up(self) -> None:
        """Remove the folder if the parent is gone and cannot; whoever closes its own socket last finds it empty."""
        if self.forsaken:
            with contextlib.suppress(OSError):
                Path(self._folder).rmdir()


def _routes(parts: Parts, relaying: Relaying, together: Together) -> list[web.AbstractRouteDef]:
    """What this worker answers to the others."""

    def identify(request: web.Request) -> bytes:
        return bytes.fromhex(request.headers[IDENTITY_HEADER])

    answers = parts.links.map(
        lambda link: responder(link.driver, parts.read, link.presented, link.received, identify=identify)
    )

    async def answer(request: web.Request) -> web.StreamResponse:
        # The target is the client's, so its path leads to the same upstream here.
        found = answers.find(request.raw_path)
        return web.Response(status=404) if found is None else await found[0](request, found[1])

    async def turn(request: web.Request) -> web.StreamResponse:
        if not parts.requests.taken:
            return web.Response(status=503, headers={LEAVING_HEADER: "1"})
        return await parts.requests.middleware(request, answer)

    async def deleted(request: web.Request) -> web.Response:
        told = orjson.loads(await request.read())
        parts.shared.deleted(bytes.fromhex(told["identity"]), told["response"])
        return web.Response(status=204)

    async def holds(request: web.Request) -> web.Response:
        told = orjson.loads(await request.read())
        known = relaying.holds(bytes.fromhex(told["identity"]), told["response"])
        return web.Response(status=204 if known else 404)

    async def stats(request: web.Request) -> web.Response:
        process = "process" in request.query
        if process:
            await asyncio.to_thread(import_prometheus)
        return web.Response(body=orjson.dumps(together.own(process=process)))

    async def recent(_request: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(parts.observed.feed.recent()))

    return [
        web.post(private.DELETED, deleted),
        web.post(private.HOLDS, holds),
        web.get(private.STATS, stats),
        web.get(private.RECENT, recent),
        web.post("/{path:.*}", turn),
    ]
