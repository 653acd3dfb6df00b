"""Sockets to upstreams, kept and lent to one turn at a time.

The pool of decisions says what to use, dial and close; this shell does it, waits where waiting is needed, and keeps what
a turn sees of a socket (its Lease) apart from what the next turn sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from gateway.pool import MAIN, Barred, Closed, Dial, Full, Line, Pool, PoolLimits, Use, Want
from gateway.protocol.events import KEEPALIVE, is_notice, kind_of
from gateway.tasks import Tasks
from gateway.upstream.dial import DialOptions
from gateway.upstream.inbox import Ended, Ending, Inbox
from gateway.upstream.lease import Lease
from gateway.upstream.lines import Lines, named
from gateway.upstream.shelf import Place, Shelf
from gateway.upstream.socket import UpstreamSocket
from gateway.upstream.waiting import Target, Waiting, in_turn

_DEATHS = {Ended.PING_TIMEOUT: Closed.PING_TIMEOUT, Ended.WRITE_TIMEOUT: Closed.WRITE_TIMEOUT}


class NoSocket(Exception):
    """All sockets are busy, none may be added, and none was released in time; or the pool is closing."""


class SocketPool:
    """Lends sockets to turns.

    ``dial`` says how the upstream of ``line`` is dialled; others are added. ``on_event`` is told ``opened``, ``closed`` and ``refused`` with a few fields that never hold what anyone sent.
    One long-lived task in ``tasks`` retires idle sockets. ``clock`` gives seconds that never run backwards.
    """

    def __init__(
        self,
        *,
        limits: PoolLimits,
        dial: DialOptions,
        tasks: Tasks,
        line: Line = MAIN,
        clock: Callable[[], float] = monotonic,
        on_event: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._limits = limits
        self._tasks = tasks
        self._clock = clock
        self._on_event = on_event
        self._pool = Pool(limits)
        self._lines = Lines(
            self._pool, upgrade_memory=limits.upgrade_memory, tasks=tasks, clock=clock,
            tell=self._tell, keep=self._keep_spare, freed=self._settle,
        )  # fmt: skip
        self._youngest = limits.socket_age
        self.add(line, dial)
        self._shelf = Shelf()
        self._queue: list[Waiting] = []
        self._retiring: asyncio.Task[None] | None = None
        self._draining = False
        self._quiet = asyncio.Event()

    def add(self, line: Line, dial: DialOptions) -> None:
        """Serve the upstream of ``line`` as well, dialled as ``dial`` says; before the first turn to it."""
        self._lines.add(line, dial)
        self._youngest = min(self._youngest, line.socket_age)

    async def acquire(
        self,
        target: Target,
        wants: Sequence[Want],
        *,
        fresh: bool = False,
        avoid: frozenset[int] = frozenset(),
    ) -> Lease:
        """A socket for one turn, which the caller must release or abort.

        ``wants`` are the parents that would do, longest first; ``fresh`` takes none; ``avoid`` are sockets not to use.
        A busy parent is never waited for. Raises NoSocket after the socket wait, UpgradeRefused when a
        dial fails, or at once while an earlier refusal of this upstream is remembered.
        """
        while True:
            grant = await self._grant(Waiting(target, wants, fresh, avoid))
            if isinstance(grant, Barred):
                await self._lines.openings(target.line).barred(target)
                continue
            if isinstance(grant, Dial):
                await self._open(target, grant)
            if (lease := self._lend(grant)) is not None:
                if self._limits.warm:
                    self._lines.spares(target.line).seen(target)
                return lease

    def snapshot(self) -> dict[str, Any]:
        """The ``connections`` part of the statistics."""
        return self._pool.snapshot() | {"refused": self._lines.refused}

    def sockets(self, most: int) -> list[dict[str, Any]]:
        """The ``sockets`` part of the statistics: what up to ``most`` sockets are doing."""
        return self._pool.sockets(self._clock(), most)

    def health(self, line: Line = MAIN) -> dict[str, Any]:
        """What is known of the sockets of a line: whether its upstream takes them, and how old they may grow."""
        return {**self._lines.openings(line).summary(), **self._pool.health(self._clock(), line)}

    def counted(self, line: Line) -> dict[str, int]:
        """How many sockets of a line are open, and what they are doing, for the statistics."""
        return self._pool.counted(line)

    def outdate(self, line: Line, identity: bytes | None = None) -> None:
        """The key of a line has been replaced: close its idle sockets, or those of an identity, now, and busy ones after their turn."""
        # What is being opened with the old key would be followed by more of it.
        self._lines.spares(line).cancel(identity)
        self._pool.outdate(line, identity)
        self._settle()

    def holds(self, identity: bytes, response_id: str) -> bool:
        """Whether a live socket of ``identity`` has ``response_id`` as its newest response."""
        return self._pool.holds(identity, response_id)

    def numbers(self, identity: bytes) -> frozenset[int]:
        """The sockets that ``identity`` has now, for a turn that must use none of them."""
        return self._pool.numbers(identity)

    def forget(self, identity: bytes, response_id: str) -> None:
        """No longer offer ``response_id``: it was deleted, or the upstream does not know it."""
        self._pool.forget(identity, response_id)

    def forgets_stored(self, identity: bytes, line: Line = MAIN) -> None:
        """The upstream did not find a stored response of ``identity``: for a time only socket memory is used for it."""
        self._pool.forgets_stored(identity, self._clock(), line=line)

    def finds_stored(self, identity: bytes, line: Line = MAIN) -> bool:
        """Whether stored responses of ``identity`` may be continued on any socket, as far as it is known."""
        return self._pool.finds_stored(identity, self._clock(), line=line)

    def reconfigure(self, limits: PoolLimits) -> None:
        """Other bounds from now on; those of age, and what was learned, stay."""
        self._limits = limits
        self._pool.reconfigure(limits)
        self._settle()

    async def drain(self, timeout: float) -> bool:  # noqa: ASYNC109
        """Lend no more, close idle sockets now and busy ones when released; whether all were within ``timeout`` seconds."""
        self._draining = True
        self._pool.drain()
        self._lines.cancel_spares()
        self._quiet.clear()
        self._settle()
        try:
            async with asyncio.timeout(timeout):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Close everything at once and wait until the connections are gone."""
        await self.drain(0)
        for socket_id in self._shelf.numbers():
            self._close(socket_id, Closed.DRAINED, politely=False)
        self._settle()
        if self._retiring is not None:
            self._retiring.cancel()
            await asyncio.wait([self._retiring])
        await self._shelf.gone()

    # For leases.

    def write(self, socket_id: int, frame: bytes) -> None:
        """Write a frame on a lent socket; nothing happens when it has ended."""
        if (socket := self._shelf.get(socket_id)) is not None:
            socket.write(frame)

    def take_back(
        self,
        socket_id: int,
        *,
        tip: str | None,
        stored: bool,
        reusable: bool,
        keep_parent: bool,
        aged: bool,
        ended: str | None,
    ) -> None:
        """A turn has ended; see Lease.release."""
        socket = self._shelf.get(socket_id)
        if socket is None:
            return
        left = socket.detach()
        socket.last_ended = ended or socket.last_ended
        now = self._clock()
        if aged:
            self._pool.aged(socket_id, now)
            self._remove(socket_id, Closed.AGE, politely=True)
        elif not reusable or left is None or not all(map(_for_nobody, left)):
            self._close(socket_id, Closed.ERROR, politely=True)
        else:
            self._pool.release(socket_id, now, tip=tip, stored=stored, keep_parent=keep_parent)
        self._settle()

    def drop(self, socket_id: int, reason: Closed) -> None:
        """A turn was given up: its socket is closed at once."""
        self._close(socket_id, reason, politely=False)
        self._settle()

    # For sockets.

    def socket_answered(self, socket: UpstreamSocket) -> None:
        """WebSocket works all the way to this upstream."""
        if (place := self._shelf.place(socket)) is not None:
            self._lines.openings(place.line).answered(place.url)

    def socket_idle_frames(self, socket: UpstreamSocket, frames: list[bytes]) -> None:
        """Notices may come at any time; an event for nobody means that the socket is not where we think it is."""
        place = self._shelf.place(socket)
        if place is not None and not all(map(_for_nobody, frames)):
            self._close(place.number, Closed.ERROR, politely=True)
            self._settle()

    def socket_ended(self, socket: UpstreamSocket, ending: Ending) -> None:
        """Forget a socket that died, and learn from how it did."""
        place = self._shelf.place(socket)
        if place is None:
            return
        socket_id, url, line = place
        openings, now = self._lines.openings(line), self._clock()
        if socket.deflate is not None and ending.is_garbled:
            openings.garbled()
        if ending.by_upstream:
            if socket.lent and not socket.answered:
                openings.closed_early(url, ending.code, self._pool.opened_at(socket_id))
            self._pool.lost(socket_id, now)
            self._remove(socket_id, Closed.LOST, ending=ending)
        else:
            reason = _DEATHS.get(ending.how, Closed.ERROR)
            self._pool.close(socket_id, reason)
            self._remove(socket_id, reason, ending=ending)
        self._settle()

    # Granting.

    async def _grant(self, waiting: Waiting) -> Use | Dial | Barred:
        if self._draining:
            raise NoSocket
        self._queue.append(waiting)
        self._settle()
        granted = waiting.granted
        try:
            if not granted.done():
                await asyncio.wait([granted], timeout=self._limits.socket_wait)
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._refund(waiting.target, granted.result())
            raise
        finally:
            if waiting in self._queue:
                self._queue.remove(waiting)
        if not granted.done() or granted.cancelled():
            raise NoSocket
        return granted.result()

    def _refund(self, target: Target, grant: Use | Dial | Barred) -> None:
        if isinstance(grant, Use):
            self._pool.give_back(grant.socket_id)
            self._settle()
        elif isinstance(grant, Dial):
            self._lines.openings(target.line).give_up(target, grant)
            self._settle()

    def _settle(self) -> None:
        """Serve those who wait, whoever has fewest sockets first, and close what the pool wants closed."""
        for waiting in in_turn(self._queue):
            if self._draining:
                waiting.granted.cancel()
                self._queue.remove(waiting)
                continue
            target = waiting.target
            openings = self._lines.openings(target.line)
            grant = self._pool.reserve(
                target.identity, waiting.wants, self._clock(),
                upstream=target.url, line=target.line, model=target.model, party=target.party,
                fresh=waiting.fresh, avoid=waiting.avoid, may_dial=openings.may_dial(target.url),
            )  # fmt: skip
            if isinstance(grant, Full):
                continue
            if isinstance(grant, Dial):
                openings.begin(target, grant)
            self._queue.remove(waiting)
            waiting.granted.set_result(grant)
        for closing in self._pool.take_closings():
            self._remove(closing.socket_id, closing.reason, politely=True)
        if not self._shelf and not self._lines.in_progress:
            self._quiet.set()

    # Opening and closing.

    async def _open(self, target: Target, grant: Dial) -> None:
        try:
            socket = await self._lines.openings(target.line).dial(target, grant)
        except BaseException:
            self._settle()
            raise
        self._pool.opened(grant.socket_id, self._clock())
        self._put(target, grant, socket)
        if self._draining:
            self._close(grant.socket_id, Closed.DRAINED, politely=True)
            self._settle()
            raise NoSocket
        self._settle()

    def _keep_spare(self, target: Target, grant: Dial, socket: UpstreamSocket) -> None:
        self._pool.spared(grant.socket_id, self._clock())
        self._put(target, grant, socket)
        socket.start(self)
        self._settle()

    def _put(self, target: Target, grant: Dial, socket: UpstreamSocket) -> None:
        self._shelf.put(socket, Place(grant.socket_id, target.url, target.line))
        self._tell("opened", {"socket": grant.socket_id, **named(target.line)})
        if self._retiring is None:
            self._retiring = self._tasks.spawn(self._retire(), name="retire idle sockets")

    def _lend(self, grant: Use | Dial) -> Lease | None:
        """The lease, or None if a reserved idle socket ended before its turn got it."""
        socket = self._shelf.get(grant.socket_id)
        if socket is None:
            return None
        inbox = Inbox()
        socket.attach(inbox)
        if isinstance(grant, Dial):
            socket.start(self)
        reused = isinstance(grant, Use)
        return Lease(
            self,
            grant.socket_id,
            inbox,
            parent=grant.parent,
            fate=grant.fate,
            reused=reused,
            before=socket.last_ended,
        )

    def _close(self, socket_id: int, reason: Closed, *, politely: bool) -> None:
        self._pool.close(socket_id, reason)
        self._remove(socket_id, reason, politely=politely)

    def _remove(
        self, socket_id: int, reason: Closed, *, politely: bool = False, ending: Ending | None = None
    ) -> None:
        place = self._shelf.remove(socket_id, politely=politely, ending=ending)
        if place is not None:
            code = None if ending is None else ending.code
            self._tell(
                "closed", {"socket": socket_id, "reason": reason.value, "code": code, **named(place.line)}
            )

    async def _retire(self) -> None:
        pause = max(0.02, min(30.0, self._limits.socket_idle / 20, self._youngest / 20))
        while True:
            await asyncio.sleep(pause)
            self._pool.retire(self._clock())
            self._settle()

    def _tell(self, what: str, fields: Mapping[str, Any]) -> None:
        if self._on_event is not None:
            self._on_event(what, fields)


def _for_nobody(frame: bytes) -> bool:
    """Whether a frame belongs to no turn and may come while none runs."""
    kind = kind_of(frame)
    return kind is not None and (is_notice(kind) or kind == KEEPALIVE)
