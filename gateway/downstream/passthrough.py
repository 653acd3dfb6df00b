"""Everything of the API but turns: streamed to the upstream and back over plain HTTP, untouched."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote

from aiohttp import web
from multidict import CIMultiDict

from gateway.downstream.body import body_chunks
from gateway.errors import UpstreamLost
from gateway.turn.call import Headers
from gateway.upstream.identity import upstream_headers
from gateway.upstream.plain import PlainHttp, PlainResponse
from gateway.upstream.urls import RESPONSES, api_path, http_url

OnDeleted = Callable[[bytes, str], Awaitable[None] | None]
"""Takes whose response was deleted, and its id; what it gives is awaited before the client knows."""

FLUSH = 5.0
"""Seconds that a client may take to read what was written before its answer broke."""


class Relayed(web.StreamResponse):
    """An upstream's answer on its way to the client; ``given`` names the headers that it has, in lower case."""

    def __init__(self, response: PlainResponse, extra: Sequence[tuple[str, str]]) -> None:
        headers = CIMultiDict([*response.headers, *extra])
        super().__init__(status=response.status, reason=response.reason, headers=headers)
        self.given = frozenset(name.lower() for name in headers)
        self.length = headers.get("Content-Length")


async def relay(
    request: web.Request,
    response: PlainResponse,
    *,
    extra: Sequence[tuple[str, str]] = (),
    observe: Callable[[bytes], None] | None = None,
) -> web.StreamResponse:
    """Pass an upstream's answer on to the client, each piece as it arrives, with ``extra`` headers of our own.

    ``observe`` is called with every piece before it is written. Raises UpstreamLost, after having broken the client's
    connection off, if the upstream's body ends before it is complete.
    """
    relayed = Relayed(response, extra)
    await relayed.prepare(request)
    try:
        async for chunk in response.chunks():
            if observe is not None:
                observe(chunk)
            await relayed.write(chunk)
    except (UpstreamLost, asyncio.CancelledError):
        sever(request)
        raise
    await relayed.write_eof()
    return relayed


async def break_off(request: web.Request) -> None:
    """Give the client a little time to read what was written, then end its connection as ``sever`` does."""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(FLUSH):
            await request.writer.drain()
    sever(request)


def sever(request: web.Request) -> None:
    """End the client's connection so that the answer cannot look complete: what was written goes out, and no end of the body.

    A body of HTTP/1.0 ends with its connection, so there only a reset tells. Nothing can be written to ``request`` after this.
    """
    transport = request.transport
    if transport is None:
        return
    if request.version < (1, 1):
        connection = transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.close()
    # A client that does not read would keep the closing connection for ever.
    asyncio.get_running_loop().call_later(FLUSH, transport.abort)


class Passthrough:
    """The handler for requests that are no turns.

    ``upstream`` is the base URL, ``received`` gives a request's headers for the upstream, ``identify`` tells by it and its
    target whose request it is, and ``on_deleted`` is called with that and the id of a response that the upstream has deleted, before the client knows.
    """

    def __init__(
        self,
        *,
        plain: PlainHttp,
        upstream: str,
        received: Callable[[web.Request], Headers],
        identify: Callable[[web.Request, str], bytes],
        on_deleted: OnDeleted,
    ) -> None:
        self._plain = plain
        self._upstream = upstream
        self._received = received
        self._identify = identify
        self._on_deleted = on_deleted

    async def handle(self, request: web.Request, target: str) -> web.StreamResponse:
        """Send ``request``, whose target under ``/v1`` is given, upstream and relay the answer."""
        deleted = _deleted(request.method, target)
        identity = self._identify(request, target) if deleted is not None else b""
        async with self._plain.request(
            request.method,
            http_url(self._upstream, target),
            upstream_headers(self._received(request)),
            body_chunks(request) if request.body_exists else None,
        ) as response:
            if deleted is not None and 200 <= response.status < 300:
                told = self._on_deleted(identity, deleted)
                if told is not None:
                    await told
            return await relay(request, response)


def _deleted(method: str, target: str) -> str | None:
    """The id of the response that a request would delete, if it is such a request."""
    path = api_path(target) or ""
    name = path.removeprefix(RESPONSES + "/").removesuffix("/")
    if method != "DELETE" or not path.startswith(RESPONSES + "/") or not name or "/" in name:
        return None
    return unquote(name)
