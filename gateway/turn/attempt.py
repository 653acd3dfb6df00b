"""One try of a turn over one socket: its frame out, its events in, and what becomes of the socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from gateway.conversation.transcripts import Match
from gateway.errors import UpstreamLost
from gateway.pool import Closed
from gateway.protocol.exchange import Exchange, Ignored, Refused, Relay, Violation
from gateway.protocol.phases import Phase
from gateway.protocol.refusals import Refusal
from gateway.protocol.sse import sse_event
from gateway.turn.account import Account
from gateway.turn.call import StreamBroken
from gateway.turn.standing import Standing
from gateway.turn.tries import Loss
from gateway.upstream.inbox import SocketLost
from gateway.upstream.lease import Lease

if TYPE_CHECKING:
    from gateway.turn.driver import TurnDriver

_TRAILING_FAILURE = 1.0
"""Seconds to wait, after an ``error`` in mid-stream, for the ``response.failed`` that some upstreams send behind it."""

_VIOLATION = Loss(flushed=True, answered=True, ponged=True, reused=False, too_big=False)

_LOST_CODE = "upstream_connection_lost"
_LOST_TEXT = (
    "The connection to the upstream was lost after the request was sent. It may have run there, so the gateway did not send it "
    "again; send it again if that is safe."
)


def unanswered() -> UpstreamLost:
    """What a client is told of a request that was sent, and lost before its answer could be given."""
    return UpstreamLost(_LOST_TEXT, code=_LOST_CODE)


class Lost(Exception):
    """The socket was lost, or its peer broke the protocol."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss


