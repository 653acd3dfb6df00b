"""The simulated upstream as a server: start it in a running loop, point a client at ``url``, look at ``journal``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from gateway.simulator.canonical import Item
from gateway.simulator.context import Digests, digest_of
from gateway.simulator.faults import Abort, Arrival, Close, Cut, FaultPlan, Respond, Silence, Stall
from gateway.simulator.http import HttpRoutes
from gateway.simulator.http_sinks import HttpSink, refused
from gateway.simulator.journal import Entry, Journal
from gateway.simulator.options import MEBIBYTE, Options
from gateway.simulator.records import Owner
from gateway.simulator.refusal import Refusal
from gateway.simulator.script import Script
from gateway.simulator.socket_connection import SocketConnection
from gateway.simulator.upstream import Upstream

_BODY_LIMIT = 1024 * MEBIBYTE


class Simulator:
    """A simulated upstream, HTTP and WebSocket on one port. The caller has to ``stop`` what it started.

    ``stop`` raises the first error of the simulator's own, so that no test passes over one.
    """

    def __init__(self, options: Options | None = None, script: Script | None = None) -> None:
        self.options = options or Options()
        self._upstream = Upstream(self.options, script)
        self._runner: web.AppRunner | None = None
        self._listener: socket.socket | None = None
        self._sockets: set[SocketConnection] = set()
        self._sessions: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self.host = ""
        self.port = 0

    @property
    def journal(self) -> Journal:
        """Everything received so far."""
        return self._upstream.journal

    @property
    def faults(self) -> FaultPlan:
        """Failures on command."""
        return self._upstream.faults

    @property
    def url(self) -> str:
        """The base URL a client is given."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 picks a free one. Raises OSError if the address is taken."""
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        if self.options.receive_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.options.receive_buffer)
        app = web.Application(client_max_size=_BODY_LIMIT, middlewares=[self._watched])
        routes = HttpRoutes(self._upstream)
        for prefix in ("/v1", "/openai/v1", ""):
            routes.add_to(app.router, prefix, self._upgrade)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5, max_field_size=65536
        )
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        self._listener = listener
        self.host, self.port = listener.getsockname()[:2]

    async def stop(self) -> None:
        """Stop listening and cut all connections."""
        if self._listener is not None:
            # The loop loses connections that it has just accepted when their listener is closed: let it finish with them first.
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener = None
            await asyncio.sleep(0)
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        self.reset_connections()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._failures:
            raise self._failures[0]

    @property
    def open_sockets(self) -> int:
        """How many sockets are open now."""
        return len(self._sockets)

    async def close_sockets(self, code: int = 1001, reason: str = "") -> None:
        """Close every open socket with a close frame, running turns or not."""
        await asyncio.gather(*(one.close(code, reason) for one in tuple(self._sockets)))

    def reset_connections(self) -> None:
        """Reset the TCP connections of all open sockets."""
        for one in tuple(self._sockets):
            one.abort()

    async def until(self, holds: Callable[[Journal], object], seconds: float = 5.0) -> None:
        """Wait until ``holds`` is true of the journal; TimeoutError if it is not within so many seconds."""
        async with asyncio.timeout(seconds):
            while not holds(self.journal):  # noqa: ASYNC110 (entries change in place, nothing announces it)
                await asyncio.sleep(0.002)

    def forget(self, response_id: str) -> None:
        """From now on this response is not found, neither in a socket's memory nor in storage."""
        self._upstream.records.forget(response_id)

    def forget_all(self) -> None:
        """Forget every response given so far."""
        self._upstream.records.forget_all()

    def context_of(self, response_id: str) -> list[Item]:
        """All items that the upstream holds after this response, its output included. KeyError if it never ended."""
        held = self._upstream.records.held(response_id)
        if held is None:
            raise KeyError(response_id)
        return list(held.context)

    def response(self, response_id: str) -> dict[str, Any]:
        """The response object as it ended. KeyError if it never did."""
        held = self._upstream.records.held(response_id)
        if held is None:
            raise KeyError(response_id)
        return held.response

    def digests_after(self, response_id: str) -> Digests:
        """The digests of ``context_of``. KeyError if the response never ended."""
        held = self._upstream.records.held(response_id)
        if held is None:
            raise KeyError(response_id)
        return held.context.digests

    def digest_of(self, value: str | list[Item]) -> Digests:
        """The digests that an answer to this whole input quotes here."""
        records = self._upstream.records

        def resolve(name: str) -> Item | None:
            issued = records.issued(name)
            return issued.item if issued else None

        return digest_of(value, origin=records.origin, resolve=resolve)

    async def _upgrade(self, request: web.Request) -> web.StreamResponse:
        asks = "websocket" in request.headers.get("upgrade", "").lower()
        number = self._upstream.connection_number(request) if asks else None
        entry = self._upstream.record(request, "upgrade_refused" if asks else "request", socket=number)
        answer = await self._planned_answer(request, entry) if asks else None
        if answer is not None:
            entry.outcome, entry.status = "refused", answer.status
            return answer
        try:
            owner = self._admitted(entry)
        except Refusal as refusal:
            entry.outcome, entry.status, entry.code = "refused", refusal.status, refusal.code
            return refused(refusal)
        self.journal.discard(entry)
        connection = SocketConnection(self._upstream, request, owner)
        session = asyncio.get_running_loop().create_task(self._session(connection), name="socket")
        self._sessions.add(session)
        session.add_done_callback(self._ended)
        await asyncio.shield(
            session
        )  # outlives its handler, so that a close frame before a hang-up is still read
        return connection.ws

    def _admitted(self, entry: Entry) -> Owner:
        if entry.kind == "request":
            raise Refusal(405, "Invalid method for URL (GET /v1/responses).")
        owner = self._upstream.owner(entry.headers)
        if not self.options.websocket:
            raise Refusal(self.options.upgrade_status, "This upstream does not speak WebSocket.")
        return owner

    async def _planned_answer(self, request: web.Request, entry: Entry) -> web.StreamResponse | None:
        """The answer that a fault gives to an upgrade; None if the upgrade goes on."""
        arrival = Arrival("ws", entry.connection, entry.method, entry.path, entry.headers)
        sink = HttpSink(request)
        for hit in self.faults.take(arrival, "upgrade"):
            for action in hit.sequence():
                match action:
                    case Silence(seconds=seconds):
                        await asyncio.sleep(seconds)
                    case Respond() | Abort() | Cut() | Close() | Stall():
                        await sink.leave(action)
                        return sink.answer or web.Response(status=500)
                    case _:
                        raise TypeError(f"{type(action).__name__} cannot happen at the upgrade")
        return None

    async def _session(self, connection: SocketConnection) -> None:
        self._sockets.add(connection)
        try:
            await connection.serve()
        finally:
            self._sockets.discard(connection)

    @web.middleware
    async def _watched(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except (web.HTTPException, ConnectionError, web.RequestPayloadError):
            raise
        except Exception as failure:
            self._failures.append(failure)
            raise

    def _ended(self, session: asyncio.Task[None]) -> None:
        self._sessions.discard(session)
        if not session.cancelled() and (failure := session.exception()) is not None:
            self._failures.append(failure)
