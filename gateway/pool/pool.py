"""Which socket serves which turn.

Choosing and reserving are one step without a pause in it, so two turns can never be given one socket. The pool does
no I/O: it says what to use, to dial and to close, and is told what came of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.pool.choice import Barred, Closed, Closing, Dial, Fate, Full, PoolLimits, Use, Want
from gateway.pool.line import MAIN, Learned, Line
from gateway.pool.party import Party, may_take
from gateway.pool.sockets import PooledSocket, Sockets, State
from gateway.pool.yielding import yielding


class Pool:
    """The sockets of all identities, by their state; see ``reserve`` for the rules.

    Sockets never cross identities. After any call the shell must close what ``take_closings`` returns.
    """

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self._sockets = Sockets()
        self._learned: dict[str, Learned] = {}
        self._closings: list[Closing] = []
        self._closed: Counter[Closed] = Counter()
        self._opened = 0
        self._reused = 0
        self._draining = False

    def reserve(
        self,
        identity: bytes,
        wants: Sequence[Want],
        now: float,
        *,
        upstream: str,
        line: Line = MAIN,
        model: str | None = None,
        party: Party | None = None,
        fresh: bool = False,
        avoid: frozenset[int] = frozenset(),
        may_dial: bool = True,
    ) -> Use | Dial | Full | Barred:
        """Choose and reserve a socket of ``identity`` for one turn; ``wants`` are its possible parents, longest first.

        The first want that an idle socket holds as its newest response, or that the upstream can reload, is the parent.
        Without such a holder the order is: an idle socket that nobody would miss; a new one; one whose conversation the
        upstream can reload, which is slower; at the limit an idle one that should make room, lent if it is of this identity and
        otherwise closed for a new one.
        A socket that was opened for a ``model`` is used for no other. ``party`` is whose share of the sockets it is, this identity's
        own by default; a ninth of what one may have at most is kept free for others. ``fresh`` takes no parent; ``avoid`` are sockets
        not to use; ``may_dial`` false means Barred instead of Dial.
        """
        mine = self._sockets.of(identity)
        party = self._party(mine, party)
        if not may_take(party.busy, self._sockets.busy, self._limits.sockets):
            return Full()
        for socket in tuple(mine.values()):
            if socket.takes_turn and self._aged(socket, now):
                self._close(socket, Closed.AGE)
        idle = [s for s in mine.values() if s.takes_turn and s.id not in avoid and s.model == model]
        forgetful = not self.finds_stored(identity, now, line=line)
        parent: Want | None = None
        for want in () if fresh else wants:
            holder = next((s for s in idle if s.tip == want.response_id), None)
            if holder is not None:
                return self._use(holder, want, self._fate(mine, wants, want), now)
            if want.stored and not forgetful:
                parent = want
                break
        fate = None if fresh else self._fate(mine, wants, parent)
        lendable = [s for s in idle if not s.precious and not (forgetful and s.tip is not None)]
        harmless = [s for s in lendable if not s.missed(now)]
        if harmless:
            return self._use(min(harmless, key=_least_missed), parent, fate, now)
        within = self._within(party, mine)
        if within and len(self._sockets) < self._limits.sockets and may_dial:
            return self._dial(identity, upstream, model, party, now, line=line, parent=parent, fate=fate)
        if lendable:
            return self._use(min(lendable, key=_least_missed), parent, fate, now)
        if within and len(self._sockets) < self._limits.sockets:
            return Barred()
        if within:
            room = yielding(tuple(self._sockets), party, self._limits.sockets, now)
        else:
            room = self._oldest(party, mine)
        if room is not None and room.identity == identity and idle:
            return self._use(min(idle, key=lambda s: s.last_used), parent, fate, now)
        if room is None:
            return Full()
        if not may_dial:
            return Barred()
        self._close(room, Closed.EVICTED)
        return self._dial(identity, upstream, model, party, now, line=line, parent=parent, fate=fate)

    def opened(self, socket_id: int, now: float) -> None:
        """A reserved dial succeeded; its socket is busy with the turn that asked for it."""
        socket = self._sockets[socket_id]
        self._sockets.turn_to(socket, State.BUSY)
        socket.opened_at = socket.last_used = socket.since = now
        socket.turns = 1
        self._opened += 1

    def spare(
        self,
        identity: bytes,
        now: float,
        *,
        upstream: str,
        line: Line = MAIN,
        model: str | None = None,
        party: Party | None = None,
    ) -> Dial | None:
        """A place for a spare socket, whose dial ends with ``spared`` or ``dial_failed``; None if there are enough.

        Spare is what is open, or being dialled for no turn, and holds no conversation. It takes nobody's place, and none of what
        is kept free for others; the limits count it as any other.
        """
        if not self.lacks_spare(identity, now, model=model, party=party):
            return None
        party = self._party(self._sockets.of(identity), party)
        socket = self._sockets.add(identity, upstream, model, party, now, state=State.WARMING, line=line)
        return Dial(socket.id, None, None)

    def lacks_spare(self, identity: bytes, now: float, *, model: str | None, party: Party | None) -> bool:
        """Whether ``spare`` would reserve a place."""
        mine = self._sockets.of(identity)
        party = self._party(mine, party)
        spares = sum(s.model == model and s.is_spare and not self._aged(s, now) for s in mine.values())
        room = may_take(party.sockets, len(self._sockets), self._limits.sockets)
        return not self._draining and spares < self._limits.warm and room and self._within(party, mine)

    def spared(self, socket_id: int, now: float) -> None:
        """A reserved dial for no turn succeeded; its socket is idle."""
        socket = self._sockets[socket_id]
        socket.opened_at = socket.last_used = socket.since = now
        self._opened += 1
        self._idle(socket)

    def dial_failed(self, socket_id: int) -> None:
        """A reserved dial failed or was given up; its place is free."""
        self._sockets.remove(socket_id)

    def give_back(self, socket_id: int) -> None:
        """A reserved idle socket was not used after all; it is as before."""
        socket = self._sockets.get(socket_id)
        if socket is not None and socket.state is State.BUSY:
            self._reused -= 1
            socket.turns -= 1
            self._idle(socket)

    def release(
        self, socket_id: int, now: float, *, tip: str | None, stored: bool, keep_parent: bool = False
    ) -> None:
        """A turn on a busy socket ended and the socket can take another.

        ``tip`` is the response that is now its newest, None if what it held is void; with ``keep_parent`` nothing changed.
        """
        socket = self._sockets.get(socket_id)
        if socket is None:
            return
        if not keep_parent:
            if socket.tip is not None:
                socket.past.append(socket.tip)
            socket.tip, socket.stored = tip, stored
        socket.last_used = socket.since = now
        self._idle(socket)
        if socket.id in self._sockets and self._aged(socket, now):
            self._close(socket, Closed.AGE)

    def close(self, socket_id: int, reason: Closed) -> None:
        """The shell closes the socket, or found it dead, for a reason that tells nothing of its age; idempotent."""
        if self._sockets.remove(socket_id) is not None:
            self._closed[reason] += 1

    def lost(self, socket_id: int, now: float) -> None:
        """The upstream closed the socket; its age may tell the upstream's limit. Idempotent."""
        socket = self._sockets.remove(socket_id)
        if socket is not None:
            self._closed[Closed.LOST] += 1
            idle = now - socket.last_used if socket.takes_turn else 0.0
            self._of(socket.line).ages.closed(socket.upstream, now - socket.opened_at, idle, now)

    def aged(self, socket_id: int, now: float) -> None:
        """The upstream refused a turn because this socket is too old; the shell closes it."""
        socket = self._sockets.remove(socket_id)
        if socket is not None:
            self._closed[Closed.AGE] += 1
            self._of(socket.line).ages.refused(socket.upstream, now - socket.opened_at, now)

    def retire(self, now: float) -> None:
        """Close idle sockets that are too old or unused for too long."""
        for socket in self._sockets:
            if not socket.takes_turn:
                continue
            if self._aged(socket, now):
                self._close(socket, Closed.AGE)
            elif now - socket.last_used >= self._limits.socket_idle:
                self._close(socket, Closed.IDLE)

    def reconfigure(self, limits: PoolLimits) -> None:
        """Other bounds from now on; those of age, and what was learned, stay. Too many sockets are not closed for it."""
        self._limits = limits

    def drain(self) -> None:
        """Close idle sockets now and busy ones as they are released."""
        self._draining = True
        for socket in self._sockets:
            if socket.takes_turn:
                self._close(socket, Closed.DRAINED)

    def outdate(self, line: Line, identity: bytes | None = None) -> None:
        """Close the sockets of a line, or of an identity there, that are idle now, and the others when they have served their turn.

        The key that they were opened with has been replaced.
        """
        for socket in self._sockets if identity is None else tuple(self._sockets.of(identity).values()):
            if socket.line.name == line.name:
                socket.outdated = True
                if socket.takes_turn:
                    self._close(socket, Closed.KEY_CHANGED)

    def take_closings(self) -> list[Closing]:
        """The sockets that the shell has yet to close, each once."""
        closings, self._closings = self._closings, []
        return closings

    def holds(self, identity: bytes, response_id: str) -> bool:
        """Whether a live socket of ``identity`` has ``response_id`` as its newest response."""
        return any(s.tip == response_id for s in self._sockets.of(identity).values())

    def opened_at(self, socket_id: int) -> float | None:
        """When the socket was opened, None if it is not here any more."""
        socket = self._sockets.get(socket_id)
        return None if socket is None else socket.opened_at

    def numbers(self, identity: bytes) -> frozenset[int]:
        """The sockets that ``identity`` has now, for a turn that must use none of them."""
        return frozenset(self._sockets.of(identity))

    def forget(self, identity: bytes, response_id: str) -> None:
        """No longer offer ``response_id``: it was deleted, or the upstream does not know it."""
        for socket in self._sockets.of(identity).values():
            if socket.tip == response_id:
                socket.tip = None

    def forgets_stored(self, identity: bytes, now: float, *, line: Line = MAIN) -> None:
        """The upstream did not find a stored response of ``identity``: for a time only socket memory is used for it."""
        self._of(line).forgets_stored(identity, now + self._limits.forgets_for)

    def finds_stored(self, identity: bytes, now: float, *, line: Line = MAIN) -> bool:
        """Whether nothing is known against continuing stored responses of ``identity`` on any socket."""
        return self._of(line).finds_stored(identity, now)

    def snapshot(self) -> dict[str, Any]:
        """The ``connections`` part of the statistics."""
        return {
            **self._sockets.counted(),
            "opened": self._opened,
            "reused": self._reused,
            "closed": {reason.value: self._closed[reason] for reason in Closed},
        }

    def sockets(self, now: float, most: int) -> list[dict[str, Any]]:
        """The ``sockets`` part of the statistics: what up to ``most`` of them are doing, the busy ones first."""
        return self._sockets.listed(now, most)

    def health(self, now: float, line: Line = MAIN) -> dict[str, Any]:
        """What was learned of the upstream of a line, for the statistics."""
        found = self._of(line)
        learned = found.ages.lowest_learned(now)
        return {
            "socket_age_seconds": found.ages.configured if learned is None else learned[0],
            "socket_age_learned": learned is not None,
            "socket_age_learned_seconds": 0.0 if learned is None else round(learned[1], 1),
            "identities_without_stored_parents": found.forgetful(now),
        }

    def counted(self, line: Line) -> dict[str, int]:
        """How many sockets of a line are open, and what they are doing, for the statistics."""
        return self._sockets.counted(line.name)

    def _of(self, line: Line) -> Learned:
        found = self._learned.get(line.name)
        if found is None:
            found = self._learned[line.name] = Learned(line, self._limits)
        return found

    @staticmethod
    def _party(mine: Mapping[int, PooledSocket], party: Party | None) -> Party:
        """Whose share it is: an identity without a party of its own is one."""
        return party or next((s.party for s in mine.values()), None) or Party()

    def _within(self, party: Party, mine: Mapping[int, PooledSocket]) -> bool:
        """Whether the limit of one identity, or of its party if it has one of its own, allows for another socket."""
        if party.most_sockets is None:
            return len(mine) < self._limits.sockets_per_identity
        return party.sockets < party.most_sockets

    def _oldest(self, party: Party, mine: Mapping[int, PooledSocket]) -> PooledSocket | None:
        """The idle socket that was unused longest among those that the same limit bounds."""
        bounded = mine.values() if party.most_sockets is None else self._sockets
        idle = (s for s in bounded if s.takes_turn and s.party is party)
        return min(idle, key=lambda s: s.last_used, default=None)

    def _use(self, socket: PooledSocket, parent: Want | None, fate: Fate | None, now: float) -> Use:
        self._sockets.turn_to(socket, State.BUSY)
        socket.since = now
        socket.turns += 1
        socket.continued = parent is not None
        self._reused += 1
        return Use(socket.id, parent, fate)

    def _dial(
        self,
        identity: bytes,
        upstream: str,
        model: str | None,
        party: Party,
        now: float,
        *,
        line: Line,
        parent: Want | None,
        fate: Fate | None,
    ) -> Dial:
        socket = self._sockets.add(identity, upstream, model, party, now, state=State.DIALLING, line=line)
        socket.continued = parent is not None
        return Dial(socket.id, parent, fate)

    def _fate(
        self, mine: Mapping[int, PooledSocket], wants: Sequence[Want], parent: Want | None
    ) -> Fate | None:
        if not wants or parent is wants[0]:
            return None
        wanted = wants[0].response_id
        if any(s.tip == wanted and s.state is State.BUSY for s in mine.values()):
            return Fate.BUSY
        return Fate.SUPERSEDED if any(wanted in s.past for s in mine.values()) else Fate.LOST

    def _aged(self, socket: PooledSocket, now: float) -> bool:
        return now - socket.opened_at >= self._of(socket.line).ages.limit(socket.upstream, now)

    def _idle(self, socket: PooledSocket) -> None:
        self._sockets.turn_to(socket, State.IDLE)
        if self._draining or socket.outdated:
            self._close(socket, Closed.DRAINED if self._draining else Closed.KEY_CHANGED)

    def _close(self, socket: PooledSocket, reason: Closed) -> None:
        self._sockets.remove(socket.id)
        self._closed[reason] += 1
        self._closings.append(Closing(socket.id, reason))


def _least_missed(socket: PooledSocket) -> tuple[bool, float]:
    """Sorts sockets without a conversation first, the warmest first; then the conversation that was quiet longest."""
    return (True, socket.last_used) if socket.tip is not None else (False, -socket.last_used)
