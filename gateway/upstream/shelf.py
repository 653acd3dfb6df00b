"""The open sockets by number, and those that are on their way out."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from gateway.pool import Line
from gateway.upstream.inbox import Ending
from gateway.upstream.socket import UpstreamSocket

_LAST_GRACE = 0.25


class Place(NamedTuple):
    """Where an open socket stands: its number, the URL that it was opened to, and its line."""

    number: int
    url: str
    line: Line


class Shelf:
    """Keeps a socket until its connection is gone, also when it is no longer to be used."""

    def __init__(self) -> None:
        self._sockets: dict[int, UpstreamSocket] = {}
        self._places: dict[UpstreamSocket, Place] = {}
        self._leaving: set[UpstreamSocket] = set()

    def __len__(self) -> int:
        return len(self._sockets)

    def put(self, socket: UpstreamSocket, place: Place) -> None:
        """Keep an open socket."""
        self._sockets[place.number] = socket
        self._places[socket] = place

    def get(self, socket_id: int) -> UpstreamSocket | None:
        """The socket, if it is still to be used."""
        return self._sockets.get(socket_id)

    def place(self, socket: UpstreamSocket) -> Place | None:
        """The place of a socket that is still to be used."""
        return self._places.get(socket)

    def numbers(self) -> tuple[int, ...]:
        """The sockets that are still to be used."""
        return tuple(self._sockets)

    def remove(self, socket_id: int, *, politely: bool, ending: Ending | None) -> Place | None:
        """Use a socket no more and, unless it has ended, close it: ``politely``, or at once. Where it was, None if it was not here."""
        socket = self._sockets.pop(socket_id, None)
        if socket is None:
            return None
        place = self._places.pop(socket)
        if not socket.connection_lost_waiter.done():
            self._leaving.add(socket)
            socket.connection_lost_waiter.add_done_callback(lambda _: self._leaving.discard(socket))
        if ending is None:
            (socket.close_politely if politely else socket.abort)()
        return place

    async def gone(self) -> None:
        """Wait until the removed sockets are gone; those that take long are dropped."""
        if not self._leaving:
            return
        ends = {socket.connection_lost_waiter: socket for socket in self._leaving}
        _, late = await asyncio.wait(ends, timeout=_LAST_GRACE)
        for end in late:
            ends[end].transport.abort()
        await asyncio.wait(ends)
