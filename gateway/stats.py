"""What is counted about turns: the numbers behind ``/stats``. No clock: durations are given in seconds by the caller.

Everything counted has a fixed set of names, so that no client can make it grow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Mode = Literal["delta", "full", "http"]
Outcome = Literal["ok", "failed", "cancelled"]

MODES: tuple[Mode, ...] = ("delta", "full", "http")

REASONS = (
    "new_conversation",  # nothing known shares its beginning
    "history_changed",  # shares a prefix through an output item with a known transcript, then differs
    "reasoning_omitted",  # would have been a delta, had the client resent the reasoning items
    "settings_changed",
    "no_new_items",  # equals a transcript, and no older parent is usable
    "parent_lost",  # its socket is gone
    "parent_superseded",  # no longer its socket's newest response
    "parent_busy",
    "not_found",  # the upstream forgot it
    "delta_refused",  # the upstream refused the delta, and was sent the whole
    "connection_lost",  # a reused socket was dead, and the turn was repeated
    "too_large",
    "not_upgradable",  # means something else on a socket, or nothing there
    "client_parent",  # the client gave its own previous_response_id
    "no_socket",  # none came free in time
    "upgrade_refused",  # also dial, TLS and name resolution failures
    "disabled",  # switched off by a setting
)
"""Every reason for which a turn is not a delta: a closed set."""

RECOVERIES = ("full_resend", "reconnect", "http_fallback", "replay")

SAMPLES = 2048
"""How many of the newest durations the percentiles are taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One turn that has ended.

    ``reason`` is one of REASONS unless the mode is delta, then None. ``client_in`` is the decoded size of the client's body and
    ``upstream_out`` the size of everything sent upstream for it, repeats included, both in bytes. ``first_event`` (request read
    to first upstream event), ``added`` (the gateway's own part of the time; None where dials, waits, repeats or plain HTTP make
    it meaningless) and ``total`` are in seconds. ``model`` is the client's text: it is never used as a label.
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


class Stats:
    """Counts turns; call ``begin`` when a turn is parsed and ``end`` exactly once for each ``begin``."""

    def __init__(self) -> None:
        self.modes: dict[str, int] = dict.fromkeys(MODES, 0)
        self.reasons: dict[str, int] = dict.fromkeys(REASONS, 0)
        self.recoveries: dict[str, int] = dict.fromkeys(RECOVERIES, 0)
        self.failed = 0
        self.cancelled = 0
        self.in_flight = 0
        self.client_in = 0
        self.upstream_out = 0
        self._first_event: deque[float] = deque(maxlen=SAMPLES)
        self._added: deque[float] = deque(maxlen=SAMPLES)

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
        if record.reason is not None:
            self.reasons[record.reason] += 1
        for recovery in record.recoveries:
            self.recoveries[recovery] += 1
        self.failed += record.outcome == "failed"
        self.cancelled += record.outcome == "cancelled"
        self.client_in += record.client_in
        self.upstream_out += record.upstream_out
        if record.first_event is not None:
            self._first_event.append(record.first_event)
        if record.added is not None:
            self._added.append(record.added)

    def snapshot(
        self, *, connections: Mapping[str, Any], conversations: Mapping[str, Any], uptime: float, version: str
    ) -> dict[str, Any]:
        """The value of ``/stats``; ``connections`` and ``conversations`` come from those who hold them, ``uptime`` in seconds."""
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
            "latency_ms": {
                "first_event": percentiles_ms(self._first_event),
                "added": percentiles_ms(self._added),
            },
        }


def percentiles_ms(seconds: Iterable[float]) -> dict[str, float | None]:
    """The 50th, 95th and 99th percentile in milliseconds, each a value that occurred; None where there is no sample."""
    ordered = sorted(seconds)
    return {f"p{q}": _percentile(ordered, q) for q in (50, 95, 99)}


def _percentile(ordered: Sequence[float], q: int) -> float | None:
    if not ordered:
        return None
    return round(ordered[math.ceil(len(ordered) * q / 100) - 1] * 1000, 3)
