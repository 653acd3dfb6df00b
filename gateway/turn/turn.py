"""One turn: from a decoded body to the last byte of its answer, through every try.

    planned -> sent -> streaming -> completed | incomplete | failed | refused | lost | cancelled

The first event of the upstream decides the head of the answer. Until then a failure may be hidden by another try; from then on
nothing is repeated, and a stream that breaks ends so that no client takes it for success.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gateway.conversation.reasons import Reason
from gateway.conversation.request import NotUpgradable, Request
from gateway.pool import Closed
from gateway.protocol.observer import StreamObserver
from gateway.protocol.refusals import Cause, Refusal
from gateway.turn.account import Account
from gateway.turn.attempt import Attempt, Lost, unanswered
from gateway.turn.call import Call, Headers, Opened, Relayed, Streaming, Whole
from gateway.turn.standing import Standing
from gateway.turn.tries import MOST_TRIES, Again, Loss, Way, after_loss, after_refusal
from gateway.upstream.dial import UpgradeRefused
from gateway.upstream.identity import handshake_headers, upstream_headers
from gateway.upstream.plain import PlainResponse
from gateway.upstream.socket_pool import NoSocket
from gateway.upstream.urls import http_url, socket_url
from gateway.upstream.waiting import Target

if TYPE_CHECKING:
    from gateway.turn.driver import TurnDriver


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
        self._attempt: Attempt | None = None
        self._observer: StreamObserver | None = None
        self._avoid: frozenset[int] = frozenset()
        self._stack = AsyncExitStack()
        self._not_taken: str | None = None
        self.account = Account(driver.clock, call.received, len(call.body), request.model, call.trace())
        self.account.label = call.party.label
        self.account.upstream = driver.line.name

    async def __aenter__(self) -> Self:
        self._driver.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = kind is not None and issubclass(kind, asyncio.CancelledError | ConnectionError)
        if self._attempt is not None:
            self._attempt.give_up(Closed.CLIENT_LEFT if left else Closed.ERROR)
        try:
            await self._stack.aclose()
        finally:
            self._driver.end(self.account.record(left=left, error=error), self._call)

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

    def events(self) -> AsyncIterator[bytes]:
        """The event stream, in pieces ready to be written. Raises StreamBroken after the piece that tells of a failure.

        Only for a turn that ``open`` gave as Streaming.
        """
        assert self._attempt is not None  # noqa: S101 (else there is nothing to stream)
        return self._attempt.events()

    def bound(self, abandon: Callable[[], None]) -> None:
        """The caller's duty, before the body: ``abandon`` drops a client for whom too much of the stream waits."""
        if self._attempt is not None:
            self._attempt.bound(abandon)

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
        match = wants.get(lease.parent) if lease.parent is not None else None
        attempt = self._attempt = Attempt(self._driver, self.account, standing, lease, match)
        if match is not None:
            self._driver.continued(self._identity, match.transcript)
        frame = standing.frame(match)
        if len(frame) >= limit:
            attempt.not_sent()
            return Again(Way.HTTP, Reason.TOO_LARGE, None)
        full_reason = Reason(lease.fate.value) if lease.fate is not None and standing.plan.parents else reason
        self.account.mode("delta" if match else "full", None if match else full_reason)
        return await self._send(attempt, frame, stream=standing.request.stream)

    async def _send(self, attempt: Attempt, frame: bytes, *, stream: bool) -> Opened | Again:
        try:
            refusal = await attempt.begin(frame)
            if refusal is not None:
                return self._refused(attempt, refusal)
            self._driver.lessons.frame_taken(len(frame))
            if attempt.exchange.unheard:
                return self._unheard(attempt)
            if not stream:
                await attempt.finish()
        except Lost as lost:
            return self._lost(attempt, lost.loss, len(frame))
        return Streaming(self._headers(_SSE)) if stream else self._whole(attempt)

    def _refused(self, attempt: Attempt, refusal: Refusal) -> Whole | Again:
        match = attempt.match
        again = after_refusal(refusal, ours=match is not None)
        if match is not None and refusal.cause is Cause.NOT_FOUND:
            self._driver.forgotten(self._identity, match.transcript)
        reusable = attempt.refused(aged=refusal.cause is Cause.CONNECTION_LIMIT)
        self.account.not_begun()
        self._not_taken = refusal.field
        if again is not None:
            if not reusable:
                self._avoid |= {attempt.socket_id}
            return again
        self.account.finished(failed=True, status=refusal.status)
        return Whole(refusal.status, self._refusal_headers(refusal), refusal.body)

    def _unheard(self, attempt: Attempt) -> Again:
        """The upstream did not continue what we named: its answer stands on the new items alone, and nobody may see it."""
        attempt.give_up(Closed.LOST)
        self._driver.lessons.ignores_parents(self._driver.clock())
        return Again(Way.FRESH, Reason.DELTA_REFUSED, "full_resend")

    def _lost(self, attempt: Attempt, loss: Loss, size: int) -> Again:
        # What ended this socket (a sleep, a change of network, a restart) may have ended all that are open, unseen as yet.
        self._avoid |= self._driver.pool.numbers(self._identity)
        attempt.give_up(Closed.LOST)
        if not attempt.exchange.relayed_anything:
            if not loss.flushed or loss.too_big:
                self.account.not_begun()
            again = after_loss(loss, begun=self.account.begun)
            if again is not None:
                if again.reason is Reason.TOO_LARGE:
                    self._driver.lessons.frame_refused(size, self._driver.clock())
                return again
        raise unanswered()

    def _whole(self, attempt: Attempt) -> Whole:
        """The one JSON object of a client that did not ask for a stream."""
        self.account.collected()
        ending = attempt.exchange.ending
        if ending is None:
            raise unanswered()
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
        return Target(
            url, handshake_headers(self._call.headers), self._identity, model, self._call.party,
            self._driver.per_request, self._driver.line,
        )  # fmt: skip

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
