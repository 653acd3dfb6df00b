"""The sockets that the pool knows: whose they are, what each is doing, and how many are busy for whom."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from types import MappingProxyType
from typing import Any

from gateway.pool.line import MAIN, Line
from gateway.pool.party import Party

_REMEMBERED_TIPS = 64
_GOING_ON = 60.0
"""Seconds after its last turn for which a conversation that was continued is expected to go on."""
_NONE: Mapping[int, PooledSocket] = MappingProxyType({})


class State(StrEnum):
    """What a socket is doing. One that is dialling has a turn that waits for it, one that is warming has none."""

    DIALLING = "dialling"
    WARMING = "warming"
    IDLE = "idle"
    BUSY = "busy"


@dataclass(slots=True)
class PooledSocket:
    """One socket as the pool sees it. Times are in seconds; ``tip`` is its newest response, ``past`` those before.

    ``outdated`` says that its key has been replaced, so that it serves no further turn.
    """

    id: int
    identity: bytes
    upstream: str
    model: str | None
    party: Party
    last_used: float
    opened_at: float = 0.0
    state: State = State.DIALLING
    since: float = 0.0
    turns: int = 0
    tip: str | None = None
    stored: bool = False
    continued: bool = False
    line: Line = MAIN
    outdated: bool = False
    past: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_TIPS))

    @property
    def takes_turn(self) -> bool:
        """Whether a turn can start now; one at a time, until a socket carries several lanes."""
        return self.state is State.IDLE

    @property
    def has_turn(self) -> bool:
        """Whether a turn has it, or waits for it to open."""
        return self.state in {State.DIALLING, State.BUSY}

    @property
    def is_spare(self) -> bool:
        """Whether a turn can start now or soon, and no conversation is here."""
        return self.tip is None and self.state in {State.IDLE, State.WARMING}

    def missed(self, now: float) -> bool:
        """Whether a conversation is going on here that the upstream would have to reload elsewhere."""
        return self.continued and self.tip is not None and now - self.last_used < _GOING_ON

    @property
    def precious(self) -> bool:
        """Whether it alone holds a conversation: a newest response that the upstream cannot reload."""
        return self.tip is not None and not self.stored


class Sockets:
    """All sockets, by number and by identity. The state of one is changed here only, so that the counts stay right."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._all: dict[int, PooledSocket] = {}
        self._of: dict[bytes, dict[int, PooledSocket]] = {}
        self._busy = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[PooledSocket]:
        return iter(tuple(self._all.values()))

    def __getitem__(self, socket_id: int) -> PooledSocket:
        return self._all[socket_id]

    @property
    def busy(self) -> int:
        """How many have a turn, or are being dialled for one."""
        return self._busy

    def get(self, socket_id: int) -> PooledSocket | None:
        """The socket with this number, None if it is not here any more."""
        return self._all.get(socket_id)

    def of(self, identity: bytes) -> Mapping[int, PooledSocket]:
        """The sockets of ``identity`` by number, as they are from now on."""
        return self._of.get(identity, _NONE)

    def add(
        self,
        identity: bytes,
        upstream: str,
        model: str | None,
        party: Party,
        now: float,
        *,
        state: State,
        line: Line = MAIN,
    ) -> PooledSocket:
        """A new socket, to be dialled."""
        number = next(self._ids)
        socket = PooledSocket(
            number, identity, upstream, model, party, now, opened_at=now, since=now, state=state, line=line
        )
        party.sockets += 1
        self._count(socket, socket.has_turn)
        self._all[number] = socket
        self._of.setdefault(identity, {})[number] = socket
        return socket

    def turn_to(self, socket: PooledSocket, state: State) -> None:
        """The socket is doing something else now."""
        self._count(socket, -socket.has_turn)
        socket.state = state
        self._count(socket, socket.has_turn)

    def remove(self, socket_id: int) -> PooledSocket | None:
        """Forget a socket; it as it was, or None if it was not here."""
        socket = self._all.pop(socket_id, None)
        if socket is not None:
            mine = self._of[socket.identity]
            del mine[socket_id]
            if not mine:
                del self._of[socket.identity]
            socket.party.sockets -= 1
            self._count(socket, -socket.has_turn)
        return socket

    def __contains__(self, socket_id: int) -> bool:
        return socket_id in self._all

    def counted(self, line: str | None = None) -> dict[str, int]:
        """How many are open, of one line or of all, and what they are doing, for the statistics."""
        states = [s.state for s in self._all.values() if line is None or s.line.name == line]
        idle, busy = states.count(State.IDLE), states.count(State.BUSY)
        return {"open": idle + busy, "busy": busy, "idle": idle, "dialling": len(states) - idle - busy}

    def listed(self, now: float, most: int) -> list[dict[str, Any]]:
        """What up to ``most`` of them are doing, the busy ones first, for the statistics. Whose they are is not told."""
        shown = sorted(self._all.values(), key=lambda s: (s.state is not State.BUSY, -s.since, s.id))
        return [
            {
                "socket": socket.id,
                "state": socket.state.value,
                "state_seconds": round(now - socket.since, 1),
                "age_seconds": round(now - socket.opened_at, 1),
                "turns": socket.turns,
                "holds": "nothing" if socket.tip is None else "stored" if socket.stored else "alone",
            }
            for socket in shown[:most]
        ]

    def _count(self, socket: PooledSocket, turns: int) -> None:
        socket.party.busy += turns
        self._busy += turns
