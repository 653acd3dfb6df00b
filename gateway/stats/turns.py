"""Counting turns. No clock: durations are given in seconds by the caller."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.settings import MAIN
from gateway.stats.histogram import FAST, TURNS, WAITS, Histogram
from gateway.stats.members import Members
from gateway.stats.models import model_label
from gateway.stats.reasons import REASONS, RECOVERIES

Mode = Literal["delta", "full", "http"]
Outcome = Literal["ok", "failed", "cancelled"]

MODES: tuple[Mode, ...] = ("delta", "full", "http")
OUTCOMES: tuple[Outcome, ...] = ("ok", "failed", "cancelled")

SAMPLES = 2048
"""How many of the newest durations the percentiles are taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One turn that has ended.

    ``reason`` is one of REASONS unless the mode is delta, then None. ``client_in`` is the decoded size of the client's body and
    ``upstream_out`` the size of everything sent upstream for it, repeats included, both in bytes. ``first_event`` (request read
    to first upstream event), ``added`` (the gateway's own part of the time; None where dials, waits, repeats or plain HTTP make
    it meaningless), ``waited`` (for a socket, dialling included; None where none was asked for) and ``total`` are in seconds.
    ``model`` is the client's text: only ``model_label`` of it is a label. ``trace`` is the W3C trace context that came with the
    request, if it is well-formed. ``label`` is the operator's for the key that it came with, None without one; ``upstream`` is the
    operator's name for where it went.
    """

    mode: Mode
    reason: str | None
    outcome: Outcome
    status: int
    client_in: int
    upstream_out: int
    first_event: float | None
    added: float | None
    total: float
    recoveries: tuple[str, ...]
    model: str
    waited: float | None = None
    trace: str | None = None
    label: str | None = None
    upstream: str = MAIN


class Stats:
    """Counts turns; call ``begin`` when a turn is parsed and ``end`` exactly once for each ``begin``."""

    def __init__(self) -> None:
        self.modes: dict[str, int] = dict.fromkeys(MODES, 0)
        self.reasons: dict[str, int] = dict.fromkeys(REASONS, 0)
        self.recoveries: dict[str, int] = dict.fromkeys(RECOVERIES, 0)
        self.by_model: Counter[tuple[str, str, str]] = Counter()
        self.by_upstream: Counter[tuple[str, str, str]] = Counter()
        self.failed = 0
        self.cancelled = 0
        self.in_flight = 0
        self.client_in = 0
        self.upstream_out = 0
        self.first_event = {mode: Histogram(TURNS) for mode in MODES}
        self.duration = {mode: Histogram(TURNS) for mode in MODES}
        self.added = Histogram(FAST)
        self.waited = Histogram(WAITS)
        self.members = Members()
        self._first_event: deque[float] = deque(maxlen=SAMPLES)
        self._added: deque[float] = deque(maxlen=SAMPLES)
        self._duration: deque[float] = deque(maxlen=SAMPLES)

    def begin(self) -> None:
        """Count a turn as running."""
        self.in_flight += 1

    def end(self, record: TurnRecord) -> None:
        """Count a turn that has ended.

        Raises KeyError, and counts nothing, if its mode, reason or a recovery is not of the closed sets: a name that nobody
        knows would be lost in the sums.
        """
        mode = self.modes[record.mode] + 1
        if record.reason is not None:
            self.reasons[record.reason]
        for recovery in record.recoveries:
            self.recoveries[recovery]
        self.in_flight -= 1
        self.modes[record.mode] = mode
        self.by_model[record.mode, record.outcome, model_label(record.model)] += 1
        self.by_upstream[record.upstream, record.mode, record.outcome] += 1
        if record.reason is not None:
            self.reasons[record.reason] += 1
        for recovery in record.recoveries:
            self.recoveries[recovery] += 1
        self.failed += record.outcome == "failed"
        self.cancelled += record.outcome == "cancelled"
        self.client_in += record.client_in
        self.upstream_out += record.upstream_out
        if self.members:
            self.members.end(record)
        self._time(record)

    def _time(self, record: TurnRecord) -> None:
        self.duration[record.mode].add(record.total)
        self._duration.append(record.total)
        if record.waited is not None:
            self.waited.add(record.waited)
        if record.first_event is not None:
            self.first_event[record.mode].add(record.first_event)
            self._first_event.append(record.first_event)
        if record.added is not None:
            self.added.add(record.added)
            self._added.append(record.added)

    def turns_of(self, upstream: str) -> dict[str, int]:
        """The turns to one upstream that have ended, by mode, and how many of them failed or were cancelled."""
        counted: dict[str, int] = {
            mode: sum(self.by_upstream[upstream, mode, outcome] for outcome in OUTCOMES) for mode in MODES
        }
        ended = {
            outcome: sum(self.by_upstream[upstream, mode, outcome] for mode in MODES)
            for outcome in ("failed", "cancelled")
        }
        return {"total": sum(counted.values()), **counted, **ended}

    def snapshot(
        self,
        *,
        connections: Mapping[str, Any],
        conversations: Mapping[str, Any],
        uptime: float,
        version: str,
        upstream: Mapping[str, Any] | None = None,
        upstreams: Mapping[str, Any] | None = None,
        sockets: Sequence[Mapping[str, Any]] = (),
        identities: Mapping[str, Any] | None = None,
        index: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The value of ``/stats``; what is not about turns comes from those who hold it, ``uptime`` is in seconds."""
        return {
            "version": version,
            "uptime_seconds": round(uptime, 3),
            "turns": {
                "total": sum(self.modes.values()),
                **self.modes,
                "failed": self.failed,
                "cancelled": self.cancelled,
                "in_flight": self.in_flight,
            },
            "reasons": dict(self.reasons),
            "bytes": {
                "client_in": self.client_in,
                "upstream_out": self.upstream_out,
                "saved": self.client_in - self.upstream_out,
            },
            "connections": dict(connections),
            "conversations": dict(conversations),
            "recoveries": dict(self.recoveries),
            "latency_ms": self.latency_ms(),
            "upstream": dict(upstream or {}),
            "upstreams": dict(upstreams or {}),
            "identities": dict(identities or {}),
            "sockets": [dict(each) for each in sockets],
            "index": dict(index or {}),
        }

    def latency_ms(self) -> dict[str, Any]:
        """The percentiles of the newest durations, in milliseconds."""
        return {
            "first_event": percentiles_ms(self._first_event),
            "added": percentiles_ms(self._added),
            "duration": percentiles_ms(self._duration),
        }


def percentiles_ms(seconds: Iterable[float]) -> dict[str, float | None]:
    """The 50th, 95th and 99th percentile in milliseconds, each a value that occurred; None where there is no sample."""
    ordered = sorted(seconds)
    return {f"p{q}": _percentile(ordered, q) for q in (50, 95, 99)}


def _percentile(ordered: Sequence[float], q: int) -> float | None:
    if not ordered:
        return None
    return round(ordered[math.ceil(len(ordered) * q / 100) - 1] * 1000, 3)
