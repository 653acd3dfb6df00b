"""What a turn sees of its socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.pool import Closed, Fate, Want
from gateway.upstream.inbox import Ended, Ending, Inbox, SocketLost


class Lender(Protocol):
    """The pool, as a lease needs it."""

    def write(self, socket_id: int, frame: bytes) -> None:
        """Write a frame on a lent socket; nothing happens when it has ended."""

    def take_back(
        self,
        socket_id: int,
        *,
        tip: str | None,
        stored: bool,
        reusable: bool,
        keep_parent: bool,
        aged: bool,
        ended: str | None,
    ) -> None:
        """A turn has ended."""

    def drop(self, socket_id: int, reason: Closed) -> None:
        """A turn was given up."""


class Lease:
    """Exclusive use of one socket for one turn; must end with ``release`` or ``abort``, whichever comes first counts.

    ``parent`` is the want that this socket satisfies, None if the turn must be sent in full; ``fate`` says why the longest
    want is not the parent. ``before`` is the response that ended last on this socket. One task at a time may send or receive.
    """

    def __init__(
        self,
        lender: Lender,
        socket_id: int,
        inbox: Inbox,
        *,
        parent: Want | None,
        fate: Fate | None,
        reused: bool,
        before: str | None = None,
    ) -> None:
        self.socket_id = socket_id
        self.parent = parent
        self.fate = fate
        self.reused = reused
        self.before = before
        self._lender = lender
        self._inbox = inbox
        self._over = False

    @property
    def waiting_bytes(self) -> int:
        """Bytes that came and were not yet taken; the socket never stops reading, so the turn must bound them."""
        return self._inbox.size

    def bound(self, limit: int, on_overflow: Callable[[], None]) -> None:
        """Call ``on_overflow`` once when more than ``limit`` bytes wait: whoever should take them does not.

        Two events of the largest size that came may wait beside them.
        """
        self._inbox.limit = limit
        self._inbox.on_overflow = on_overflow

    async def send(self, frame: bytes) -> None:
        """Write ``frame`` (UTF-8 JSON) as one text message.

        Returns when all of it has left our buffers, or earlier if the upstream already answers. Raises SocketLost.
        """
        if self._over:
            raise self._lost()
        self._lender.write(self.socket_id, frame)
        while not (self._inbox.flushed or self._inbox.answered):
            if self._inbox.ending is not None:
                raise self._lost()
            await self._inbox.changed()

    async def receive(self) -> list[bytes]:
        """The text frames that came since the last call, at least one. Raises SocketLost when no more will come."""
        while not (frames := self._inbox.take()):
            if self._inbox.ending is not None or self._over:
                raise self._lost()
            await self._inbox.changed()
        return frames

    def release(
        self,
        *,
        tip: str | None,
        stored: bool,
        reusable: bool,
        keep_parent: bool = False,
        aged: bool = False,
        ended: str | None = None,
    ) -> None:
        """Give the socket back after the turn's last event; idempotent.

        ``tip`` is the response that is now the newest on it, ``stored`` whether the upstream can reload it; with None what
        the socket held is void, unless ``keep_parent`` says that the turn changed nothing. Not ``reusable``: it is
        closed. ``aged``: the upstream refused the turn because of the socket's age; it is closed and the age is learned.
        ``ended`` is the response that ended in this turn, whichever way, if one did.
        """
        if self._over:
            return
        self._over = True
        self._lender.take_back(
            self.socket_id,
            tip=tip,
            stored=stored,
            reusable=reusable,
            keep_parent=keep_parent,
            aged=aged,
            ended=ended,
        )
        self._inbox.end(Ending(Ended.OURS))

    def abort(self, reason: Closed = Closed.CLIENT_LEFT) -> None:
        """Give the turn up and close the socket at once, which is the only way to cancel; idempotent."""
        if self._over:
            return
        self._over = True
        self._lender.drop(self.socket_id, reason)
        self._inbox.end(Ending(Ended.OURS))

    def _lost(self) -> SocketLost:
        inbox = self._inbox
        return SocketLost(
            inbox.ending or Ending(Ended.OURS),
            flushed=inbox.flushed,
            answered=inbox.answered,
            ponged=inbox.ponged,
            reused=self.reused,
        )
