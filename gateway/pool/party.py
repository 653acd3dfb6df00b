"""Whose share it is where there is not enough for all: who holds how much, and who may take more."""

from __future__ import annotations

from dataclasses import dataclass

GREED = 8
"""Nobody takes more than this many times what would still be free."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Party:
    """One member of those who share a gateway: all requests with one key, or under one label of the operator's.

    ``turns`` are its turns, from the head of the request on; ``sockets`` its upstream sockets, open or being opened, and ``busy``
    those of them that serve a turn. ``most_turns`` and ``most_sockets`` are limits of its own, None for the common ones.
    """

    label: str | None = None
    most_turns: int | None = None
    most_sockets: int | None = None
    turns: int = 0
    sockets: int = 0
    busy: int = 0


def may_take(held: int, taken: int, limit: int) -> bool:
    """Whether a party that holds ``held`` of the ``taken`` places may take one more of ``limit``.

    Whoever is alone gets eight ninths, so that the next to come finds a place at once, however busy the first is. Several
    that want all they can get end with equal shares, and a ninth of one share stays free. Below nine places none is kept free.
    """
    return taken < limit and held < GREED * (limit - taken)


def share(limit: int, parties: int) -> int:
    """What each of so many parties can have of ``limit`` places if all of them want all they can get."""
    return max(1, GREED * limit // (1 + GREED * parties))
