"""What the parent and a worker say to each other: lines of JSON over a pair of sockets that nobody else has.

Keys and tokens go this way, so that they stand in no command line and in no environment. When one side ends, the other sees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, Self

import orjson

PATIENCE = 5.0
"""Seconds for which the successor of a worker that is gone is waited for; then others take its conversations, begun anew."""

_LONGEST = 16 * 1024 * 1024


class Control:
    """One end of the pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """The end that is this socket, which belongs to it from now on."""
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end, limit=_LONGEST))

    def say(self, what: str, **more: Any) -> None:
        """Say something; the other side may be gone."""
        if not self._writer.is_closing():
            self._writer.write(orjson.dumps({"say": what, **more}) + b"\n")

    async def hear(self) -> dict[str, Any] | None:
        """The next thing that the other side says; None when it has ended."""
        with contextlib.suppress(ConnectionError, ValueError):
            if (line := await self._reader.readline()).endswith(b"\n"):
                heard: dict[str, Any] = orjson.loads(line)
                return heard
        return None

    async def close(self) -> None:
        """Say what waits to be said, and end."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