class Attempt:
    """Holds ``lease`` until the response has ended, the upstream has refused, or the caller gives up, which it must in the end.

    ``match`` is what the frame continues, None if the frame names no parent of ours.
    """

    def __init__(
        self, driver: TurnDriver, account: Account, standing: Standing, lease: Lease, match: Match | None
    ) -> None:
        self._driver = driver
        self._account = account
        self._standing = standing
        self._lease: Lease | None = lease
        self._pending: list[bytes] = []
        self._left: Sequence[bytes] = ()
        self._erred = False
        self._violated = False
        self._reloads = match is not None and not lease.reused
        self.match = match
        self.socket_id = lease.socket_id
        own_parent = (bytes(m.value) for m in standing.request.members if m.name == "previous_response_id")
        self.exchange = Exchange(
            ours=match is not None,
            client_parent=next(own_parent, b"null"),
            named=match.transcript.response_id if match is not None and driver.checks_parent else None,
            before=lease.before,
        )

    def bound(self, abandon: Callable[[], None]) -> None:
        """``abandon`` drops a client for whom too much of the stream waits."""
        if self._lease is not None:
            self._lease.bound(self._driver.max_waiting, abandon)

    def not_sent(self) -> None:
        """Give the socket back as it was."""
        if self._lease is not None:
            self._lease.release(tip=None, stored=False, reusable=True, keep_parent=True)
            self._lease = None

    async def begin(self, frame: bytes) -> Refusal | None:
        """Send the frame and wait, without limit, for the first event: gives a refusal, if it is one. Raises Lost."""
        assert self._lease is not None  # noqa: S101 (an attempt begins once; an empty answer must never come of anything else)
        self._account.sending(len(frame))
        self.exchange.sent()
        try:
            await self._lease.send(frame)
        except SocketLost as error:
            raise Lost(_loss(error)) from None
        self._account.sent()
        while not self._pending:
            # What came behind the first event is looked at when that is on its way to the client.
            refusal = self._take(await self._receive(self._lease), only_first=True)
            if refusal is not None:
                return refusal
        return None

    async def finish(self) -> None:
        """Wait for the end of the response, for a client that wants it in one piece. Raises Lost."""
        while self._lease is not None:
            self._pending.clear()
            self._take(await self._receive(self._lease))
        self._pending.clear()

    async def events(self) -> AsyncIterator[bytes]:
        """The event stream, in pieces ready to be written. Raises StreamBroken after the piece that tells of a failure."""
        while True:
            if self._pending:
                piece = b"".join(self._pending)
                self._pending.clear()
                yield piece
            if self._lease is None:
                return
            try:
                self._take(await self._receive(self._lease))
            except Lost:
                self.give_up(Closed.LOST)
                self._account.finished(failed=True)
                failure = self.exchange.failure_event(code=_LOST_CODE, message=_LOST_TEXT)
                self._pending.append(sse_event("response.failed", failure))
                yield b"".join(self._pending)
                raise StreamBroken from None

    def refused(self, *, aged: bool) -> bool:
        """Give the socket back after a refusal; whether it may be used again. ``aged``: the upstream finds it too old."""
        reusable = self.exchange.socket_reusable(survives_errors=self._driver.survives_errors)
        if self._lease is not None:
            self._lease.release(tip=None, stored=False, reusable=reusable and not aged, aged=aged)
            self._lease = None
        return reusable

    def give_up(self, why: Closed) -> None:
        """Close the socket unless it was given back: what still comes there must not reach anyone else."""
        if self._lease is not None:
            self._lease.abort(why)
            self._lease = None

    async def _receive(self, lease: Lease) -> Sequence[bytes]:
        """What the socket brought, or nothing if no ``response.failed`` followed an ``error``; raises Lost."""
        if self._left:
            frames, self._left = self._left, ()
            return frames
        if self._violated:
            raise Lost(_VIOLATION)
        erred = self._erred = self.exchange.phase is Phase.ERRORED
        try:
            if erred:
                async with asyncio.timeout(_TRAILING_FAILURE):
                    frames = await lease.receive()
            else:
                # Once for every read of the socket: even a timeout that never ends takes 1.5 us.
                frames = await lease.receive()
        except (SocketLost, TimeoutError) as error:
            if erred:
                # The error was the upstream's own end of this response; nothing follows it.
                self._settle(lease)
                return ()
            if isinstance(error, SocketLost):
                raise Lost(_loss(error)) from None
            raise
        self._account.event()
        return frames

    def _take(self, frames: Sequence[bytes], *, only_first: bool = False) -> Refusal | None:
        """Feed events to the exchange; what the client gets is appended to the pending pieces. Raises Lost.

        With ``only_first`` those behind the first that the client gets are left for the next time.
        """
        for number, frame in enumerate(frames, 1):
            result = self.exchange.feed(frame)
            match result:
                case Relay(kind, data):
                    self._pending.append(sse_event(kind, data))
                case Refused(refusal):
                    return refusal
                case Violation():
                    self._violated = True
                    if self._pending:
                        # What came before it is the client's, also when one read brought both.
                        return None
                    raise Lost(_VIOLATION)
                case Ignored():
                    pass
            if only_first and self._pending:
                self._left = frames[number:]
                break
        if self._left:
            return None
        if self._lease is not None and self.exchange.ending and self.exchange.phase is not Phase.ERRORED:
            self._settle(self._lease)
        return None

    def _settle(self, lease: Lease) -> None:
        """The response has ended: remember it, give the socket back, and only then let the client see the end."""
        exchange, standing, ending = self.exchange, self._standing, self.exchange.ending
        if exchange.missing_setup:
            self._driver.lessons.lacks_setup(self._driver.clock())
        if ending is None:
            self._lease = None
            lease.release(tip=None, stored=False, reusable=False)
            return
        if exchange.may_commit:
            # Should this ever fail, the end of the turn still closes the socket, which would otherwise be busy for ever.
            standing.remember(ending, self.match, reloaded=self._reloads)
        self._lease = None
        lease.release(
            tip=ending.response_id if exchange.may_commit else None,
            stored=standing.reloadable,
            reusable=not self._erred
            and exchange.socket_reusable(survives_errors=self._driver.survives_errors),
            ended=ending.response_id,
        )
        self._account.finished(failed=ending.kind in {"failed", "error"})


def _loss(error: SocketLost) -> Loss:
    return Loss(error.flushed, error.answered, error.ponged, error.reused, error.too_big)
