"""Whether a socket still lives: pings, pongs and write progress, on one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from gateway.upstream.inbox import Ended

_HELD_UP = 0.1


@dataclass(frozen=True, slots=True)
class Patience:
    """Times in seconds: between pings, for a pong, without write progress, for the close handshake."""

    ping_interval: float = 20.0
    ping_timeout: float = 20.0
    write_timeout: float = 30.0
    close_timeout: float = 5.0


class Liveness:
    """Pings a socket and decides that it is dead.

    A ping goes out every ``ping_interval`` and whenever asked for. Without its pong or any other byte for ``ping_timeout`` the
    socket is dead; silence without an unanswered ping never is. While our own bytes wait to be written only write
    progress counts, because a pong cannot come before its ping has left; afterwards the wait is at least twice the time that
    the writing took, because the kernel and the network still hold a part of it.

    ``send_ping`` writes a ping with the given payload, ``unsent`` tells how many of our bytes wait, ``die`` ends the socket.
    """

    def __init__(
        self,
        patience: Patience,
        *,
        send_ping: Callable[[bytes], None],
        unsent: Callable[[], int],
        die: Callable[[Ended], None],
    ) -> None:
        self._patience = patience
        self._send_ping = send_ping
        self._unsent = unsent
        self._die = die
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._writing = False
        self._pings: dict[int, float] = {}
        self._count = 0
        self._pinged_at = self._heard_at = self._written_at = self._excused_at = self._loop.time()
        self._write_began = self._moved_at = 0.0
        self._unsent_before = 0
        self._write_took = 0.0

    def start(self) -> None:
        """Begin to watch."""
        self._running = True
        self._arm(self._loop.time() + self._patience.ping_interval)

    def stop(self) -> None:
        """Watch no longer; idempotent."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def heard(self) -> None:
        """Bytes came from the upstream."""
        self._heard_at = self._loop.time()

    def frame_written(self) -> None:
        """A turn's frame was handed to the transport: its progress is measured from here."""
        self._write_took = 0.0
        self._moved_at = self._write_began = self._loop.time()
        self._unsent_before = self._unsent()

    def writing(self) -> None:
        """Bytes of ours wait to be written."""
        now = self._loop.time()
        self._writing = True
        self._write_began = self._moved_at = now
        self._unsent_before = self._unsent()
        self._arm(now + self._patience.write_timeout / 4)

    def written(self) -> None:
        """All our bytes have left."""
        now = self._loop.time()
        self._writing = False
        self._written_at = now
        self._write_took = max(self._write_took, now - self._write_began)
        self._arm(now + self._patience.ping_timeout)

    def ping(self) -> int:
        """Send a ping now; its number, higher than that of all before."""
        self._count += 1
        now = self._pinged_at = self._loop.time()
        self._pings[self._count] = now
        self._send_ping(self._count.to_bytes(4, "big"))
        self._arm(now + min(self._patience.ping_interval, self._patience.ping_timeout))
        return self._count

    def ponged(self, payload: bytes) -> int | None:
        """A pong came: the number of the ping it answers, and with it all earlier ones; None if it answers none."""
        number = int.from_bytes(payload, "big")
        if len(payload) != 4 or number not in self._pings:
            return None
        for earlier in [n for n in self._pings if n <= number]:
            del self._pings[earlier]
        return number

    def _arm(self, due: float) -> None:
        if not self._running:
            return
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        self._timer = None
        now = self._loop.time()
        patience = self._patience
        if now - due > _HELD_UP * min(patience.ping_timeout, patience.write_timeout):
            # Our own loop was held up: what it could not see meanwhile is not held against the upstream.
            self._excused_at = now
        if self._writing:
            unsent = self._unsent()
            if unsent < self._unsent_before:
                self._moved_at = now
            self._unsent_before = unsent
            deadline = max(self._moved_at, self._excused_at) + patience.write_timeout
            if now >= deadline:
                self._die(Ended.WRITE_TIMEOUT)
            else:
                self._arm(min(deadline, now + patience.write_timeout / 4))
            return
        deadline = now + patience.ping_interval
        if self._pings:
            oldest = next(iter(self._pings.values()))
            since = max(oldest, self._heard_at, self._written_at, self._excused_at)
            deadline = since + max(patience.ping_timeout, 2 * self._write_took)
            if now >= deadline:
                self._die(Ended.PING_TIMEOUT)
                return
        if now >= self._pinged_at + patience.ping_interval:
            self.ping()
        self._arm(min(deadline, self._pinged_at + patience.ping_interval))
