"""What one turn has received from its socket, and how the socket ended if it did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Ended(StrEnum):
    """How a socket ended: a closed set, fit for logs."""

    CLOSED = "closed"
    """The upstream sent a close frame."""
    EOF = "eof"
    """The upstream closed the connection without one."""
    RESET = "reset"
    """The connection broke."""
    PING_TIMEOUT = "ping_timeout"
    WRITE_TIMEOUT = "write_timeout"
    TOO_LARGE = "event_too_large"
    """The upstream sent more in one event than we take."""
    BINARY = "binary"
    """The upstream sent a binary frame, which this protocol does not have."""
    PROTOCOL = "protocol"
    """The upstream broke the rules of WebSocket or of UTF-8."""
    OURS = "ours"
    """We closed it."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a socket ended; ``code`` is the close code that the upstream sent, None if it sent none."""

    how: Ended
    code: int | None = None

    @property
    def by_upstream(self) -> bool:
        """Whether the upstream, or the network, ended a socket that was in order."""
        return self.how in {Ended.CLOSED, Ended.EOF, Ended.RESET}

    @property
    def is_garbled(self) -> bool:
        """Whether one side could not read what the other had written: close codes 1002 and 1007 of WebSocket say so."""
        return self.how is Ended.PROTOCOL or (self.how is Ended.CLOSED and self.code in {1002, 1007})


class SocketLost(Exception):
    """The socket of a turn ended before the turn did.

    ``flushed`` says that the whole frame left our buffers; false means that nothing can have run. ``answered`` says that
    a text frame came after it, ``ponged`` that the pong to the ping sent right behind it came, ``reused``
    that the socket had served an earlier turn. ``too_big`` is the upstream's own close code 1009, "frame too big".
    """

    def __init__(self, ending: Ending, *, flushed: bool, answered: bool, ponged: bool, reused: bool) -> None:
        super().__init__(f"upstream socket lost: {ending.how.value}")
        self.code = ending.code
        self.reason = ending.how.value
        self.flushed = flushed
        self.answered = answered
        self.ponged = ponged
        self.reused = reused
        self.too_big = ending.code == 1009


class Inbox:
    """The frames that came for one turn, each lease its own, so that no turn can read another's."""

    __slots__ = (
        "_largest", "_waiter", "answered", "ending", "flushed", "frames", "limit", "on_overflow", "ping", "ponged", "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.size = 0
        self.ending: Ending | None = None
        self.flushed = False
        self.answered = False
        self.ponged = False
        self.ping: int | None = None
        self.limit: int | None = None
        self.on_overflow: Callable[[], None] | None = None
        self._largest = 0
        self._waiter: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """A frame is about to be written: what is known of the frame before it counts no more."""
        self.flushed = self.answered = self.ponged = False
        self.ping = None

    def put(self, frames: list[bytes]) -> None:
        """Add what one read of the transport brought, with one wake-up."""
        sizes = [len(frame) for frame in frames]
        self.frames.extend(frames)
        self.size += sum(sizes)
        self._largest = max(self._largest, *sizes)
        self.answered = True
        self.wake()
        # One large event often comes twice, when it is done and in the response that lists it: a client that reads must not
        # be dropped for that.
        beside = 2 * self._largest
        if self.limit is not None and self.size > self.limit + beside and self.on_overflow is not None:
            overflow, self.on_overflow = self.on_overflow, None
            overflow()

    def take(self) -> list[bytes]:
        """Everything that has come since the last call."""
        frames, self.frames = self.frames, []
        self.size = 0
        return frames

    def end(self, ending: Ending) -> None:
        """Nothing more will come."""
        if self.ending is None:
            self.ending = ending
            self.wake()

    def wake(self) -> None:
        """Let the waiting turn look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def changed(self) -> None:
        """Wait for the next wake-up; one waiter at a time."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
