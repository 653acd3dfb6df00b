"""How the shared index is doing, and what was counted about it. Pure: who calls says when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["off", "unused", "untried", "works", "read_only", "down"]
Cause = Literal["timeout", "unreachable", "refused", "full", "error"]

STATES: tuple[State, ...] = ("off", "unused", "untried", "works", "read_only", "down")

REMEDIES: dict[Cause, str] = {
    "timeout": "it answers later than index_timeout allows",
    "unreachable": "see that it runs, and that the address in index is right",
    "refused": "see that user and password in index are right, and what that user may do",
    "full": "it takes no more data: give it more memory, or let it evict (maxmemory-policy allkeys-lru)",
    "error": "it does not answer as Redis does, or cannot write just now",
}


@dataclass(slots=True)
class Health:
    """State and counts. ``on_change`` is told of each new state, with its cause; turns go on in all of them."""

    on_change: Callable[[State, Cause | None], None]
    state: State = "untried"
    cause: Cause | None = None
    hits: int = 0
    misses: int = 0
    errors: int = 0
    written: int = 0
    dropped: int = 0

    def be(self, state: State, cause: Cause | None = None) -> None:
        """The state is this from now on."""
        if (state, cause) != (self.state, self.cause):
            self.state, self.cause = state, cause
            self.on_change(state, cause)

    def snapshot(self) -> dict[str, Any]:
        """For the statistics."""
        return {
            "state": self.state,
            "cause": self.cause,
            "hits": self.hits,
            "misses": self.misses,
            "errors": self.errors,
            "written": self.written,
            "dropped": self.dropped,
        }


def no_index(state: State = "off") -> dict[str, Any]:
    """The statistics of a gateway that shares nothing."""
    return Health(lambda _state, _cause: None, state).snapshot()
