"""What a request stands on: the parents it may continue, and what is remembered once its response has completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.conversation.items import facts_of
from gateway.conversation.plan import Plan
from gateway.conversation.request import Request
from gateway.conversation.tree import Match, Transcript
from gateway.pool import Want
from gateway.protocol.ending import Ending

if TYPE_CHECKING:
    from gateway.turn.driver import TurnDriver


class Standing:
    """One request of one identity, planned when it is made."""

    def __init__(self, driver: TurnDriver, identity: bytes, request: Request) -> None:
        self._driver = driver
        self._identity = identity
        self.request = request
        self.plan: Plan = driver.plan(identity, request)

    def wants(self, *, fresh: bool) -> dict[Want, Match | None]:
        """The parents to ask the pool for, longest first, with the match that each came from.

        A parent that the client named itself has no match: it is sent as it was given, best on the socket that holds it.
        """
        if fresh:
            return {}
        if self.request.client_parent is not None:
            return {Want(self.request.client_parent, stored=True): None}
        return {Want(m.transcript.response_id, m.transcript.stored): m for m in self.plan.parents}

    def may_continue(self, wants: dict[Want, Match | None]) -> bool:
        """Whether a delta can be sent right now, so that a request too large to be sent whole is worth a socket."""
        pool = self._driver.pool
        return any(
            match is not None and (want.stored or pool.holds(self._identity, want.response_id))
            for want, match in wants.items()
        )

    def remember(self, ending: Ending, match: Match | None) -> None:
        """The response has completed, standing on ``match`` or on what the request itself named."""
        base: Transcript | None = match.transcript if match is not None else None
        if self.request.client_parent is not None:
            base = self._driver.store.get(self._identity, self.request.client_parent)
            if base is None:
                # What the upstream holds is not known item by item, so nothing can be found to extend it.
                return
        if ending.response_id is None:
            return
        digester = self._driver.digester
        self._driver.store.add(
            self._identity,
            response_id=ending.response_id,
            base=base,
            sent=self.request.facts[match.consumed if match is not None else 0 :],
            answered=[facts_of(item, digester) for item in ending.items],
            fields=self.request.fields,
            stored=self.request.store,
            now=self._driver.clock(),
        )
