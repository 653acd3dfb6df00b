"""The private unix sockets over which the workers of one run talk: a listener for each, and a client for each other one.

They stand in a folder that only this user can enter, take connections of the same user only, and ask every request for a secret
that is drawn for each run. Nothing that comes in over a listener for clients is ever taken for a request of a worker.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway import log
from gateway.downstream.app import build_runner, own_headers_only
from gateway.downstream.malformed import answer_errors
from gateway.settings import Settings
from gateway.upstream.plain import PlainHttp, PlainOptions, PlainResponse

SECRET_HEADER = "x-upwire-worker"  # noqa: S105 (a name, no secret)
IDENTITY_HEADER = "x-upwire-identity"
LEAVING_HEADER = "x-upwire-leaving"
"""Stands on the answer of a worker that takes no more turns: the other answers itself."""
DELETED, HOLDS, STATS, RECENT = "/-/deleted", "/-/holds", "/-/stats", "/-/recent"
SHUTDOWN = 1.0
"""Seconds for the last bytes of relayed answers."""

_HOST = "http://worker"
_CREDENTIALS = struct.Struct("3i")


def path_of(folder: str, number: int) -> str:
    """Where worker ``number`` listens."""
    return str(Path(folder) / f"{number}.sock")


def private_runner(routes: Sequence[web.AbstractRouteDef], settings: Settings, secret: str) -> web.AppRunner:
    """A server for the other workers, which must present ``secret``."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = request.headers.get(SECRET_HEADER, "").encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(shown, secret.encode()) or not _same_user(request):
            return web.Response(status=403)
        return await handler(request)

    app = web.Application(middlewares=[guard, answer_errors(log.failed)], client_max_size=settings.max_body)
    app.on_response_prepare.append(own_headers_only)
    app.add_routes(routes)
    return build_runner(app, settings, on_failure=log.failed, shutdown_timeout=SHUTDOWN)


class Fellow:
    """Another worker, as this one reaches it."""

    def __init__(self, number: int, path: str, secret: str, settings: Settings) -> None:
        self.number = number
        self._secret = (SECRET_HEADER, secret)
        self._plain = PlainHttp(
            PlainOptions(unix=path, connect_timeout=settings.dial_timeout, max_header=2 * settings.max_header)
        )

    def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]] = (), body: bytes | None = None
    ) -> AbstractAsyncContextManager[PlainResponse]:
        """Ask it something; as ``PlainHttp.request``, which also says what is raised."""
        return self._plain.request(method, _HOST + target, (*headers, self._secret), body)

    async def close(self) -> None:
        """Close the connections to it."""
        await self._plain.close()


def _same_user(request: web.Request) -> bool:
    """Whether the peer is a process of our own user, where the system can tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    transport = request.transport
    if transport is None or option is None:
        return transport is not None
    connection = transport.get_extra_info("socket")
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return bool(user == os.getuid())
