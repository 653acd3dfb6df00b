"""The life of a gateway: starting, ready, draining, gone.

When asked to stop, readiness fails at once. For ``drain_grace`` seconds new requests are still served; then they get 503 with
``retry-after``, and running ones finish within ``drain_timeout``. What still runs then loses its upstream, so that it can say
how it ended. Asked again, nothing is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.admin import PATHS
from gateway.admin.routes import Phase
from gateway.errors import Unavailable
from gateway.server.listen import BACKLOG
from gateway.settings import Settings

RETRY_AFTER = 5
"""Seconds after which a client that was refused during the drain may find another process here."""
BREAK_OFF = 5.0
"""Seconds that requests which are broken off may take to write how they ended."""
CLOSE = 5.0
"""Seconds that upstream sockets may take for their close handshake."""
HURRY = 0.8
"""Seconds after the second signal within which the process is gone, whatever still hangs."""
QUIET = 90.0
"""Seconds for which an unused connection of a client is kept after another process took over; few clients keep one longer.

A connection that is closed from here may be one on which a request is just coming in.
"""
_LOOK = 0.1
"""Seconds between two looks at connections that are to end by themselves."""


class Stop:
    """What has been asked of a running gateway: to leave all that is new to another process, to end, to end now."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self.changed = asyncio.Event()
        self.moved = False
        self.number = 0
        self.on_ask: Callable[[], None] = lambda: None

    def move(self) -> None:
        """Another process has taken over: accept no connection, and end when those that are here have ended."""
        self.moved = True
        self.changed.set()

    def ask(self, number: int = 0) -> bool:
        """Ask to end; the second time, ask to end now. ``number`` is the signal's; True if this was not the first time."""
        again = self.asked.is_set()
        self.asked.set()
        self.changed.set()
        if not again:
            self.on_ask()
        if again:
            self.number = number
            self.hurried.set()
        return again


class Requests:
    """The requests that run now, and whether new ones are taken: the outermost middleware.

    Paths of ``gateway.admin.PATHS`` are neither counted nor refused.
    """

    def __init__(self) -> None:
        self.phase: Phase = "starting"
        self._taken = False
        self._running: set[asyncio.Task[Any]] = set()
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._running)

    @property
    def taken(self) -> bool:
        """Whether new requests are taken now."""
        return self._taken

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Run ``handler`` and count it, or refuse."""
        if request.path in PATHS:
            return await handler(request)
        if not self._taken:
            return _refusal()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (a coroutine that awaits always runs in a task)
        self._running.add(task)
        self._none.clear()
        try:
            return await handler(request)
        finally:
            self._running.discard(task)
            if not self._running:
                self._none.set()

    def take(self) -> None:
        """Be ready: requests are taken from now on."""
        self.phase = "ready"
        self._taken = True

    async def linger(self, seconds: float, stop: Stop) -> None:
        """Be no longer ready, but take requests for ``seconds`` more, or until hurried.

        Whatever ends this process may end its clients at the same moment, and those still have something to ask.
        """
        self.phase = "draining"
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await stop.hurried.wait()

    async def drain(self, seconds: float, stop: Stop) -> bool:
        """Take no new requests and wait until none runs, ``seconds`` at most; whether none does."""
        self.phase = "draining"
        self._taken = False
        return await self._until_none(seconds, stop)

    async def run_out(self, seconds: float, stop: Stop, connections: Callable[[], int]) -> None:
        """Serve what comes in on the ``connections`` that there are, ``seconds`` at most, until none is left or asked to stop."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        end, used = now + seconds, now
        while not stop.asked.is_set() and now < end:
            used = now if self._running else used
            if not self._running and (not connections() or now - used >= QUIET):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await stop.asked.wait()
            now = loop.time()

    async def break_off(self, stop: Stop) -> None:
        """Wait for the end of requests that lost their upstream, a little; then cancel what still runs."""
        if await self._until_none(BREAK_OFF, stop):
            return
        for task in tuple(self._running):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HURRY / 2):
                await self._none.wait()

    async def _until_none(self, seconds: float, stop: Stop) -> bool:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(event.wait()) for event in (self._none, stop.hurried)]
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        return not self._running


def _refusal() -> web.Response:
    refused = Unavailable(
        "This gateway is shutting down; send the request again.", code="draining", retry_after=RETRY_AFTER
    )
    return web.Response(
        body=refused.body(),
        status=refused.status,
        content_type="application/json",
        headers={"retry-after": str(refused.retry_after), "connection": "close"},
    )


@dataclass(slots=True)
class Gateway:
    """A gateway put together but not yet listening.

    ``runner`` serves an application that has ``requests.middleware`` outermost; ``close`` ends background tasks and all
    connections to the upstream, idle sockets with code 1000, and may be called twice; ``reconfigure`` goes on with settings that
    differ in reloadable ones only, and changes nothing where it raises TeamUnusable; ``let_go`` makes every answer the last one
    of its connection.
    """

    requests: Requests
    runner: web.BaseRunner
    close: Callable[[], Awaitable[None]]
    reconfigure: Callable[[Settings], None] = lambda _: None
    let_go: Callable[[], None] = lambda: None


async def run(
    gateway: Gateway,
    listeners: list[socket.socket],
    *,
    drain_timeout: float,
    drain_grace: float = 0.0,
    handover_timeout: float = 0.0,
    stop: Stop,
    ready: Callable[[], None],
    backlog: int = BACKLOG,
) -> None:
    """Serve on ``listeners`` until ``stop`` is asked, then linger, drain and close everything. Times are in seconds.

    Of what waits in a queue at most ``backlog`` are accepted at a time; the queue then has that length.
    Where another process took over, what runs here has ``handover_timeout`` to end by itself.
    """
    runner = gateway.runner
    try:
        await runner.setup()
        for listener in listeners:
            await web.SockSite(runner, listener, backlog=backlog).start()
        gateway.requests.take()
        ready()
        await stop.changed.wait()
        if stop.moved:
            for site in tuple(runner.sites):
                await site.stop()
            gateway.let_go()
            await gateway.requests.run_out(handover_timeout, stop, lambda: _connections(runner))
        else:
            await gateway.requests.linger(drain_grace, stop)
        # The listeners stay open: whoever watches readiness must be able to ask until the end.
        if not await gateway.requests.drain(drain_timeout, stop):
            # A turn whose upstream is gone tells its client so, in the stream; one that is cancelled can only hang up.
            await _close(gateway)
            await gateway.requests.break_off(stop)
    finally:
        await runner.cleanup()
        await _close(gateway)
        for listener in listeners:
            listener.close()


def _connections(runner: web.BaseRunner) -> int:
    """How many clients are connected."""
    return len(runner.server.connections) if isinstance(runner.server, web.Server) else 0


async def _close(gateway: Gateway) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE):
            await gateway.close()
