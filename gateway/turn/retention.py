"""Whether an upstream keeps what it is asked to store: organisations without retention find nothing again."""

from __future__ import annotations

from collections.abc import Callable

from cachetools import TTLCache

_COUNTS = 600.0
"""Seconds for which a response that was not found counts."""
_IDENTITIES = 4096
_ENOUGH = 2
"""Responses that were not found, one after the other. One alone may have been deleted where this gateway did not see it."""


class Retention:
    """Evidence, by identity, about responses that the upstream was asked to store. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._missing: TTLCache[bytes, int] = TTLCache(_IDENTITIES, _COUNTS, clock)

    def found(self, identity: bytes) -> None:
        """One was continued on a socket that did not have it."""
        self._missing.pop(identity, None)

    def missing(self, identity: bytes) -> bool:
        """One was not found; whether the upstream is now to be taken for one without retention."""
        count = self._missing.get(identity, 0) + 1
        self._missing[identity] = count
        return count >= _ENOUGH
