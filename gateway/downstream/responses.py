"""``POST /v1/responses``: a request's body in, the turn's answer out as JSON or as an event stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.downstream.passthrough import relay
from gateway.errors import GatewayError
from gateway.turn.call import Call, Headers, Relayed, StreamBroken, Streaming, Whole
from gateway.turn.driver import TurnDriver
from gateway.turn.turn import Turn
from gateway.upstream.identity import header_pairs

_FLUSH = 5.0
"""Seconds that a client may take to read the last event of a broken stream."""


def responder(
    driver: TurnDriver,
    read: Callable[[web.Request], Awaitable[bytes]],
    token: Callable[[web.Request], str | None],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler. ``read`` gives a request's decoded body, ``token`` the gateway token that it presented, if any."""

    async def respond(request: web.Request) -> web.StreamResponse:
        try:
            body = await read(request)
            call = Call(
                target=request.raw_path,
                headers=header_pairs(request.raw_headers),
                body=body,
                token=token(request),
                received=driver.clock(),
            )
            async with driver.turn(call) as turn:
                return await _answer(request, turn)
        except GatewayError as error:
            return error_response(error)

    return respond


def error_response(error: GatewayError) -> web.Response:
    """An answer of our own in the API's error shape."""
    headers = {"content-type": "application/json"}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    return web.Response(status=error.status, body=error.body(), headers=headers)


async def _answer(request: web.Request, turn: Turn) -> web.StreamResponse:
    opened = await turn.open()
    match opened:
        case Whole(status, headers, body):
            response = web.Response(status=status, body=body)
            _add(response, headers)
            await response.prepare(request)
            await response.write_eof()
            turn.written()
            return response
        case Streaming(headers):
            return await _stream(request, turn, headers)
        case Relayed(upstream, headers):
            relayed = await relay(request, upstream, extra=headers, observe=turn.observe)
            turn.relayed()
            return relayed


async def _stream(request: web.Request, turn: Turn, headers: Headers) -> web.StreamResponse:
    response = web.StreamResponse(status=200)
    _add(response, headers)
    response.enable_chunked_encoding()
    await response.prepare(request)
    try:
        async for piece in turn.events():
            await response.write(piece)
            turn.written()
    except StreamBroken:
        await _break(request, response)
        return response
    await response.write_eof()
    return response


async def _break(request: web.Request, response: web.StreamResponse) -> None:
    """Give the client what was written and then the end of its connection, never the end of the body."""
    transport = request.transport
    if transport is None:
        return
    try:
        async with asyncio.timeout(_FLUSH):
            await response.drain()
    except (TimeoutError, ConnectionError):
        transport.abort()
    transport.close()


def _add(response: web.StreamResponse, headers: Headers) -> None:
    for name, value in headers:
        if name.lower() == "content-type":
            response.headers[name] = value
        else:
            response.headers.add(name, value)
