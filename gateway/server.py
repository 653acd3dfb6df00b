"""One process: its listeners, its signals, and how it ends without cutting what runs.

On the first SIGTERM or SIGINT readiness fails at once, running requests finish within ``drain_timeout``, new ones get 503 with
``retry-after``, then what still runs is cancelled, upstream sockets are closed and the process ends. A second signal ends it
within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.admin import PATHS
from gateway.admin.routes import Phase
from gateway.errors import Unavailable
from gateway.settings import Settings

BACKLOG = 1024
RETRY_AFTER = 5
"""Seconds after which a client that was refused during the drain may find another process here."""
BREAK_OFF = 5.0
"""Seconds that cancelled requests may take to write how they ended."""
CLOSE = 5.0
"""Seconds that upstream sockets may take for their close handshake."""
HURRY = 0.8
"""Seconds after the second signal within which the process is gone, whatever still hangs."""


class CannotListen(Exception):
    """The address cannot be listened on; the text says why and what to do."""


class Stop:
    """What has been asked of a running gateway: to end, then to end now."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self.number = 0

    def ask(self, number: int = 0) -> bool:
        """Ask to end; the second time, ask to end now. ``number`` is the signal's; True if this was not the first time."""
        again = self.asked.is_set()
        self.asked.set()
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
        self._running: set[asyncio.Task[Any]] = set()
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._running)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Run ``handler`` and count it, or refuse."""
        if request.path in PATHS:
            return await handler(request)
        if self.phase != "ready":
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

    async def drain(self, seconds: float, stop: Stop) -> None:
        """Take no new requests and wait until none runs, ``seconds`` at most; then cancel the rest and wait for their end."""
        self.phase = "draining"
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(event.wait()) for event in (self._none, stop.hurried)]
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        for task in tuple(self._running):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HURRY / 2 if stop.hurried.is_set() else BREAK_OFF):
                await self._none.wait()


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

    ``runner`` serves an application that has ``requests.middleware`` outermost; ``close`` ends background tasks and closes the
    upstream sockets with code 1000.
    """

    requests: Requests
    runner: web.BaseRunner
    close: Callable[[], Awaitable[None]]


async def run(
    gateway: Gateway,
    listeners: list[socket.socket],
    *,
    drain_timeout: float,
    stop: Stop,
    ready: Callable[[], None],
) -> None:
    """Serve on ``listeners`` until ``stop`` is asked, then drain and close everything."""
    runner = gateway.runner
    try:
        await runner.setup()
        for listener in listeners:
            await web.SockSite(runner, listener, backlog=BACKLOG).start()
        gateway.requests.phase = "ready"
        ready()
        await stop.asked.wait()
        # The listeners stay open: whoever watches readiness must be able to ask until the end.
        await gateway.requests.drain(drain_timeout, stop)
    finally:
        await runner.cleanup()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE):
                await gateway.close()
        for listener in listeners:
            listener.close()


async def serve(
    settings: Settings, *, token: str | None = None, ready: Callable[[str], None] | None = None
) -> int:
    """Run the gateway until a signal ends it; returns the exit code.

    ``ready`` is called once with the base URL when requests are answered. Raises CannotListen.
    """
    listeners = bind(settings.host, settings.port)
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Loops without signal handlers (Windows) end by KeyboardInterrupt.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, _on_signal, stop, number)

    def tell() -> None:
        if ready is not None:
            ready(url_of(settings.host, listeners))

    gateway = assemble(settings, token=token)
    await run(gateway, listeners, drain_timeout=settings.drain_timeout, stop=stop, ready=tell)
    return 128 + stop.number if stop.hurried.is_set() else 0


def _on_signal(stop: Stop, number: int) -> None:
    if stop.ask(number):
        # Whatever hangs (a thread that resolves a name, say), the second signal is obeyed.
        watchdog = threading.Timer(HURRY, _leave, (128 + number,))
        watchdog.daemon = True
        watchdog.start()


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def assemble(settings: Settings, *, token: str | None) -> Gateway:
    """Put all parts together; needs a running loop."""
    raise NotImplementedError


def url_of(host: str, listeners: list[socket.socket]) -> str:
    """The base URL under which clients reach the listeners."""
    port = listeners[0].getsockname()[1]
    bare = host.strip("[]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"


def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets on every address of ``host`` (``localhost`` has two), all on one port; 0 picks a free one.

    Raises CannotListen.
    """
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE, proto=socket.IPPROTO_TCP
        )
    except OSError:
        raise CannotListen(f"cannot listen on {host}: the name has no address on this machine") from None
    listeners: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
            # Where port 0 was asked, the first address picks, and the others follow.
            chosen = listeners[0].getsockname()[1] if listeners else port
            try:
                listeners.append(_bind_one(family, (address[0], chosen, *address[2:])))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
        if not listeners:
            raise CannotListen(f"cannot listen on {host}: no such address on this machine")
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise CannotListen(_why_not(host, port, error)) from None
    return listeners


def _bind_one(family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for connections of the process before.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        # Two sockets may both bind with SO_REUSEADDR, but only one may listen.
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the other process, or choose another with --port (0 picks a free one)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"port {port} on {host} needs rights that this process lacks; choose one above 1023 with --port"
        )
    return f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}"
