"""Opening sockets for the pool: what may be dialled now, the dials in progress, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.pool import Dial, Pool, UpgradeMemory
from gateway.upstream.dial import DialOptions, Refusal, UpgradeRefused, dial
from gateway.upstream.probes import Probes
from gateway.upstream.socket import UpstreamSocket
from gateway.upstream.waiting import Target


class Openings:
    """Dials what the pool reserved and remembers how it went.

    Until an upstream is known to take sockets, one dial at a time probes it for all. ``tell`` is called as the socket pool's
    ``on_event`` is.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        options: DialOptions,
        upgrade_memory: float,
        clock: Callable[[], float],
        tell: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._pool = pool
        self._options = options
        self._clock = clock
        self._tell = tell
        self._upgrades = UpgradeMemory(memory=upgrade_memory)
        self._probes = Probes()
        self._refused: dict[str, int] = {reason.value: 0 for reason in Refusal}
        self._in_progress = 0

    @property
    def in_progress(self) -> int:
        """Dials that were reserved and have not ended."""
        return self._in_progress

    @property
    def refused(self) -> dict[str, int]:
        """How many dials ended for which reason, for the statistics."""
        return dict(self._refused)

    def summary(self) -> dict[str, Any]:
        """Whether the upstream takes sockets, and whether frames on them may be compressed, for the statistics."""
        return {**self._upgrades.summary(self._clock()), **self._options.compression.summary()}

    def may_dial(self, url: str) -> bool:
        """Whether a dial of ``url`` may begin now: neither barred nor being probed."""
        return url not in self._probes and self._upgrades.barred(url, self._clock()) is None

    def is_proven(self, url: str) -> bool:
        """Whether the last dial of ``url`` succeeded."""
        return self._upgrades.proven(url)

    async def barred(self, target: Target) -> None:
        """Wait for what keeps the target from being dialled. Raises UpgradeRefused if that is, or ends in, a refusal."""
        bar = self._upgrades.barred(target.url, self._clock())
        if bar is not None:
            raise UpgradeRefused(bar.status, bar.reason, remembered=True)
        await self._probes.outcome(target.url, target.identity)

    def begin(self, target: Target, grant: Dial) -> None:
        """A place was reserved, for ``dial`` or ``give_up``."""
        self._in_progress += 1
        if not self._upgrades.proven(target.url):
            self._probes.begin(target.url, grant.socket_id, target.identity)

    async def dial(
        self, target: Target, grant: Dial, *, spare: tuple[tuple[str, str], ...] | None = None
    ) -> UpstreamSocket:
        """Open the socket. Raises UpgradeRefused; then, or when it is cancelled, the reserved place is free again.

        ``spare`` are the headers for a socket that no turn waits for; a refusal of those does not count against the upstream.
        """
        began = self._clock()
        try:
            socket = await dial(target.url, target.headers if spare is None else spare, self._options)
        except UpgradeRefused as refusal:
            if spare is None:
                self._upgrades.refused(target.url, refusal.status, refusal.reason, self._clock(), began=began)
            self._refused[refusal.reason] += 1
            self._failed(target, grant, refusal)
            self._tell("refused", {"status": refusal.status, "reason": refusal.reason})
            raise
        except BaseException:
            self.give_up(target, grant)
            raise
        self._in_progress -= 1
        self._upgrades.accepted(target.url)
        self._probes.finish(target.url, grant.socket_id, None)
        return socket

    def give_up(self, target: Target, grant: Dial) -> None:
        """The reserved place is not used."""
        self._failed(target, grant, None)

    def answered(self, url: str) -> None:
        """A socket to ``url`` delivered its first event."""
        self._upgrades.answered(url)

    def closed_early(self, url: str, code: int | None, opened_at: float | None) -> None:
        """The upstream closed a socket after a frame was sent and before any event came."""
        self._upgrades.closed_early(url, code, self._clock(), began=opened_at)

    def garbled(self) -> None:
        """What came over a socket with compression could not be read."""
        self._options.compression.failed()

    def _failed(self, target: Target, grant: Dial, refusal: UpgradeRefused | None) -> None:
        self._in_progress -= 1
        self._pool.dial_failed(grant.socket_id)
        self._probes.finish(target.url, grant.socket_id, refusal)
