"""Turns at once: how many, whose, and who waits for the next place.

A place is taken when the head of a request is there, before its body is read, and left when its answer has ended: bodies take
memory while they arrive. Choosing and taking are one step without a pause in it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from gateway.errors import Unavailable
from gateway.pool.party import Party, may_take, share

PATIENCE = 10.0
"""Seconds that a party below its share waits for a place; it has not had its part yet, so a refusal would be unfair."""

_RETRY_AFTER = 1
"""Seconds after which a turn that found no place may come again."""


@dataclass(slots=True, eq=False)
class _Waiting:
    party: Party
    granted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Places:
    """The places of one process: ``limit`` in all, ``each`` for one party that has no limit of its own, 0 for no such limit."""

    def __init__(self, limit: int, each: int) -> None:
        self._limit = limit
        self._each = each
        self._holders: set[Party] = set()
        self._waiting: list[_Waiting] = []
        self.taken = 0

    @property
    def waiting(self) -> int:
        """How many wait for a place now."""
        return len(self._waiting)

    def reconfigure(self, limit: int, each: int) -> None:
        """Other limits from now on; who holds a place keeps it."""
        self._limit, self._each = limit, each
        self._hand_over()

    def take(self, party: Party) -> bool:
        """Take a place, which the caller must ``leave``; False if it must ``wait`` for one. Raises Unavailable."""
        most = self._each if party.most_turns is None else party.most_turns
        if most and party.turns >= most:
            raise _refusal(
                "This key is running as many requests at once as it may; send the request again when one of them has ended."
            )
        if may_take(party.turns, self.taken, self._limit):
            self._take(party)
            return True
        queue = self._waiting
        mine = party.turns + sum(waiting.party is party for waiting in queue)
        if mine >= share(self._limit, len(self._holders | {party, *(waiting.party for waiting in queue)})):
            raise _refusal(
                "The gateway is serving as many requests as it may, and this key has its full share of them; send the request "
                "again later."
            )
        return False

    async def wait(self, party: Party) -> None:
        """Wait for a place and take it, which the caller must ``leave``. Raises Unavailable if none comes free in time."""
        waiting = _Waiting(party)
        self._waiting.append(waiting)
        granted = waiting.granted
        try:
            await asyncio.wait([granted], timeout=PATIENCE)
        except asyncio.CancelledError:
            if granted.done():
                self.leave(party)
            raise
        finally:
            if not granted.done():
                self._waiting.remove(waiting)
        if not granted.done():
            raise _refusal("The gateway is serving as many requests as it may; send the request again later.")

    def leave(self, party: Party) -> None:
        """Give a place back."""
        self.taken -= 1
        party.turns -= 1
        if not party.turns:
            self._holders.discard(party)
        if self._waiting:
            self._hand_over()

    def _take(self, party: Party) -> None:
        self.taken += 1
        party.turns += 1
        if party.turns == 1:
            self._holders.add(party)

    def _hand_over(self) -> None:
        """Give free places to those who wait: to whoever holds fewest, and among these to who came first."""
        while self._waiting:
            least = min(self._waiting, key=lambda waiting: waiting.party.turns)
            if not may_take(least.party.turns, self.taken, self._limit):
                return
            self._waiting.remove(least)
            self._take(least.party)
            least.granted.set_result(None)


def _refusal(why: str) -> Unavailable:
    return Unavailable(why, code="too_many_turns", retry_after=_RETRY_AFTER)
