"""One turn: from a decoded body to the last byte of its answer, through every try.

    planned -> sent -> streaming -> completed | incomplete | failed | refused | lost | cancelled

The first event of the upstream decides the head of the answer. Until then a failure may be hidden by another try; from then on
nothing is repeated, and a stream that breaks ends so that no client takes it for success.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gateway.conversation.reasons import Reason
from gateway.conversation.request import NotUpgradable, Request
from gateway.conversation.transcripts import Match
from gateway.errors import GatewayError, UpstreamLost
from gateway.pool import Closed
from gateway.protocol.exchange import Exchange, Ignored, Refused, Relay, Violation
from gateway.protocol.observer import StreamObserver
from gateway.protocol.phases import Phase
from gateway.protocol.refusals import Cause, Refusal
from gateway.protocol.sse import sse_event
from gateway.turn.account import Account
from gateway.turn.call import Call, Headers, Opened, Relayed, StreamBroken, Streaming, Whole
from gateway.turn.standing import Standing
from gateway.turn.tries import MOST_TRIES, Again, Loss, Way, after_loss, after_refusal
from gateway.upstream.dial import UpgradeRefused
from gateway.upstream.identity import handshake_headers, upstream_headers
from gateway.upstream.inbox import SocketLost
from gateway.upstream.lease import Lease
from gateway.upstream.plain import PlainResponse
from gateway.upstream.socket_pool import NoSocket, Target
from gateway.upstream.urls import http_url, socket_url

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


class Turn:
    """Use as ``async with``: ``open`` gives the answer's head, ``events`` or the relayed response its body.

    Leaving the block before the end, for whatever cause, closes the socket: an abandoned response must not reach anyone else.
    """

    def __init__(
        self, driver: TurnDriver, call: Call, identity: bytes, request: Request | NotUpgradable
    ) -> None:
        self._driver = driver
        self._call = call
        self._identity = identity
        self._request = request
        self._standing: Standing | None = None
        self._match: Match | None = None
        self._lease: Lease | None = None
        self._exchange = Exchange(ours=False)
        self._observer: StreamObserver | None = None
        self._avoid: frozenset[int] = frozenset()
        self._stack = AsyncExitStack()
        self._pending: list[bytes] = []
        self._erred = False
        self._violated = False
        self._not_taken: str | None = None
        self.account = Account(driver.clock, call.received, len(call.body), request.model, call.trace())
        self.account.label = call.party.label

    async def __aenter__(self) -> Self:
        self._driver.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = kind is not None and issubclass(kind, asyncio.CancelledError | ConnectionError)
        if self._lease is not None:
            self._lease.abort(Closed.CLIENT_LEFT if left else Closed.ERROR)
            self._lease = None
        try:
            await self._stack.aclose()
        finally:
            self._driver.end(self.account.record(left=left, error=error))

    async def open(self) -> Opened:
        """Send the turn upstream and wait, without limit, for what decides its head. Raises GatewayError."""
        request = self._request
        forwarded = self._driver.forward_reason(self._call, request)
        if forwarded is not None or not isinstance(request, Request):
            return await self._over_http(forwarded or Reason.NOT_UPGRADABLE)
        standing = self._standing = Standing(self._driver, self._identity, request, self._call.body)
        if self._driver.index is not None:
            await standing.look_elsewhere(self._driver.index)
        way, reason = Way.SOCKET, standing.plan.reason
        for _ in range(MOST_TRIES - 1):
            if way is Way.HTTP:
                break
            step = await self._over_socket(standing, reason, fresh=way is Way.FRESH)
            if not isinstance(step, Again):
                return step
            # A turn that was full anyway keeps its own reason; one that was a delta, or leaves the socket, has a new one.
            if self.account.turn_mode == "delta" or step.way is Way.HTTP:
                reason = step.reason
            elif self.account.reason is not None:
                reason = self.account.reason
            way = step.way
            self.account.tried_again(step.recovery)
        return await self._over_http(reason)

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
            except _Lost:
                self._give_up()
                self._pending.append(sse_event("response.failed", self._failure()))
                yield b"".join(self._pending)
                raise StreamBroken from None

    def bound(self, abandon: Callable[[], None]) -> None:
        """The caller's duty, before the body: ``abandon`` drops a client for whom too much of the stream waits."""
        if self._lease is not None:
            self._lease.bound(self._driver.max_waiting, abandon)

    def written(self) -> None:
        """The caller's duty: call once the first piece of the answer has been handed to the client's connection."""
        self.account.written()

    def observe(self, chunk: bytes) -> None:
        """The caller's duty: show each relayed chunk, unaltered."""
        if self._observer is not None:
            self._observer.feed(chunk)

    def relayed(self) -> None:
        """The caller's duty: call when a relayed answer came to its own end."""
        self.account.finished(failed=self.account.status >= 400)
        ending = self._observer.end() if self._observer is not None else None
        if ending is None or ending.kind != "completed" or not isinstance(self._request, Request):
            return
        if self._request.store:
            # Only a stored response can be continued elsewhere than where it was made.
            standing = self._standing or Standing(
                self._driver, self._identity, self._request, self._call.body
            )
            standing.remember(ending, None)

    # -- over a socket

    async def _over_socket(self, standing: Standing, reason: Reason, *, fresh: bool) -> Opened | Again:
        wants = standing.wants(fresh=fresh)
        limit = self._driver.lessons.frame_limit(self._driver.clock())
        if standing.whole_frame_reaches(limit) and not standing.may_continue(wants):
            return Again(Way.HTTP, Reason.TOO_LARGE, None)
        self.account.pause()
        try:
            lease = await self._driver.pool.acquire(
                self._target(), list(wants), fresh=fresh, avoid=self._avoid
            )
        except NoSocket:
            return Again(Way.HTTP, Reason.NO_SOCKET, "http_fallback")
        except UpgradeRefused as refused:
            return Again(Way.HTTP, Reason.UPGRADE_REFUSED, None if refused.remembered else "http_fallback")
        finally:
            self.account.resume()
        self._lease = lease
        match = self._match = wants.get(lease.parent) if lease.parent is not None else None
        if match is not None:
            self._driver.continued(self._identity, match.transcript)
        frame = standing.frame(match)
        if len(frame) >= limit:
            lease.release(tip=None, stored=False, reusable=True, keep_parent=True)
            self._lease = None
            return Again(Way.HTTP, Reason.TOO_LARGE, None)
        full_reason = Reason(lease.fate.value) if lease.fate is not None and standing.plan.parents else reason
        self.account.mode("delta" if match else "full", None if match else full_reason)
        return await self._send(standing.request, lease, frame)

    async def _send(self, request: Request, lease: Lease, frame: bytes) -> Opened | Again:
        own_parent = (bytes(m.value) for m in request.members if m.name == "previous_response_id")
        client_parent = next(own_parent, b"null")
        match = self._match
        named = match.transcript.response_id if match is not None and self._driver.checks_parent else None
        exchange = self._exchange = Exchange(
            ours=match is not None, client_parent=client_parent, named=named, before=lease.before
        )
        self.account.sending(len(frame))
        try:
            exchange.sent()
            await lease.send(frame)
            self.account.sent()
            while not self._pending:
                refusal = self._take(await self._receive(lease))
                if refusal is not None:
                    return self._refused(lease, refusal)
            self._driver.lessons.frame_taken(len(frame))
            if exchange.unheard:
                return self._unheard()
            if not request.stream:
                while self._lease is not None:
                    self._pending.clear()
                    self._take(await self._receive(lease))
        except _Lost as lost:
            return self._lost(lost.loss, len(frame))
        except SocketLost as error:
            # While the frame was being written.
            return self._lost(_loss(error), len(frame))
        return Streaming(self._headers(_SSE)) if request.stream else self._whole()

    async def _receive(self, lease: Lease) -> Sequence[bytes]:
        """What the socket brought, or nothing if no ``response.failed`` followed an ``error``; raises _Lost."""
        if self._violated:
            raise _Lost(_VIOLATION)
        erred = self._erred = self._exchange.phase is Phase.ERRORED
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
                raise _Lost(_loss(error)) from None
            raise
        self.account.event()
        return frames

    def _take(self, frames: Sequence[bytes]) -> Refusal | None:
        """Feed events to the exchange; what the client gets is appended to the pending pieces. Raises _Lost."""
        for frame in frames:
            result = self._exchange.feed(frame)
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
                    raise _Lost(_VIOLATION)
                case Ignored():
                    pass
        if self._lease is not None and self._exchange.ending and self._exchange.phase is not Phase.ERRORED:
            self._settle(self._lease)
        return None

    def _settle(self, lease: Lease) -> None:
        """The response has ended: remember it, give the socket back, and only then let the client see the end."""
        exchange, standing, ending = self._exchange, self._standing, self._exchange.ending
        if exchange.missing_setup:
            self._driver.lessons.lacks_setup(self._driver.clock())
        if ending is None or standing is None:
            self._lease = None
            lease.release(tip=None, stored=False, reusable=False)
            return
        if exchange.may_commit:
            # Should this ever fail, the end of the turn still closes the socket, which would otherwise be busy for ever.
            standing.remember(ending, self._match)
        self._lease = None
        lease.release(
            tip=ending.response_id if exchange.may_commit else None,
            stored=standing.reloadable,
            reusable=not self._erred
            and exchange.socket_reusable(survives_errors=self._driver.survives_errors),
            ended=ending.response_id,
        )
        self.account.finished(failed=ending.kind in {"failed", "error"})

    def _refused(self, lease: Lease, refusal: Refusal) -> Whole | Again:
        ours = self._match is not None
        again = after_refusal(refusal, ours=ours)
        reusable = self._exchange.socket_reusable(survives_errors=self._driver.survives_errors)
        aged = refusal.cause is Cause.CONNECTION_LIMIT
        if self._match is not None and refusal.cause is Cause.NOT_FOUND:
            self._driver.forgotten(self._identity, self._match.transcript)
        lease.release(tip=None, stored=False, reusable=reusable and not aged, aged=aged)
        self._lease = None
        self.account.not_begun()
        self._not_taken = refusal.field
        if again is not None:
            if not reusable:
                self._avoid |= {lease.socket_id}
            return again
        self.account.finished(failed=True, status=refusal.status)
        return Whole(refusal.status, self._refusal_headers(refusal), refusal.body)

    def _unheard(self) -> Again:
        """The upstream did not continue what we named: its answer stands on the new items alone, and nobody may see it."""
        self._pending.clear()
        self._give_up()
        self._driver.lessons.ignores_parents(self._driver.clock())
        return Again(Way.FRESH, Reason.DELTA_REFUSED, "full_resend")

    def _lost(self, loss: Loss, size: int) -> Again:
        # What ended this socket (a sleep, a change of network, a restart) may have ended all that are open, unseen as yet.
        self._avoid |= self._driver.pool.numbers(self._identity)
        self._give_up()
        if not self._exchange.relayed_anything:
            if not loss.flushed or loss.too_big:
                self.account.not_begun()
            again = after_loss(loss, begun=self.account.begun)
            if again is not None:
                if again.reason is Reason.TOO_LARGE:
                    self._driver.lessons.frame_refused(size, self._driver.clock())
                return again
        raise UpstreamLost(_LOST_TEXT, code=_LOST_CODE)

    def _give_up(self) -> None:
        if self._lease is not None:
            self._lease.abort(Closed.LOST)
            self._lease = None

    def _failure(self) -> bytes:
        self.account.finished(failed=True)
        return self._exchange.failure_event(code=_LOST_CODE, message=_LOST_TEXT)

    def _whole(self) -> Whole:
        """The one JSON object of a client that did not ask for a stream."""
        self._pending.clear()
        self.account.collected()
        ending = self._exchange.ending
        if ending is None:
            raise UpstreamLost(_LOST_TEXT, code=_LOST_CODE)
        if ending.refusal is not None:
            refusal = ending.refusal
            self.account.finished(failed=True, status=refusal.status)
            return Whole(refusal.status, self._refusal_headers(refusal), refusal.body)
        return Whole(200, self._headers(_JSON), ending.response)

    # -- over plain HTTP

    async def _over_http(self, reason: Reason) -> Relayed:
        call = self._call
        self.account.mode("http", reason)
        self.account.sending(len(call.body))
        url = http_url(self._driver.upstream, call.target)
        headers = upstream_headers(call.headers, body_length=len(call.body))
        response: PlainResponse = await self._stack.enter_async_context(
            self._driver.plain.request("POST", url, headers, call.body.whole())
        )
        self.account.event()
        self.account.status = response.status
        if self._not_taken is not None and response.status == 200:
            self._driver.lessons.field_refused(self._not_taken, self._driver.clock())
        if reason is not Reason.NOT_UPGRADABLE and self._driver.upgrades and response.status == 200:
            content_type = next(
                (value for name, value in response.headers if name.lower() == "content-type"), ""
            )
            self._observer = StreamObserver(content_type)
        return Relayed(response, self._own_headers())

    # -- what goes along

    def _target(self) -> Target:
        url = socket_url(self._driver.upstream, self._call.query)
        model = self._request.model if self._driver.profile.one_model else None
        return Target(url, handshake_headers(self._call.headers), self._identity, model, self._call.party)

    def _headers(self, content_type: str) -> Headers:
        return (
            ("content-type", content_type),
            ("x-request-id", "req_" + secrets.token_hex(16)),
            *self._own_headers(),
        )

    def _refusal_headers(self, refusal: Refusal) -> Headers:
        given = {name.lower() for name, _ in refusal.headers}
        return *(pair for pair in self._headers(_JSON) if pair[0] not in given), *refusal.headers

    def _own_headers(self) -> Headers:
        account = self.account
        return self._driver.own_headers(account.turn_mode, account.reason, account.added_until_now())


_JSON = "application/json"
_SSE = "text/event-stream; charset=utf-8"


class _Lost(Exception):
    """The socket was lost, or its peer broke the protocol."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss


def _loss(error: SocketLost) -> Loss:
    return Loss(error.flushed, error.answered, error.ponged, error.reused, error.too_big)


__all__ = ["GatewayError", "Turn"]
