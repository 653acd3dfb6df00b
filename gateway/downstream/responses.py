"""``POST /v1/responses``: a request's body in, the turn's answer out as JSON or as an event stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web
from aiohttp.http import HttpVersion11

from gateway.conversation.arriving import Body
from gateway.downstream.passthrough import break_off, relay
from gateway.downstream.ways import Answer
from gateway.turn.call import Call, Headers, Relayed, StreamBroken, Streaming, Whole
from gateway.turn.driver import TurnDriver
from gateway.turn.turn import Turn


class Elsewhere(Protocol):
    """Other processes of this gateway, in which conversations live as well."""

    async def owner(self, request: web.Request, identity: bytes, body: Body) -> int | None:
        """Which of them has the conversation of this request; None if it is to be answered here."""

    async def relay(
        self, owner: int, request: web.Request, identity: bytes, body: Body
    ) -> web.StreamResponse | None:
        """Have it answered there; None if nothing was sent because that process is not there."""


def responder(
    driver: TurnDriver,
    read: Callable[[web.Request, Callable[[bytes], None]], Awaitable[None]],
    token: Callable[[web.Request], str | None],
    received: Callable[[web.Request], Headers],
    *,
    identify: Callable[[web.Request], bytes] | None = None,
    elsewhere: Elsewhere | None = None,
) -> Answer:
    """The handler.

    ``read`` feeds a request's decoded body to what it is given. ``token`` gives what it presented to the gateway itself, if
    anything is asked for, and ``received`` its headers for the upstream. ``identify`` tells whose request it is where that is not
    to be computed from these; ``elsewhere`` takes what is not to be answered by this process.
    """

    async def respond(request: web.Request, target: str) -> web.StreamResponse:
        headers, presented = received(request), token(request)
        if identify is None:
            identity = driver.identity(headers, presented, target.partition("?")[2])
        else:
            identity = identify(request)
        party, places = driver.parties.of(identity, headers, presented), driver.places
        # Before the body is read, so that a refusal comes at once.
        if not places.take(party):
            await places.wait(party)
        held = True
        try:
            body = driver.body(identity)
            await read(request, body.feed)
            if (
                elsewhere is not None
                and (owner := await elsewhere.owner(request, identity, body)) is not None
            ):
                # It counts where it runs.
                places.leave(party)
                held = False
                relayed = await elsewhere.relay(owner, request, identity, body)
                if relayed is not None:
                    return relayed
                if not places.take(party):
                    await places.wait(party)
                held = True
            call = Call(
                target=target,
                headers=headers,
                body=body,
                token=presented,
                received=driver.clock(),
                party=party,
            )
            async with driver.turn(call) as turn:
                match await turn.open():
                    case Whole(status, headers, whole):
                        return await _whole(request, turn, status, headers, whole)
                    case Streaming(headers):
                        return await _stream(request, turn, headers)
                    case Relayed(upstream, headers):
                        relayed = await relay(request, upstream, extra=headers, observe=turn.observe)
                        turn.relayed()
                        return relayed
        finally:
            if held:
                places.leave(party)

    return respond


async def _whole(
    request: web.Request, turn: Turn, status: int, headers: Headers, body: bytes
) -> web.Response:
    response = web.Response(status=status, body=body)
    _add(response, headers)
    await response.prepare(request)
    await response.write_eof()
    turn.written()
    return response


async def _stream(request: web.Request, turn: Turn, headers: Headers) -> web.StreamResponse:
    response = web.StreamResponse(status=200)
    _add(response, headers)
    if request.version >= HttpVersion11:
        response.enable_chunked_encoding()
    transport = request.transport
    if transport is not None:
        turn.bound(transport.abort)
    await response.prepare(request)
    try:
        async for piece in turn.events():
            await response.write(piece)
            turn.written()
    except StreamBroken:
        await break_off(request)
        # The library takes this as the end of the connection: no last chunk is written.
        raise ConnectionResetError from None
    await response.write_eof()
    return response


def _add(response: web.StreamResponse, headers: Headers) -> None:
    for name, value in headers:
        if name.lower() == "content-type":
            response.headers[name] = value
        else:
            response.headers.add(name, value)
