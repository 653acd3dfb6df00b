"""What a request stands on: the parents it may continue, and what is remembered once its response has completed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gateway.conversation.arriving import Body
from gateway.conversation.items import Kind, Unreadable
from gateway.conversation.plan import Plan
from gateway.conversation.reasons import Reason
from gateway.conversation.request import Request
from gateway.conversation.transcripts import Match, Transcript
from gateway.pool import Want
from gateway.protocol.ending import Ending
from gateway.protocol.frames import create_frame
from gateway.protocol.rebuilt import is_incomplete

if TYPE_CHECKING:
    from gateway.index.shared import SharedIndex
    from gateway.turn.driver import TurnDriver


class Standing:
    """One request of one identity, planned when it is made. ``body`` is what it was read from."""

    def __init__(self, driver: TurnDriver, identity: bytes, request: Request, body: Body) -> None:
        self._driver = driver
        self._identity = identity
        self._body = body
        self.request = request
        self._level = driver.level
        if request.client_parent is not None or not self._recognised_rightly():
            self._widen()
        self.plan: Plan = driver.plan(identity, self.request)
        if self.request.after is not None and not self.plan.parents:
            # Recognised, but of no use; a complete reading tells why, and may find an older parent.
            self._widen()
            self.plan = driver.plan(identity, self.request)

    async def look_elsewhere(self, index: SharedIndex) -> None:
        """Ask the index that gateways share for a longer parent than is known here, and plan again with what it knows.

        What it brings is verified by that plan, item by item, as if it had been made here.
        """
        if not self._may_be_elsewhere(index):
            return
        self._widen()
        driver, before = self._driver, self._consumed()
        for found in await index.find(self._identity, self.request.facts, self.request.fields.names):
            driver.store.take_in(
                self._identity,
                response_id=found.response_id,
                sent=found.sent,
                answered=found.answered,
                fields=found.fields,
                lineage=found.lineage,
                now=driver.clock(),
            )
        self.plan = driver.plan(self._identity, self.request)
        index.counted(hit=self._consumed() > before)

    def _may_be_elsewhere(self, index: SharedIndex) -> bool:
        """Whether another gateway may know of a parent that leaves less to send."""
        request, plan = self.request, self.plan
        if (
            not index.answers
            or not self.reloadable
            or plan.reason in _NOT_LOOKED_UP
            or request.fields.truncates
        ):
            return False
        if not self._driver.pool.finds_stored(self._identity, self._driver.line):
            return False
        if not plan.parents:
            return request.skipped + len(request.items) > 1
        # Among what would be sent is something that an API makes: a later answer than the newest that is known here.
        first = plan.parents[0].consumed - request.skipped
        return any(
            fact.kind in _ANSWERS or fact.identifier is not None or _ANSWERED.search(item) is not None
            for fact, item in zip(request.facts[first:], request.items[first:], strict=True)
        )

    def _consumed(self) -> int:
        return self.plan.parents[0].consumed if self.plan.parents else 0

    def wants(self, *, fresh: bool) -> dict[Want, Match | None]:
        """The parents to ask the pool for, longest first, with the match that each came from.

        A parent that the client named itself has no match: it is sent as it was given, best on the socket that holds it.
        """
        if fresh:
            return {}
        if self.request.client_parent is not None:
            return {Want(self.request.client_parent, stored=True): None}
        reloads = self._driver.profile.reloads
        return {Want(m.transcript.response_id, m.transcript.stored and reloads): m for m in self.plan.parents}

    @property
    def reloadable(self) -> bool:
        """Whether the upstream can continue the response elsewhere than on the socket that it came by."""
        return self.request.store and self._driver.profile.reloads

    def may_continue(self, wants: dict[Want, Match | None]) -> bool:
        """Whether a delta can be sent right now, so that a request too large to be sent whole is worth a socket."""
        pool = self._driver.pool
        return any(
            match is not None and (want.stored or pool.holds(self._identity, want.response_id))
            for want, match in wants.items()
        )

    def whole_frame_reaches(self, limit: int) -> bool:
        """Whether the frame without a parent has ``limit`` bytes or more."""
        return len(self._body) + _FRAME_EXTRA >= limit and len(self.frame(None)) >= limit

    def frame(self, match: Match | None) -> bytes:
        """The frame that continues ``match``, or, without one, sends the client's whole input."""
        if match is None:
            self._widen()
            return create_frame(self.request.members, previous_response_id=None, items=None)
        return create_frame(
            self.request.members,
            previous_response_id=match.transcript.response_id,
            items=self.request.items[match.consumed - self.request.skipped :],
        )

    def remember(self, ending: Ending, match: Match | None, *, reloaded: bool = False) -> None:
        """The response has completed, standing on ``match`` or on what the request itself named.

        ``reloaded`` says that the upstream must have had what ``match`` is from elsewhere than from its socket.
        """
        if reloaded:
            self._driver.retention.found(self._identity)
        base: Transcript | None = match.transcript if match is not None else None
        if match is None:
            self._widen()
        request, store = self.request, self._driver.store
        if request.client_parent is not None:
            base = store.get(self._identity, request.client_parent)
            if base is None:
                # What the upstream holds is not known item by item, so nothing can be found to extend it.
                return
        if ending.response_id is None or is_incomplete(ending.response_id, ending.items):
            return
        try:
            answered = [self._driver.reader.facts(item) for item in ending.items]
        except Unreadable:
            return
        made = store.add(
            self._identity,
            response_id=ending.response_id,
            base=base,
            sent=request.facts[match.consumed - request.skipped if match is not None else 0 :],
            answered=answered,
            fields=request.fields,
            stored=request.store,
            now=self._driver.clock(),
            spelling=request.spelling if request.client_parent is None else None,
            level=self._level,
        )
        index = self._driver.index
        if made is not None and self.reloadable:
            self._driver.retention.made(self._identity, ending.response_id)
            if index is not None:
                index.tell(self._identity, made)
        if request.after is not None:
            store.outgrown(self._identity, request.after.transcript.response_id)

    def _recognised_rightly(self) -> bool:
        """Whether what made the beginning equal then would do so now: the level may have changed, and what is stored."""
        after = self.request.after
        return after is None or (after.level is self._level and after.transcript.stored is self.request.store)

    def _widen(self) -> None:
        """Read the items that were recognised without being read."""
        if self.request.after is not None:
            whole = self._driver.reader.read(self._body.whole(), bounded=False)
            assert isinstance(whole, Request)  # noqa: S101 (its beginning was read when it was first seen, its end just now)
            self.request = whole


_NOT_LOOKED_UP = frozenset({Reason.CLIENT_PARENT, Reason.DISABLED, Reason.DELTA_REFUSED})
"""Plans that no further parent would change."""
_ANSWERS = frozenset({Kind.REASONING, Kind.REFERENCE})
_ANSWERED = re.compile(rb'"(?:type"\s*:\s*"\w+_call|role"\s*:\s*"assistant)"')
"""How an item of an answer gives itself away, as unescaped quotes stand in no text. A mistake costs a look-up, or a longer delta."""
_FRAME_EXTRA = 64
"""More than a frame can be longer than the body that it was made of."""
