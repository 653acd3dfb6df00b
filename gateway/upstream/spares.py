"""Sockets opened before a turn needs them, so that the first turn of a conversation does not wait for a handshake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.pool import Dial, Pool
from gateway.tasks import Tasks
from gateway.upstream.dial import UpgradeRefused
from gateway.upstream.identity import standing_headers
from gateway.upstream.opening import Openings
from gateway.upstream.socket import UpstreamSocket
from gateway.upstream.waiting import Target

_IDENTITIES = 4096
_REFUSED_FOR = 300.0
"""Seconds for which an identity whose spare socket was refused gets no other one."""


class Spares:
    """Opens as many spare sockets as the pool wants, for the identities that it sees.

    A spare belongs to no request: its handshake carries what is about the caller only, and if the upstream refuses that, nothing is
    concluded for the turns, whose handshakes say more. ``keep`` takes an open socket; ``freed`` is called when a place was reserved
    in vain.
    """

    def __init__(
        self,
        pool: Pool,
        openings: Openings,
        *,
        tasks: Tasks,
        clock: Callable[[], float],
        keep: Callable[[Target, Dial, UpstreamSocket], None],
        freed: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._openings = openings
        self._tasks = tasks
        self._clock = clock
        self._keep = keep
        self._freed = freed
        self._running: dict[asyncio.Task[None], bytes] = {}
        self._refused: dict[bytes, float] = {}

    def seen(self, target: Target) -> None:
        """A turn for ``target`` has its socket: have as many spares as are wanted, opened in the background."""
        if self._refused.get(target.identity, 0.0) > self._clock():
            return
        if self._pool.lacks_spare(target.identity, self._clock(), model=target.model, party=target.party):
            task = self._tasks.spawn(self._fill(target), name="open spare sockets")
            self._running[task] = target.identity
            task.add_done_callback(self._running.pop)

    def cancel(self, identity: bytes | None = None) -> None:
        """Give up what is being opened, for one identity or for all; the places become free a moment later."""
        for task, whose in self._running.items():
            if identity in (None, whose):
                task.cancel()

    def _reserve(self, target: Target) -> Dial | None:
        if not self._openings.is_proven(target.url):
            # To find out is for a turn: there is one dial at a time that does, and others wait for its outcome.
            return None
        grant = self._pool.spare(
            target.identity, self._clock(), upstream=target.url, line=target.line, model=target.model,
            party=target.party,
        )  # fmt: skip
        if grant is not None:
            self._openings.begin(target, grant)
        return grant

    async def _fill(self, target: Target) -> None:
        headers = standing_headers(target.headers, target.per_request)
        while (grant := self._reserve(target)) is not None:
            try:
                socket = await self._openings.dial(target, grant, spare=headers)
            except UpgradeRefused:
                self._remember(target.identity)
                self._freed()
                return
            except BaseException:
                self._freed()
                raise
            self._keep(target, grant, socket)

    def _remember(self, identity: bytes) -> None:
        self._refused.pop(identity, None)
        if len(self._refused) >= _IDENTITIES:
            del self._refused[next(iter(self._refused))]
        self._refused[identity] = self._clock() + _REFUSED_FOR
