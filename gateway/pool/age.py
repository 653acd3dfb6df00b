"""How old a socket of an upstream may grow: configured, or learned from what the upstream does."""

from __future__ import annotations

from dataclasses import dataclass

_MARGIN = 0.8
_ALIKE = 0.1
_BUSY_SHARE = 0.2
_COUNTS = 86_400.0


@dataclass(slots=True)
class _Learned:
    limit: float
    until: float


@dataclass(slots=True)
class _Seen:
    age: float
    at: float


class AgeLimits:
    """The age in seconds at which sockets of each upstream take no new turn.

    An upstream with a lower limit than the configured one is found out in two ways. It says so (the connection-limit
    error): one such refusal is enough. Or it closes sockets at that age: then two closes must agree, because a restart
    also closes sockets. They agree when the ages differ by a tenth at most while the closes lie at least half that age
    apart, which the closes of one restart do not. A close after a long idle spell tells of an idle timeout, not
    of an age, and teaches nothing; nor does anything younger than ``floor``.
    The limit becomes 0.8 of the age seen. It counts for a day after it was last lowered, because what is never tried again can
    never be seen to be wrong.
    """

    def __init__(self, configured: float, *, floor: float) -> None:
        self.configured = configured
        self._floor = floor
        self._learned: dict[str, _Learned] = {}
        self._seen: dict[str, _Seen] = {}

    def limit(self, upstream: str, now: float) -> float:
        """The age in seconds from which a socket to ``upstream`` is retired."""
        known = self._learned.get(upstream)
        return known.limit if known is not None and now < known.until else self.configured

    def lowest_learned(self, now: float) -> tuple[float, float] | None:
        """The lowest limit that any upstream taught and for how many seconds it still counts, or None if none did."""
        counting = [(known.limit, known.until - now) for known in self._learned.values() if now < known.until]
        return min(counting, default=None)

    def refused(self, upstream: str, age: float, now: float) -> None:
        """The upstream refused a turn because the socket, ``age`` seconds old, had reached its limit."""
        if age >= self._floor:
            self._learn(upstream, age, now)

    def closed(self, upstream: str, age: float, idle: float, now: float) -> None:
        """The upstream closed a socket ``age`` seconds old that had been unused for ``idle`` seconds (0 while busy)."""
        if age < self._floor or idle > _BUSY_SHARE * age:
            return
        before = self._seen.get(upstream)
        self._seen[upstream] = _Seen(age, now)
        if before is None or abs(before.age - age) > _ALIKE * max(before.age, age):
            return
        youngest = min(before.age, age)
        if now - before.at >= youngest / 2:
            self._learn(upstream, youngest, now)
        else:
            self._seen[upstream] = before

    def _learn(self, upstream: str, age: float, now: float) -> None:
        limit = self.limit(upstream, now)
        if _MARGIN * age < limit:
            self._learned[upstream] = _Learned(_MARGIN * age, now + _COUNTS)
