"""Delivery of a response over HTTP: as a stream of server-sent events, or as one JSON object."""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from collections.abc import Mapping
from typing import Any, cast

import orjson
from aiohttp import web

from gateway.simulator import faults as fault
from gateway.simulator.events import TERMINAL, Event
from gateway.simulator.performance import Leaving
from gateway.simulator.refusal import Refusal


def reset(transport: asyncio.BaseTransport | None) -> None:
    """End a TCP connection with RST."""
    if transport is None or transport.is_closing():
        return
    raw = transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # Not every loop's transports are of asyncio's classes.
    cast("asyncio.WriteTransport", transport).abort()


def usual_headers() -> dict[str, str]:
    """Headers that the API puts on its answers."""
    return {
        "x-request-id": f"req_{secrets.token_hex(16)}",
        "openai-processing-ms": "7",
        "openai-version": "2020-10-01",
        "x-ratelimit-limit-requests": "10000",
        "x-ratelimit-remaining-requests": "9999",
    }


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON answer with the usual headers."""
    return web.Response(
        body=orjson.dumps(value),
        status=status,
        content_type="application/json",
        headers={**usual_headers(), **(headers or {})},
    )


def refused(refusal: Refusal) -> web.Response:
    """The answer that a refusal is over HTTP."""
    return json_response(refusal.body(), refusal.status, refusal.headers)


class HttpSink:
    """What both forms share: leaving early, and an answer other than the one begun."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.answer: web.StreamResponse | None = None
        """What the handler has to return in the end."""

    async def refuse(self, refusal: Refusal, sequence_number: int) -> None:
        """Answer with the status of the refusal; inside a stream, with its event."""
        if self.answer is None:
            self.answer = refused(refusal)
        else:
            await self.event(refusal.frame(sequence_number))

    async def event(self, event: Event) -> None:
        """Deliver one event."""
        raise NotImplementedError

    async def binary(self, data: bytes) -> None:
        """Deliver raw bytes."""
        raise NotImplementedError

    async def text(self, text: str) -> None:
        """Deliver raw text."""
        await self.binary(text.encode())

    async def leave(self, action: Leaving) -> None:
        """End the connection, or the answer, as ``action`` says."""
        transport = self._request.transport
        match action:
            case fault.Respond(status=status, headers=headers, body=body):
                self.answer = web.Response(status=status, headers=headers, body=body)
            case fault.Abort():
                reset(transport)
            case fault.Cut() | fault.Close():
                if transport is not None:
                    transport.close()
            case fault.TruncateBody(share=share):
                await self.truncate(share)
            case fault.Stall():
                await asyncio.Event().wait()
            case fault.EndQuietly():
                pass

    async def truncate(self, share: float) -> None:
        """Send only a part of the answer."""
        raise NotImplementedError

    def stop_reading(self) -> None:
        """Read nothing more from the client."""
        if self._request.transport is not None:
            cast("asyncio.ReadTransport", self._request.transport).pause_reading()


class EventStream(HttpSink):
    """Server-sent events. The head goes out with the first of them."""

    async def event(self, event: Event) -> None:
        """Deliver one event in its frame."""
        await self.binary(b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), orjson.dumps(event)))

    async def binary(self, data: bytes) -> None:
        """Deliver raw bytes of the body."""
        if self.answer is None:
            headers = {
                **usual_headers(),
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
            }
            stream = web.StreamResponse(headers=headers)
            await stream.prepare(self._request)
            self.answer = stream
        if isinstance(self.answer, web.StreamResponse):
            await self.answer.write(data)

    async def truncate(self, share: float) -> None:
        """Cut the body off where it is; ``share`` means nothing here."""
        del share
        if self._request.transport is not None:
            self._request.transport.close()


class WholeJson(HttpSink):
    """One JSON object, known when the response has ended."""

    async def event(self, event: Event) -> None:
        """Wait for the terminal event; what comes before and after it does not show."""
        if event["type"] in TERMINAL and self.answer is None:
            self.answer = json_response(event["response"])

    async def binary(self, data: bytes) -> None:
        """Nothing can be put into an answer that is not there yet."""

    async def truncate(self, share: float) -> None:
        """Send a share of the answer that was announced, then end the connection."""
        whole = self.answer.body if isinstance(self.answer, web.Response) else b""
        body = bytes(whole) if isinstance(whole, bytes | bytearray) else b""
        cut = web.StreamResponse(headers={**usual_headers(), "Content-Type": "application/json"})
        cut.content_length = len(body)
        await cut.prepare(self._request)
        await cut.write(body[: int(len(body) * share)])
        if self._request.transport is not None:
            self._request.transport.close()
        self.answer = cut
