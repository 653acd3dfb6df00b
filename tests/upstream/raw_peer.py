"""A WebSocket upstream by hand, for everything that a proper server library would not do."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class RawSocket:
    """The server's end of one upgraded connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def upgrade(self) -> None:
        """Answer the upgrade."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        key = next(
            line[19:] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key: ")
        )
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        self.writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )

    async def frame(self) -> tuple[int, bytes]:
        """The next frame of the client: opcode and unmasked payload."""
        first, second = await self.reader.readexactly(2)
        size = second & 127
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
        mask = int.from_bytes(await self.reader.readexactly(4), "big")
        data = await self.reader.readexactly(size)
        whole = (size + 3) // 4
        long_mask = int.from_bytes(mask.to_bytes(4, "big") * whole, "big")
        padded = int.from_bytes(data.ljust(whole * 4, b"\0"), "big") ^ long_mask
        return first & 15, padded.to_bytes(whole * 4, "big")[:size]

    async def text(self) -> bytes:
        """The next text frame."""
        while (got := await self.frame())[0] != 1:
            pass
        return got[1]

    def write(self, opcode: int, payload: bytes, *, fin: bool = True) -> None:
        """Write one frame."""
        self.writer.write(raw_frame(opcode, payload, fin=fin))

    def close(self, code: int) -> None:
        """Write a close frame."""
        self.write(8, struct.pack("!H", code) + b"why")

    def reset(self) -> None:
        """Cut the connection with RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def ponging(self) -> None:
        """Answer pings until the client goes."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                opcode, payload = await self.frame()
                if opcode == 9:
                    self.write(10, payload)


def upgrade_answer(head: bytes) -> bytes:
    """The answer that accepts the upgrade asked for in ``head``."""
    key = next(line[19:] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key: "))
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )


def raw_frame(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """The bytes of one server frame."""
    size = len(payload)
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        return head + bytes([size]) + payload
    if size < 65_536:
        return head + b"\x7e" + struct.pack("!H", size) + payload
    return head + b"\x7f" + struct.pack("!Q", size) + payload


@contextlib.asynccontextmanager
async def raw_peer(
    script: Callable[[RawSocket], Awaitable[None]], *, receive_buffer: int | None = None, **options: object
) -> AsyncIterator[str]:
    """A server on a free port that upgrades and then runs ``script`` for each connection; gives its URL."""
    handlers: set[asyncio.Task[None] | None] = set()
    scripts: set[asyncio.Task[None]] = set()

    async def run(raw: RawSocket) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await raw.upgrade()
            await script(raw)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        running = asyncio.get_running_loop().create_task(run(RawSocket(reader, writer)))
        scripts.add(running)
        await asyncio.wait([running])
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    listener = socket.create_server(("127.0.0.1", 0))
    if receive_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    server = await asyncio.start_server(handle, sock=listener, limit=65_536, **options)
    scheme = "wss" if "ssl" in options else "ws"
    async with server:
        try:
            yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/responses"
        finally:
            for running in scripts:
                running.cancel()
            ended = await asyncio.gather(*scripts, return_exceptions=True)
            await asyncio.gather(*handlers)
        assert [e for e in ended if isinstance(e, Exception)] == []
