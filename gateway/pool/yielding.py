"""Which idle socket makes room when there are as many as there may be, so that none with many takes those of one with few."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TypeVar

from gateway.pool.party import Party

AWAY = 300.0
"""Seconds without a turn after which a conversation is not protected any more: whoever had it may be gone."""


class Held(Protocol):
    """A socket, as far as it matters here."""

    last_used: float

    @property
    def party(self) -> Party:
        """Whose it is."""

    @property
    def takes_turn(self) -> bool:
        """Whether it is idle."""

    @property
    def precious(self) -> bool:
        """Whether it alone holds a conversation."""


Socket = TypeVar("Socket", bound=Held)


def yielding(sockets: Collection[Socket], party: Party, limit: int, now: float) -> Socket | None:
    """The idle one of all ``sockets`` that makes room for one of ``party``; None if none should.

    A party below its share of ``limit`` takes from those above theirs, first what holds no conversation, then what was unused
    longest, of whoever has most. One that has its share makes do with its own. What was unused for long is anybody's.
    """
    share = limit / len({each.party for each in sockets} | {party})
    below = party.sockets < share
    best: tuple[float, ...] | None = None
    found: Socket | None = None
    for each in sockets:
        if not each.takes_turn:
            continue
        other = each.party
        rank: tuple[float, ...]
        if other is party:
            rank = (3 if below else 0, each.last_used)
        elif now - each.last_used >= AWAY:
            rank = (1, each.last_used)
        elif below and other.sockets > share:
            rank = (2, each.precious, -other.sockets, each.last_used)
        elif other.sockets > party.sockets + 1 or not party.sockets:
            rank = (4, -other.sockets, each.last_used)
        else:
            continue
        if best is None or rank < best:
            best, found = rank, each
    return found
