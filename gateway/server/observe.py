"""What a gateway tells about itself, put together from those who know."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time
from typing import Any

from gateway import __version__, log, loops
from gateway.admin import Feed, Metrics
from gateway.index.health import no_index
from gateway.settings import Settings, UpstreamEntry
from gateway.stats import Stats, TurnRecord
from gateway.traces import Traces, open_traces
from gateway.turn.driver import TurnDriver
from gateway.turn.shared import Shared
from gateway.upstream.urls import without_secrets

SHOWN_SOCKETS = 64
"""Sockets that the statistics list one by one; all are counted."""


def _traces(settings: Settings, entries: Sequence[UpstreamEntry]) -> Traces:
    return open_traces(settings.upstream, further={entry.name: entry.url for entry in entries})


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
    """The statistics of one gateway, in every form in which they are asked for. ``entries`` are its upstreams. Raises NoTraces."""

    def __init__(self, settings: Settings, entries: Sequence[UpstreamEntry]) -> None:
        self._settings = settings
        self._began = monotonic()
        self.feed = Feed()
        self._traces = _traces(settings, entries) if settings.traces else None
        others = () if self._traces is None else (self._traces.turn,)
        self.stats = Observed(log.turn_line, lambda record: self.feed.add(record, time()), *others)
        self._snapshot: Callable[[], dict[str, Any]] | None = None
        self.metrics = Metrics(self.stats, self.snapshot)

    def of(self, shared: Shared, drivers: Mapping[UpstreamEntry, TurnDriver]) -> None:
        """Ask these from now on for what they hold and have learned. ``drivers`` are those of all upstreams, the main one first."""
        store, pool = shared.store, shared.pool
        driver = next(iter(drivers.values()))

        def snapshot() -> dict[str, Any]:
            found = {"loop": loops.running()} | self.stats.snapshot(
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
                    **pool.health(driver.line),
                    **driver.learned(),
                },
                upstreams={
                    entry.name: {
                        "path": entry.path,
                        "url": without_secrets(entry.url),
                        "profile": each.profile.name,
                        "turns": self.stats.turns_of(entry.name),
                        "connections": pool.counted(each.line),
                        **pool.health(each.line),
                        **each.learned(),
                    }
                    for entry, each in drivers.items()
                },
                sockets=[socket | {"worker": 0} for socket in pool.sockets(SHOWN_SOCKETS)],
                index=no_index() if shared.index is None else shared.index.snapshot(),
                identities=self.stats.members.snapshot(shared.holdings()),
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
