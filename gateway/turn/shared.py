"""What the turns of all upstreams of one gateway share, so that limits, labels and conversations are those of the gateway."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from gateway.conversation.digests import Digester
from gateway.conversation.reading import Reader
from gateway.settings import Settings
from gateway.stats import OTHER, Now, TurnRecord
from gateway.store import Store
from gateway.turn.parties import Parties
from gateway.turn.places import Places
from gateway.turn.retention import Retention
from gateway.upstream.identity import VolatileHeaders
from gateway.upstream.socket_pool import SocketPool
from gateway.upstream.team import Team

if TYPE_CHECKING:
    from gateway.index.shared import SharedIndex


class Counter(Protocol):
    """Counts turns as they begin and end."""

    def begin(self) -> None:
        """A turn is running."""

    def end(self, record: TurnRecord) -> None:
        """It has ended."""


class Shared:
    """One for each process.

    ``key`` is that of all digests where several processes must understand each other's; else one is drawn, or is the index's.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store,
        pool: SocketPool,
        counter: Counter,
        team: Team | None = None,
        index: SharedIndex | None = None,
        key: bytes | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        # What is digested with it can be compared with the digests of other gateways, where any are to be understood.
        if key is None:
            key = secrets.token_bytes(32) if index is None else index.key
        self.key = key
        self.store = store
        self.pool = pool
        self.counter = counter
        self.index = index
        self.clock = clock
        self.places = Places(settings.max_in_flight, settings.in_flight_per_identity)
        self.parties = Parties(key, team or Team())
        self.digester = Digester(key)
        self.reader = Reader(self.digester)
        self.volatile = VolatileHeaders(key)
        self.told_of_reasoning: set[bytes] = set()
        self.retention = Retention(clock)
        if index is not None:
            index.hear(self.drop, store.forget_stored)
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Go on with other limits and names of headers, from the next turn."""
        if self.index is not None:
            # With other names of headers somebody else may count as the same.
            self.index.go_by(settings.per_request_headers)
        self.places.reconfigure(settings.max_in_flight, settings.in_flight_per_identity)

    def deleted(self, identity: bytes, response_id: str) -> None:
        """The client has deleted this response: nothing that is chained through it is continued, here or elsewhere."""
        self.drop(identity, response_id)
        if self.index is not None:
            self.index.deleted(identity, response_id)

    def drop(self, identity: bytes, response_id: str) -> None:
        """The response was deleted, here or elsewhere: nothing that is chained through it is continued here."""
        self.store.delete(identity, response_id)
        self.pool.forget(identity, response_id)

    def holdings(self) -> dict[str, Now]:
        """What each label of the team holds now, and all others together."""
        found = {party.label or OTHER: Now(party.turns, party.sockets) for party in self.parties.labelled()}
        turns, sockets = (sum(held) for held in zip(*found.values(), strict=True)) if found else (0, 0)
        seen = self.pool.snapshot()
        return found | {OTHER: Now(self.places.taken - turns, seen["open"] + seen["dialling"] - sockets)}
