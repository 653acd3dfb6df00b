"""Whether an upstream keeps what it is asked to store: organisations without retention find nothing again."""

from __future__ import annotations

from collections.abc import Callable

from cachetools import TTLCache

_COUNTS = 600.0
"""Seconds for which a response that was not found counts, and in which one that was made here should be found again."""
_IDENTITIES = 4096
_MADE = 16_384
_OWN, _OTHER, _ENOUGH = 2, 1, 4
"""What weighs how much. One alone proves nothing: it may have been deleted where this gateway did not see it. What another gateway
made, or this one long ago, may be gone for more reasons than what it made just now."""


class Retention:
    """Evidence, by identity, about responses that the upstream was asked to store. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._missing: TTLCache[bytes, int] = TTLCache(_IDENTITIES, _COUNTS, clock)
        self._made: TTLCache[tuple[bytes, str], bool] = TTLCache(_MADE, _COUNTS, clock)

    def made(self, identity: bytes, response_id: str) -> None:
        """One has completed here."""
        self._made[identity, response_id] = True

    def found(self, identity: bytes) -> None:
        """One was continued on a socket that did not have it."""
        self._missing.pop(identity, None)

    def missing(self, identity: bytes, response_id: str) -> bool:
        """One was not found; whether the upstream is now to be taken for one without retention."""
        weight = _OWN if self._made.pop((identity, response_id), False) else _OTHER
        count = self._missing.get(identity, 0) + weight
        self._missing[identity] = count
        return count >= _ENOUGH
