"""The receiving side of one response: what each event of the upstream means for the client that waits for it.

Events stay the upstream's own bytes. Only those that carry the whole response object are opened, to give back the client's
own ``previous_response_id`` where we had put in ours, and terminal ones to fill an ``output`` that the upstream left out.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.protocol.ending import Ending, array_of, as_failed, raw_at, slice_at, text_at, with_member
from gateway.protocol.events import (
    ALIAS_TERMINAL,
    ERROR,
    ERRORS,
    KEEPALIVE,
    LIFECYCLE,
    STARTS,
    Head,
    head_of,
    is_notice,
    open_json,
)
from gateway.protocol.outcomes import Ignored, Outcome, Refused, Relay, Violation
from gateway.protocol.phases import PERMITS, IllegalTransition, Permit, Phase, Signal, step
from gateway.protocol.raw import NotSliceable, Place, places, removal, splice
from gateway.protocol.rebuilt import same_response
from gateway.protocol.refusals import refusal_of
from gateway.protocol.streamed import StreamedItems

_ENDINGS: dict[str, tuple[Signal, Literal["completed", "incomplete", "failed"]]] = {
    "response.completed": (Signal.COMPLETE, "completed"),
    "response.incomplete": (Signal.INCOMPLETE, "incomplete"),
    "response.failed": (Signal.FAIL, "failed"),
}
_TERMINAL_BY_STATUS = {
    "failed": "response.failed",
    "cancelled": "response.failed",
    "incomplete": "response.incomplete",
}


class Exchange:
    """One request and its response, from the plan to the terminal event. Fed with the socket's text frames, in order.

    ``ours`` says that the frame carries a ``previous_response_id`` that the client did not send; lifecycle events then show
    ``client_parent`` (raw JSON) in its place. ``named`` is the id that was put in, if the upstream's own word for it counts
    (see ``unheard``). ``before`` is the response that ended last on the same socket: its failure, told again, is not this one's.
    An exchange is for one attempt: a repeat is a new exchange.
    """

    def __init__(
        self,
        *,
        ours: bool,
        client_parent: bytes = b"null",
        named: str | None = None,
        before: str | None = None,
    ) -> None:
        self.phase = Phase.PLANNED
        self.response_id: str | None = None
        self.unheard = False
        """The response says that it continues another one than it was asked to, or none: its context is not the client's."""
        self.foreign = False
        """An event of another response came: the socket must not serve another turn."""
        self.ending: Ending | None = None
        self.relayed = 0
        """How many events were given out for the client."""
        self._parent = client_parent if ours else None
        self._named = named
        self._before = before
        self._streamed = StreamedItems()
        self._snapshot: bytes | None = None
        self._last: bytes | None = None
        self._refused_with_status = False
        """Only then may the socket be used on. A failure of a response that never began may be one that ended earlier."""

    @property
    def permit(self) -> Permit:
        """What the present phase allows."""
        return PERMITS[self.phase]

    @property
    def relayed_anything(self) -> bool:
        """Whether an event for the client was given out: nothing may be repeated any more."""
        return self.relayed > 0

    @property
    def may_commit(self) -> bool:
        """Whether the response may become a parent."""
        ending = self.ending if self.permit.may_commit else None
        if ending is None or self.unheard:
            return False
        return not ending.contradicts and ending.response_id is not None

    @property
    def missing_setup(self) -> bool:
        """Whether a delta came for an item or part that was never announced: clients that accumulate would break."""
        return self._streamed.missing_setup

    @property
    def held_bytes(self) -> int:
        """Size of the finished items kept for the ending, in bytes."""
        return self._streamed.held_bytes

    def socket_reusable(self, *, survives_errors: bool) -> bool:
        """Whether the socket can serve another turn; ``survives_errors`` is what is known of this upstream."""
        if self.foreign:
            return False
        allowed = self.permit.socket_reusable
        return survives_errors and self._refused_with_status if allowed is None else allowed

    def sent(self) -> None:
        """The frame is on its way: from here on events belong to this exchange. To be called before the first ``feed``."""
        self._step(Signal.SEND)

    def lost(self) -> None:
        """The connection is gone, or the upstream sent what is no event."""
        self._step(Signal.LOSE)

    def cancelled(self) -> None:
        """The client is gone before the terminal event."""
        self._step(Signal.CANCEL)

    def feed(self, event: bytes) -> Outcome:
        """What the event means. Never raises, whatever the bytes are."""
        head = head_of(event)
        if head is not None and is_notice(head.type):
            return Ignored("notice")
        keepalive = head is not None and head.type == KEEPALIVE
        if keepalive and self.phase is not Phase.STREAMING:
            return Ignored("keepalive")
        if self.phase not in (Phase.SENT, Phase.STREAMING, Phase.ERRORED):
            return self._drop()
        if head is None:
            return Violation("a frame that is not an event")
        try:
            if self.phase is Phase.STREAMING:
                return self._streaming(head, event)
            return self._first(head, event) if self.phase is Phase.SENT else self._after_error(head, event)
        except NotSliceable:
            return Violation("an event that is not a plain JSON object")

    def failure_event(self, *, code: str, message: str) -> bytes:
        """The ``response.failed`` event that ends a stream which broke on our side of the upstream.

        It continues the stream that the client has seen: same response, next sequence number, the items finished so far. The
        caller must close the connection behind it without ending the body. ``message`` must quote nothing that was sent.
        Raises IllegalTransition after a terminal event: a stream has one ending.
        """
        if self.ending is not None and self.ending.kind != "error":
            raise IllegalTransition("a second ending for one response")
        error = msgspec.json.encode({"code": code, "message": message})
        response = as_failed(self._snapshot, self.response_id, error, self._streamed.assemble(None).items)
        return b'{"type":"response.failed","sequence_number":%d,"response":%b}' % (
            self._next_number(),
            response,
        )

    def _step(self, signal: Signal) -> None:
        self.phase = step(self.phase, signal)

    def _drop(self) -> Ignored:
        self.foreign = True
        return Ignored("foreign")

    def _relay(self, kind: str, event: bytes) -> Relay:
        self.relayed += 1
        self._last = event
        return Relay(kind, event)

    def _first(self, head: Head, event: bytes) -> Outcome:
        kind = head.type
        if kind == "response.failed" and self._before is not None and _response_in(event) == self._before:
            return self._drop()
        if kind in ERRORS or kind == "response.failed":
            refusal = refusal_of(event)
            self._refused_with_status = refusal.stated and kind != "response.failed"
            self._step(Signal.REFUSE)
            return Refused(refusal)
        if kind in STARTS:
            outcome = self._lifecycle(head, event)
            self._step(Signal.START)
            return outcome
        # Left over from an earlier response, whose answer must not reach this client; also where it is an end: nothing tells
        # an end that was never announced from one of another response.
        return self._drop() if kind.startswith("response.") else Ignored("notice")

    def _after_error(self, head: Head, event: bytes) -> Outcome:
        return self._lifecycle(head, event) if head.type == "response.failed" else self._drop()

    def _streaming(self, head: Head, event: bytes) -> Outcome:
        kind = head.type
        if isinstance(head.response_id, str) and self.response_id not in (None, head.response_id):
            return self._drop()
        if kind in LIFECYCLE or kind == ALIAS_TERMINAL:
            return self._lifecycle(head, event)
        self._streamed.note(head, event)
        if head.stream_id is not msgspec.UNSET:
            found = places(event)
            event = splice(event, [removal(found, "stream_id")])
        if kind not in ERRORS:
            self._step(Signal.PROGRESS)
            return self._relay(kind, event)
        self.ending = self._error_ending(event)
        self._step(Signal.ERROR)
        if kind != ERROR:
            # An event of this name ends no stream over HTTP: clients would take what came so far for all there is.
            event = splice(event, [with_member(event, places(event), "type", msgspec.json.encode(ERROR))])
        return self._relay(ERROR, event)

    def _lifecycle(self, head: Head, event: bytes) -> Outcome:
        found = places(event)
        place = found.get("response")
        response = b"{}" if place is None else slice_at(event, place)
        inner = places(response)
        named = text_at(response, inner, "id")
        kind = head.type
        if named is not None and self.response_id not in (None, named):
            if kind in STARTS:
                # Most events name no response: with two of them under way nobody can tell whose they are.
                return Violation("two responses at once")
            return self._drop()
        if kind == ALIAS_TERMINAL:
            kind = _TERMINAL_BY_STATUS.get(text_at(response, inner, "status") or "", "response.completed")
        if kind in _ENDINGS and place is None:
            raise NotSliceable("a terminal event without its response")
        self.response_id = self.response_id or named
        if self._named is not None and "previous_response_id" in inner:
            told = text_at(response, inner, "previous_response_id")
            self.unheard = self.unheard or not same_response(self._named, told)
        edits: list[tuple[int, int, bytes]] = []
        if self._parent is not None and "previous_response_id" in inner:
            edits.append(with_member(response, inner, "previous_response_id", self._parent))
        if kind in _ENDINGS:
            response = self._end(kind, event, response, inner, edits)
        else:
            response = splice(response, edits)
        outer: list[tuple[int, int, bytes]] = []
        if place is not None:
            self._snapshot = response
            outer.append((place.start, place.end, response))
        if kind != head.type:
            outer.append(with_member(event, found, "type", msgspec.json.encode(kind)))
        if "stream_id" in found:
            outer.append(removal(found, "stream_id"))
        return self._relay(kind, splice(event, outer))

    def _end(
        self,
        kind: str,
        event: bytes,
        response: bytes,
        inner: dict[str, Place],
        edits: list[tuple[int, int, bytes]],
    ) -> bytes:
        signal, name = _ENDINGS[kind]
        listed = slice_at(response, inner["output"]) if "output" in inner else None
        output = self._streamed.assemble(listed)
        if not output.as_sent:
            edits.append(with_member(response, inner, "output", array_of(output.items)))
        status = text_at(response, inner, "status")
        usage = raw_at(response, inner, "usage")
        response = splice(response, edits)
        self._step(signal)
        self.ending = Ending(
            name,
            response,
            output.items,
            contradicts=output.contradicts or status not in (None, name),
            response_id=self.response_id,
            usage=usage,
            refusal=refusal_of(event) if name == "failed" else None,
        )
        return response

    def _error_ending(self, event: bytes) -> Ending:
        refusal = refusal_of(event)
        items = self._streamed.assemble(None).items
        error = slice_at(refusal.body, places(refusal.body)["error"])
        response = as_failed(self._snapshot, self.response_id, error, items)
        return Ending(
            "error",
            response,
            items,
            contradicts=True,
            response_id=self.response_id,
            usage=None,
            refusal=refusal,
        )

    def _next_number(self) -> int:
        try:
            number = open_json(self._last or b"{}").get("sequence_number")
        except (ValueError, AttributeError):
            number = None
        return number + 1 if isinstance(number, int) else self.relayed


def _response_in(event: bytes) -> str | None:
    """The id of the response that a lifecycle event carries."""
    place = places(event).get("response")
    response = b"{}" if place is None else slice_at(event, place)
    return text_at(response, places(response), "id")


__all__ = ["Ending", "Exchange", "Ignored", "Outcome", "Refused", "Relay", "Violation"]
