"""What a gateway tells about itself, put together from those who know."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from time import monotonic, time
from typing import Any

from gateway import __version__, log
from gateway.admin import Feed, Metrics
from gateway.index.health import no_index
from gateway.settings import Settings
from gateway.stats import Stats, TurnRecord
from gateway.store import Store
from gateway.traces import open_traces
from gateway.turn.driver import TurnDriver
from gateway.upstream.socket_pool import SocketPool
from gateway.upstream.urls import without_secrets

SHOWN_SOCKETS = 64
"""Sockets that the statistics list one by one; all are counted."""


class Observed(Stats):
    """Statistics that also tell others of each turn that has ended."""

    def __init__(self, *others: Callable[[TurnRecord], None]) -> None:
        super().__init__()
        self._others = others

    def end(self, record: TurnRecord) -> None:
        """Count and tell."""
        super().end(record)
        for other in self._others:
            other(record)


class Observation:
    """The statistics of one gateway, in every form in which they are asked for. Raises NoTraces."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._began = monotonic()
        self.feed = Feed()
        self._traces = open_traces(settings.upstream) if settings.traces else None
        others = () if self._traces is None else (self._traces.turn,)
        self.stats = Observed(log.turn_line, lambda record: self.feed.add(record, time()), *others)
        self._snapshot: Callable[[], dict[str, Any]] | None = None
        self.metrics = Metrics(self.stats, self.snapshot)

    def of(self, *, store: Store, pool: SocketPool, driver: TurnDriver) -> None:
        """Ask these from now on for what they hold and have learned."""

        def snapshot() -> dict[str, Any]:
            found = self.stats.snapshot(
                connections=pool.snapshot(),
                conversations={
                    "known": len(store),
                    "evicted": store.evicted,
                    "items": store.items,
                    "bytes": store.size,
                },
                uptime=monotonic() - self._began,
                version=__version__,
                upstream={
                    "url": without_secrets(self._settings.upstream),
                    "mode": self._settings.mode,
                    "match": self._settings.match,
                    "profile": dataclasses.asdict(driver.profile),
                    **pool.health(),
                    **driver.learned(),
                },
                sockets=[socket | {"worker": 0} for socket in pool.sockets(SHOWN_SOCKETS)],
                index=no_index() if driver.index is None else driver.index.snapshot(),
                identities=self.stats.members.snapshot(driver.holdings()),
            )
            return found | {"workers": {"count": 1, "silent": []}}

        self._snapshot = snapshot

    def reconfigure(self, settings: Settings) -> None:
        """Show other settings from now on."""
        self._settings = settings

    async def end(self, _app: object) -> None:
        """Let those who watch go; they would keep the process waiting."""
        self.feed.close()

    async def close(self) -> None:
        """Send the last spans; may be called twice."""
        traces, self._traces = self._traces, None
        if traces is not None:
            await traces.close()

    def snapshot(self) -> dict[str, Any]:
        """The value of ``/stats``; ``of`` comes first."""
        assert self._snapshot is not None  # noqa: S101 (a gateway is assembled before it answers)
        return self._snapshot()
