"""What one upstream has taught about itself, each lesson for a while: what is never tried again can never be seen to be wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog

from gateway.stats import field_label

# Fields that are remembered as taken by plain HTTP only; an upstream has one or two.
_HTTP_ONLY_FIELDS = 16


class Lessons:
    """Times (``now``) are those of one clock, in seconds; ``go_by`` comes first. ``upstream`` is named in the log if it is given."""

    def __init__(self, upstream: str | None = None) -> None:
        self._most_frame = 0
        self._memory = 0.0
        self._frame_limit: int | None = None
        self._frame_limit_until = 0.0
        self._frame_taken = 0
        self._lacks_setup_until = 0.0
        self._no_chains_until = 0.0
        self._http_only: dict[str, float] = {}
        named = {} if upstream is None else {"upstream": upstream}
        self._log = structlog.get_logger("upwire", **named)

    def go_by(self, most_frame: int, *, memory: float) -> None:
        """The frame limit in bytes where nothing was learned, and for how many seconds a lesson counts from now on."""
        self._most_frame = most_frame
        self._memory = memory

    def frame_limit(self, now: float) -> int:
        """The size in bytes from which on a frame is too large."""
        if self._frame_limit is None or now >= self._frame_limit_until:
            return self._most_frame
        return min(self._most_frame, self._frame_limit)

    def frame_taken(self, size: int) -> None:
        """The upstream answered a frame of this size."""
        self._frame_taken = max(self._frame_taken, size)

    def frame_refused(self, size: int, now: float) -> None:
        """The upstream refused a frame of this size as too large.

        It teaches nothing where a larger one was answered: then the size was not the cause.
        """
        if size <= self._frame_taken:
            return
        limit = min(size, self.frame_limit(now))
        self._frame_limit = limit
        self._frame_limit_until = now + self._memory
        self._log.warning("frame_limit_learned", bytes=limit)

    def lacks_setup(self, now: float) -> None:
        """The upstream sent parts of items that it never announced; strict clients could not put such a stream together."""
        self._lacks_setup_until = now + self._memory
        self._log.warning("events_without_setup", remedy="streams go over plain HTTP for a while")

    def ignores_parents(self, now: float) -> None:
        """The upstream answered a delta as if it had no parent: nothing is chained there for a while."""
        self._no_chains_until = now + self._memory
        self._log.warning(
            "parent_ignored", remedy="this upstream does not continue responses; turns are sent in full"
        )

    def chains_nothing(self, now: float) -> bool:
        """Whether no turn may continue another one there."""
        return now < self._no_chains_until

    def field_refused(self, name: str, now: float) -> None:
        """A field that the upstream refused on a socket and then took over plain HTTP."""
        if name in self._http_only or len(self._http_only) < _HTTP_ONLY_FIELDS:
            self._http_only[name] = now + self._memory
            self._log.warning(
                "field_not_taken_on_socket",
                field=field_label(name),
                remedy="turns with it go over plain HTTP for a while",
            )

    def only_http(self, stream: bool, names: Iterable[str], now: float) -> bool:
        """Whether a request, streamed or not, with fields of these ``names`` has to go over plain HTTP."""
        if stream and now < self._lacks_setup_until:
            return True
        return bool(self._http_only) and any(now < self._http_only.get(name, 0.0) for name in names)

    def snapshot(self, now: float) -> dict[str, Any]:
        """For the statistics: limits in bytes, and for how many seconds a lesson still counts."""
        return {
            "frame_limit_bytes": self.frame_limit(now),
            "frame_limit_learned": self.frame_limit(now) < self._most_frame,
            "frame_limit_seconds": round(max(0.0, self._frame_limit_until - now), 1),
            "streams_over_http_seconds": round(max(0.0, self._lacks_setup_until - now), 1),
            "nothing_chained_seconds": round(max(0.0, self._no_chains_until - now), 1),
            "fields_over_http": sorted(
                field_label(name) for name, until in self._http_only.items() if now < until
            ),
        }
