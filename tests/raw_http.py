"""HTTP by hand on real sockets: an upstream that records bytes and plays a script, and a client that writes bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field


@dataclass
class Request:
    """One request as its bytes arrived."""

    line: str
    fields: list[tuple[str, str]]
    body: bytes = b""

    @property
    def target(self) -> str:
        """The request target."""
        return self.line.split(" ")[1]

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.fields if key.lower() == name.lower()]


Script = Callable[["Connection", Request], Awaitable[None]]


@dataclass
class Connection:
    """One accepted connection of the raw upstream."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Write bytes and wait until they have left."""
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass
class RawUpstream:
    """Records every request, then plays its script; closes the connection when the script is over unless ``keep``."""

    script: Script
    keep: bool = True
    read_body: bool = True
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    accepted: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    @property
    def base(self) -> str:
        """The base URL to give to the gateway."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        self.connections += 1
        self.accepted.set()
        self.serving[asyncio.current_task()] = writer
        connection = Connection(reader, writer)
        try:
            while True:
                request = await read_request(reader, body=self.read_body)
                self.requests.append(request)
                await self.script(connection, request)
                if not self.keep:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            self.lost.set()
        finally:
            writer.close()

    async def close(self) -> None:
        """End what still runs."""
        for task, writer in self.serving.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self.serving, return_exceptions=True)


@contextlib.asynccontextmanager
async def raw_upstream(script: Script, **options: bool) -> AsyncIterator[RawUpstream]:
    """A running raw upstream."""
    upstream = RawUpstream(script, **options)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        await upstream.close()


async def read_request(reader: asyncio.StreamReader, *, body: bool = True) -> Request:
    """Read one request from a stream."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = [(name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:-2])]
    request = Request(head[0], fields)
    if body:
        if length := request.values("content-length"):
            request.body = await reader.readexactly(int(length[0]))
        elif request.values("transfer-encoding") == ["chunked"]:
            request.body = await read_chunked(reader)
    return request


async def read_chunked(reader: asyncio.StreamReader) -> bytes:
    """Read a chunked body to its final chunk."""
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


def answer(text: bytes) -> Script:
    """A script that answers with these bytes."""

    async def play(connection: Connection, _request: Request) -> None:
        await connection.send(text)

    return play


async def talk(port: int, data: bytes, *, until_closed: bool = True) -> bytes:
    """Write ``data`` to a port and return all that comes back until the connection closes (or the first head)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        if until_closed:
            return await asyncio.wait_for(reader.read(), 20)
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def head(data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower-case names, last value wins) and the rest of a raw answer."""
    top, _, rest = data.partition(b"\r\n\r\n")
    lines = top.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split(" ")[1]), fields, rest
