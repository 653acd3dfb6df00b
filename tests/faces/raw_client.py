"""A client that writes HTTP by hand and reads an answer as its bytes: head lines, framing, and where it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.raw_http import read_chunked

_PATIENCE = 20


@dataclass
class RawAnswer:
    """One answer as it came: ``fields`` in their order, the body without its transfer coding."""

    line: str
    fields: list[tuple[str, str]]
    body: bytes = b""

    @property
    def status(self):
        return int(self.line.split(" ")[1])

    @property
    def names(self):
        return [name.lower() for name, _ in self.fields]

    def value(self, name):
        return next((value for key, value in self.fields if key.lower() == name), None)


class RawClient:
    """One connection to a base URL."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.host, self.port, self.base = parts.hostname, parts.port, parts.path

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=1 << 20)
        return self

    async def __aexit__(self, *_):
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def request(self, method, path, body=None, *, version="1.1", headers=()):
        """The bytes of a request; a body is sent as JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {self.base}{path} HTTP/{version}",
            f"Host: {self.host}:{self.port}",
            "Authorization: Bearer sk-test",
            *(f"{name}: {value}" for name, value in headers),
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        return "\r\n".join([*lines, "", ""]).encode() + data

    def write(self, data):
        self.writer.write(data)

    async def ask(self, method, path, body=None, **options):
        """Send one request and read its answer."""
        self.write(self.request(method, path, body, **options))
        return await self.answer(head_only=method == "HEAD")

    async def answer(self, *, head_only=False):
        """The next answer on this connection. Raises IncompleteReadError if the connection ends inside it."""
        async with asyncio.timeout(_PATIENCE):
            top = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = [(name, value.strip()) for name, _, value in (line.partition(":") for line in top[1:-2])]
            answer = RawAnswer(top[0], fields)
            if head_only or answer.status < 200:
                return answer
            if (length := answer.value("content-length")) is not None:
                answer.body = await self.reader.readexactly(int(length))
            elif answer.value("transfer-encoding") == "chunked":
                answer.body = await read_chunked(self.reader)
            else:
                answer.body = await self.reader.read()
            return answer

    async def at_end(self):
        """Whether the other side closes the connection, and sends nothing before it does."""
        async with asyncio.timeout(_PATIENCE):
            return await self.reader.read(1) == b""
