"""Turns of conversations that live in another worker: who that is, and having it answer.

Nothing is relayed twice: what a worker is given by another one it answers itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

import orjson
from aiohttp import web

from gateway.conversation.arriving import Body
from gateway.downstream.passthrough import Relayed, break_off, relay, sever
from gateway.errors import GatewayError, UpstreamLost, UpstreamUnreachable, WorkerLost
from gateway.protocol.so_far import StreamSoFar
from gateway.turn.driver import TurnDriver
from gateway.upstream.identity import between_processes, header_pairs
from gateway.upstream.plain import PlainResponse
from gateway.workers.control import PATIENCE
from gateway.workers.owner import Beginnings, Parent, owner
from gateway.workers.private import HOLDS, IDENTITY_HEADER, LEAVING_HEADER, SECRET_HEADER, Fellow

ASKING = 0.5
"""Seconds in which the others must say whether they know a response."""

_LOOK = 0.05
_OWN = frozenset({SECRET_HEADER, IDENTITY_HEADER})
_MOST_HEADERS = 250
"""More are more than the other worker takes, with those that are added."""

_GONE_CODE = "worker_lost"
_GONE_TEXT = (
    "The process of this gateway that handled the request ended before the answer did. It may have run upstream, so the gateway did "
    "not send it again; send it again if that is safe."
)


class Relaying:
    """Relays to ``fellows``, by their numbers; this worker has the number ``number``.

    All are taken to be there until ``leave_out`` says otherwise.
    """

    def __init__(self, number: int, fellows: Mapping[int, Fellow], driver: TurnDriver) -> None:
        self._number = number
        self._fellows = fellows
        self._driver = driver
        self._beginnings = Beginnings(driver.reader, driver.digester)
        self.leave_out(())

    def leave_out(self, numbers: Collection[int]) -> None:
        """No process has these numbers for now: their conversations are shared out among the others."""
        there = tuple(n for n in (self._number, *self._fellows) if n not in numbers)
        self._there = there or (self._number,)

    async def owner(self, request: web.Request, identity: bytes, body: Body) -> int | None:
        """The worker that has the conversation of this request, if it is another one and the turn may be a delta there."""
        off = self._driver.switched_off(request.headers.get("x-upwire-mode"))
        if off or len(request.raw_headers) > _MOST_HEADERS:
            return None
        begins = self._beginnings.of(body.whole())
        if begins is None:
            return None
        if isinstance(begins, Parent):
            return await self._holder(identity, begins.response_id)
        number = owner(identity, begins, self._there)
        return None if number == self._number else number

    async def relay(
        self, owner: int, request: web.Request, identity: bytes, body: Body
    ) -> web.StreamResponse | None:
        """Have it answered there; None if that worker is gone and no other takes its place in time. Raises WorkerLost."""
        given = [p for p in between_processes(header_pairs(request.raw_headers)) if p[0].lower() not in _OWN]
        headers = (*given, (IDENTITY_HEADER, identity.hex()))
        fellow, whole = self._fellows[owner], body.whole()
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        while True:
            try:
                async with fellow.request("POST", request.raw_path, headers, whole) as response:
                    if any(name.lower() == LEAVING_HEADER for name, _ in response.all_headers):
                        return None
                    return await _shown(request, replace(response, headers=response.all_headers))
            except UpstreamUnreachable:
                if loop.time() >= until or owner not in self._there:
                    return None
            except UpstreamLost:
                # Where nothing was written yet, this is the client's answer; else its connection is broken off already.
                raise WorkerLost(_GONE_TEXT, code=_GONE_CODE) from None
            await asyncio.sleep(_LOOK)

    def holds(self, identity: bytes, response_id: str) -> bool:
        """Whether this worker can continue the response."""
        driver = self._driver
        return driver.store.get(identity, response_id) is not None or driver.pool.holds(identity, response_id)

    async def _holder(self, identity: bytes, response_id: str) -> int | None:
        """Whoever knows a response that the client itself continues; only one worker made it."""
        if self.holds(identity, response_id):
            return None
        asked = [self._asks(fellow, identity, response_id) for fellow in self._fellows.values()]
        answers = await asyncio.gather(*asked)
        return next(
            (f.number for f, holds in zip(self._fellows.values(), answers, strict=True) if holds), None
        )

    async def _asks(self, fellow: Fellow, identity: bytes, response_id: str) -> bool:
        question = orjson.dumps({"identity": identity.hex(), "response": response_id})
        try:
            async with asyncio.timeout(ASKING), fellow.request("POST", HOLDS, (), question) as answer:
                return answer.status == 204
        except (GatewayError, TimeoutError):
            return False


async def _shown(request: web.Request, response: PlainResponse) -> web.StreamResponse:
    """Relay what the other worker answers. Raises UpstreamLost, with the client's answer broken off if it had begun."""
    headers = {name.lower(): value for name, value in response.headers}
    streams = response.status == 200 and headers.get("content-type", "").startswith("text/event-stream")
    if not streams or headers.get("x-upwire-mode") == "http":
        # A stream of plain HTTP that breaks there has mostly broken at the upstream, and is shown as it came.
        return await relay(request, response)
    so_far = StreamSoFar()
    relayed = Relayed(response, ())
    await relayed.prepare(request)
    try:
        async for chunk in response.chunks():
            if whole := so_far.feed(chunk):
                await relayed.write(whole)
        if rest := so_far.rest():
            await relayed.write(rest)
    except UpstreamLost:
        failure = so_far.failure(code=_GONE_CODE, message=_GONE_TEXT)
        if failure is not None:
            await relayed.write(failure)
        await break_off(request)
        raise
    except asyncio.CancelledError:
        sever(request)
        raise
    await relayed.write_eof()
    return relayed
