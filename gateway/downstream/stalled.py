"""Clients that stop taking what is written to them: noticed by the progress of our own buffer, and dropped."""

from __future__ import annotations

import asyncio

_LOOKS = 4
"""How often the buffer is looked at within the time that a client may take nothing."""


class StallWatch:
    """Watches one connection while bytes wait for its client, and aborts it after ``seconds`` in which none were taken.

    A client that is slow but takes something is never dropped. ``begin`` when bytes begin to wait, ``end`` when none do.
    """

    __slots__ = ("_loop", "_moved_at", "_seconds", "_timer", "_transport", "_waited")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._transport: asyncio.WriteTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waited = 0
        self._moved_at = 0.0

    def begin(self, transport: asyncio.WriteTransport) -> None:
        """Bytes wait in ``transport``; said again, it changes nothing."""
        if self._timer is None:
            self._transport = transport
            self._waited = transport.get_write_buffer_size()
            self._moved_at = self._loop.time()
            self._look_later()

    def end(self) -> None:
        """No bytes wait, or the connection is gone; idempotent."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._seconds / _LOOKS, self._look)

    def _look(self) -> None:
        if self._transport is None:
            return
        waiting = self._transport.get_write_buffer_size()
        if waiting < self._waited:
            self._moved_at = self._loop.time()
        self._waited = waiting
        if self._loop.time() - self._moved_at >= self._seconds:
            self._timer = None
            self._transport.abort()
        else:
            self._look_later()
