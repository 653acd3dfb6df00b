"""A plain HTTP client that notices how an answer ended, and that may leave before it does."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import brotli
from backports import zstd

CODINGS = {
    None: lambda data: data,
    "gzip": lambda data: gzip.compress(data, 1),
    "br": lambda data: brotli.compress(data, quality=1),
    "zstd": zstd.compress,
}
TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "error": "failed",
}
LONGEST = 15.0
"""Seconds after which a turn hangs: every limit that the gateway keeps is far below."""
PATIENCE = 0.4


@dataclass
class Answer:
    """What the client saw. ``end`` is whole, broken, left, hangs, or dropped (the connection went before any head)."""

    end: str = "dropped"
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    events: list[Any] = field(default_factory=list)
    body: Any = None

    @property
    def mode(self):
        """How the gateway says that the turn went."""
        return self.headers.get("x-upwire-mode")

    @property
    def outcome(self):
        """One word for the table; ``cut`` is an answer that looks whole and is not."""
        if self.end in {"left", "hangs", "dropped"} or (self.end == "broken" and self.status == 200):
            return self.end
        if self.status != 200:
            code = (self.body or {}).get("error", {}).get("code") if isinstance(self.body, dict) else None
            ours = {"upstream_connection_lost": "lost", "upstream_unreachable": "unreachable"}
            return ours.get(code, "refused") if self.status == 502 else "refused"
        if self.events:
            return TERMINAL.get(self.events[-1]["type"], "cut")
        found = (self.body or {}).get("status") if isinstance(self.body, dict) else None
        return found if found in {"completed", "incomplete", "failed"} else "cut"

    @property
    def response(self):
        """The response object of a whole answer."""
        return self.events[-1].get("response") if self.events else self.body

    @property
    def output(self):
        """The finished items, as clients of a stream gather them: some upstreams list none of them at the end."""
        if not self.events:
            return self.body["output"]
        return [event["item"] for event in self.events if event["type"] == "response.output_item.done"]


class Client:
    """One client: its key, its connection pool, its way to write bodies."""

    def __init__(self, url, key, coding, seed, *, anew=False):
        self._anew = anew
        self._url = url
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._coding = coding
        self._random = random.Random(seed)
        self._session = None

    async def __aenter__(self):
        timeout = aiohttp.ClientTimeout(total=None)
        # A new connection for each turn may come in at another process.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=self._anew),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout,
        )
        return self

    async def __aexit__(self, *_):
        await self._session.close()

    async def post(self, body, turn, *, leave="", plain=False):
        """Send ``body`` and read the answer to its end, or to where this client leaves."""
        data = CODINGS[self._coding](json.dumps(body, ensure_ascii=False).encode())
        headers = {**self._headers, "x-client-request-id": turn}
        if self._coding:
            headers["content-encoding"] = self._coding
        if plain:
            headers["x-upwire-mode"] = "http"
        seconds = self._random.uniform(0, 0.04) if leave == "head" else LONGEST
        answer = Answer()
        try:
            async with asyncio.timeout(seconds):
                await self._read(answer, data, headers, leave)
        except TimeoutError:
            answer.end = "left" if leave == "head" else "hangs"
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            answer.end = "broken" if answer.status else "dropped"
        except aiohttp.ClientPayloadError:
            answer.end = "broken"
        _parse(answer)
        return answer

    async def _read(self, answer, data, headers, leave):
        waits = PATIENCE if leave == "patience" else None
        pieces = self._random.randrange(1, 12) if leave.startswith("stream") else None
        try:
            async with asyncio.timeout(waits) as patience:
                async with self._session.post(
                    self._url + "/responses", data=data, headers=headers
                ) as response:
                    answer.status = response.status
                    answer.headers = {name.lower(): value for name, value in response.headers.items()}
                    async for piece in response.content.iter_any():
                        answer.raw += piece
                        if waits:
                            patience.reschedule(asyncio.get_running_loop().time() + waits)
                        if pieces is not None and answer.raw.count(b"\n\n") >= pieces:
                            _leave(response, reset="reset" in leave)
                            answer.end = "left"
                            return
                    answer.end = "whole"
        except TimeoutError:
            if not waits:
                raise
            answer.end = "left"


def _leave(response, *, reset):
    connection = response.connection
    if reset and connection is not None and connection.transport is not None:
        raw = connection.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    response.close()


def _parse(answer):
    """Events of a stream, or one object. Only an answer that did not end may have a part of an event at its end."""
    if "event-stream" not in answer.headers.get("content-type", ""):
        try:
            answer.body = json.loads(answer.raw)
        except ValueError:
            answer.body = None
        return
    parts = answer.raw.split(b"\n\n")
    rest = parts.pop()
    if rest and answer.end == "whole":
        answer.end = "broken"
    answer.events = [json.loads(part.partition(b"data: ")[2]) for part in parts]
