"""Turns that wait for a socket, and in which order they get one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.pool import MAIN, Barred, Dial, Line, Party, Use, Want


@dataclass(frozen=True, slots=True)
class Target:
    """Where a turn goes: the full ws or wss ``url``, the ``headers`` for a new socket's handshake, and whose turn it is.

    ``model`` is told where a socket serves one model only; ``party`` is whose share of the sockets is used. ``per_request`` names
    the headers that are about one request, as patterns; ``line`` is the upstream, one that the pool knows.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    identity: bytes
    model: str | None = None
    party: Party | None = None
    per_request: tuple[str, ...] = ()
    line: Line = MAIN


@dataclass(slots=True, eq=False)
class Waiting:
    """A turn that wants a socket; ``granted`` is what it gets, or is cancelled when there will be none."""

    target: Target
    wants: Sequence[Want]
    fresh: bool
    avoid: frozenset[int]
    granted: asyncio.Future[Use | Dial | Barred] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


def in_turn(queue: list[Waiting]) -> list[Waiting]:
    """Those who wait, in the order in which sockets of one after the other would leave all with the same, else as they came."""
    if len(queue) < 2:
        return list(queue)
    ahead: Counter[Party | None] = Counter()
    ranked: list[tuple[int, int, Waiting]] = []
    for number, waiting in enumerate(queue):
        party = waiting.target.party
        held = 0 if party is None else party.busy
        ranked.append((held + ahead[party], number, waiting))
        ahead[party] += 1
    return [waiting for _, _, waiting in sorted(ranked, key=lambda each: each[:2])]
