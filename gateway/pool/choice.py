"""What a turn asks of the pool and what the pool answers: plain values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Want:
    """A parent that would do for a turn; ``stored`` says that the upstream can reload it on any socket."""

    response_id: str
    stored: bool


class Fate(StrEnum):
    """Why the longest wanted parent cannot be continued."""

    LOST = "parent_lost"
    """The socket that made it is gone, or was never known."""
    SUPERSEDED = "parent_superseded"
    """Its socket lives, but the socket's newest response is another one, or none."""
    BUSY = "parent_busy"
    """The socket that holds it is running another turn; it is never waited for."""


class Closed(StrEnum):
    """Why a socket was closed: a closed set, counted in the statistics."""

    AGE = "age"
    IDLE = "idle"
    EVICTED = "evicted"
    CLIENT_LEFT = "client_left"
    ERROR = "error"
    LOST = "lost"
    DRAINED = "drained"
    PING_TIMEOUT = "ping_timeout"
    WRITE_TIMEOUT = "write_timeout"
    KEY_CHANGED = "key_changed"


@dataclass(frozen=True, slots=True)
class Closing:
    """A socket that the shell must close now; the pool has already forgotten it."""

    socket_id: int
    reason: Closed


@dataclass(frozen=True, slots=True)
class Use:
    """An idle socket, reserved for the caller."""

    socket_id: int
    parent: Want | None
    fate: Fate | None


@dataclass(frozen=True, slots=True)
class Dial:
    """A place for a new socket, reserved for the caller, who must report ``opened`` or ``dial_failed``."""

    socket_id: int
    parent: Want | None
    fate: Fate | None


@dataclass(frozen=True, slots=True)
class Full:
    """Neither an idle socket nor room for a new one; ask again when one was released."""


@dataclass(frozen=True, slots=True)
class Barred:
    """Only a new socket would do, and the caller said that this upstream must not be dialled now."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Bounds of the pool; times in seconds.

    ``sockets_per_identity`` and ``sockets`` count open and dialling ones. ``socket_wait`` bounds the wait for a free one.
    ``learn_floor`` is the least age at which a close can teach an upstream's age limit; ``forgets_for`` says how long an
    identity whose stored responses were not found is asked for socket memory only. ``warm`` are the spare sockets of one identity.
    """

    sockets_per_identity: int = 32
    sockets: int = 256
    socket_wait: float = 0.25
    socket_idle: float = 900.0
    socket_age: float = 3300.0
    upgrade_memory: float = 300.0
    learn_floor: float = 10.0
    forgets_for: float = 3600.0
    warm: int = 0
