"""The turns that have just ended, for those who watch: the last hundred, sums over time, and a bounded stream of new ones.

Nothing that a client sent is kept: a turn is told by its model's family, its mode, its sizes and its times.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from gateway.stats import TurnRecord, model_label

RECENT = 100
"""Turns that are kept."""
WATCHERS = 32
"""Most who may watch at once."""
WAITING = 256
"""Turns that may wait for a watcher who does not read; then it is given all that is kept again."""
STEP = 10
"""Seconds that one point of the history covers."""
POINTS = 90
"""Points of the history: a quarter of an hour."""


class Feed:
    """What has happened lately. Times are seconds since the epoch, given by the caller."""

    def __init__(self) -> None:
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self._history: deque[dict[str, Any]] = deque(maxlen=POINTS)
        self._watchers: set[Watcher] = set()
        self._number = 0
        self.closed = False

    def add(self, record: TurnRecord, at: float) -> None:
        """A turn has ended."""
        self._number += 1
        turn = told(record, self._number, at)
        self._recent.append(turn)
        start = int(at) // STEP * STEP
        if not self._history or self._history[-1]["at"] != start:
            self._history.append(
                {"at": start, "delta": 0, "full": 0, "http": 0, "client_in": 0, "upstream_out": 0}
            )
        point = self._history[-1]
        point[record.mode] += 1
        point["client_in"] += record.client_in
        point["upstream_out"] += record.upstream_out
        for watcher in self._watchers:
            watcher.tell(turn)

    def recent(self) -> dict[str, Any]:
        """The kept turns, the oldest first, and the history."""
        return {
            "turns": list(self._recent),
            "history": [dict(p) for p in self._history],
            "step_seconds": STEP,
        }

    def watch(self) -> Watcher | None:
        """Begin to watch, or None if too many do; to be ended with ``leave``."""
        if self.closed or len(self._watchers) >= WATCHERS:
            return None
        watcher = Watcher()
        self._watchers.add(watcher)
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """Watch no more."""
        self._watchers.discard(watcher)

    def close(self) -> None:
        """Let every watcher go: the gateway ends."""
        self.closed = True
        for watcher in self._watchers:
            watcher.wake()


class Watcher:
    """Someone who watches; holds what was not yet taken."""

    def __init__(self) -> None:
        self._turns: deque[dict[str, Any]] = deque()
        self._news = asyncio.Event()
        self.behind = True
        """Whether all that is kept must be given (again) before new turns make sense."""

    def tell(self, turn: dict[str, Any]) -> None:
        """A new turn; those that nobody takes are dropped together."""
        if not self.behind:
            self._turns.append(turn)
            if len(self._turns) > WAITING:
                self._turns.clear()
                self.behind = True
        self.wake()

    def wake(self) -> None:
        """Let a waiting ``news`` return."""
        self._news.set()

    async def news(self, seconds: float) -> list[dict[str, Any]]:
        """The turns that ended since the last call; waits for one, ``seconds`` at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()
        turns = list(self._turns)
        self._turns.clear()
        return turns


def told(record: TurnRecord, number: int, at: float) -> dict[str, Any]:
    """A turn as watchers see it; ``at`` is when it ended."""
    return {
        "n": number,
        "at": round(at, 3),
        "model": model_label(record.model),
        "mode": record.mode,
        "reason": record.reason,
        "outcome": record.outcome,
        "status": record.status,
        "bytes_in": record.client_in,
        "bytes_sent": record.upstream_out,
        "first_event_ms": _ms(record.first_event),
        "added_ms": _ms(record.added),
        "duration_ms": _ms(record.total),
        "recoveries": list(record.recoveries),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
