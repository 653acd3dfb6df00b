"""Telling others what this gateway has made, behind the turns' backs: a bounded queue and one task that empties it.

What cannot be told is dropped and counted: it costs a conversation one full turn on another gateway, never a wrong context.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cachetools import LRUCache, TTLCache

from gateway.conversation.items import ItemFacts, Kind
from gateway.conversation.transcripts import Transcript
from gateway.index.health import Cause, Health
from gateway.index.names import START, Deployment, extended
from gateway.index.records import Gone, Pointer, Record, label, write
from gateway.index.redis_server import Command, RedisServer, Unanswered, count, drop, put

MOST_NEEDED = 64
"""Records that one may stand on; the next is written with all its items."""
MOST_BEFORE = 512
"""Responses in one chain; what is longer is not shared."""
_LIFE = 1.5
"""Ages for which a record is kept: what points to one goes after one, and it may stand on others that are half an age older."""
_QUEUE = 1024
_BATCH = 64
_BOUND = 1.0
"""Seconds for one batch."""
_REMEMBERED = 4096
_DELETIONS = 4096
"""Deletions of its own that a gateway remembers until others can no longer hold what was deleted."""
_MUTE = 5.0
"""Seconds for which a server that takes no data is told nothing."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What was written of a response: where its items end, which records it stands on, and since when the oldest of them is there."""

    chain: bytes
    depth: int
    before: tuple[bytes, ...]
    needs: int
    since: float


@dataclass(frozen=True, slots=True)
class _Entry:
    """Commands that belong together; ``name`` is the record that they make, ``needed`` how many it stands on.

    ``deletes`` is the record that they mark as deleted.
    """

    commands: tuple[Command, ...]
    name: bytes | None = None
    needed: int = 0
    deletes: bytes | None = None


class Teller:
    """Writes to ``server``. ``age`` is the seconds for which an unused conversation is kept; ``fail`` is told of what made it silent."""

    def __init__(
        self,
        server: RedisServer,
        deployment: Deployment,
        *,
        age: float,
        health: Health,
        fail: Callable[[Cause], None],
        clock: Callable[[], float],
        entry: Callable[[bytes, str], Command],
    ) -> None:
        self._server = server
        self._deployment = deployment
        self._age = age
        self._health = health
        self._fail = fail
        self._clock = clock
        self._queue: asyncio.Queue[_Entry] = asyncio.Queue(_QUEUE)
        self._mute_until = 0.0
        self._entry = entry
        self._deletions: TTLCache[bytes, _Entry] = TTLCache(_DELETIONS, _LIFE * age, clock)
        self._untold: set[bytes] = set()
        self._queued: set[bytes] = set()
        self.kept: LRUCache[bytes, Kept] = LRUCache(_REMEMBERED)

    def whole_since(self, life: float) -> float:
        """Since when a record has been there that is kept for ``life`` seconds more."""
        return self._clock() - max(0.0, _LIFE * self._age - life)

    def tell(self, identity: bytes, transcript: Transcript) -> None:
        """A stored response has completed: others may continue it."""
        if not self._listens():
            return
        deployment = self._deployment
        name = deployment.response(identity, transcript.response_id)
        now = self._clock()
        base: Kept | None = None
        before: tuple[bytes, ...] = ()
        if (link := transcript.lineage.before) is not None:
            parent = deployment.response(identity, link.response_id)
            base = self.kept.get(parent)
            if base is not None:
                before = (parent, *base.before)
            else:
                while link is not None and len(before) <= MOST_BEFORE:
                    before = (*before, deployment.response(identity, link.response_id))
                    link = link.before
        if len(before) > MOST_BEFORE:
            return
        if base is not None and (base.needs >= MOST_NEEDED or now - base.since > self._age / 2):
            base = None
        depth, needs = (base.depth, base.needs + 1) if base is not None else (0, 0)
        facts = transcript.held(since=depth)
        chain = extended(base.chain if base is not None else START, facts)
        fields = transcript.fields
        record = write(
            deployment,
            name,
            Record(
                transcript.response_id,
                facts,
                transcript.asked - depth,
                before,
                needs,
                frozenset(label(deployment, each) for each in fields.names),
                fields.binding,
                fields.every,
                fields.truncates,
            ),
        )
        if record is None:
            return
        answered = facts[transcript.asked - depth :]
        places = [
            deployment.position(identity, chain),
            *(deployment.item(identity, identifier) for identifier in _referable(answered)),
        ]
        commands = [put(name, record, _LIFE * self._age, over=False)]
        for place in places:
            pointer = write(deployment, place, Pointer(name))
            if pointer is not None:
                commands.append(put(place, pointer, self._age, over=True))
        if needs:
            commands.append(count(before[:needs]))
        self.kept[name] = Kept(
            chain, depth + len(facts), before, needs, base.since if base is not None else now
        )
        self._put(_Entry(tuple(commands), name, needs))

    def deleted(self, identity: bytes, response_id: str) -> None:
        """The client deleted a response upstream: nobody may continue it, nor what is chained through it.

        What cannot be told now is told when it can be.
        """
        name = self._deployment.response(identity, response_id)
        self.kept.pop(name, None)
        gone = write(self._deployment, name, Gone())
        assert gone is not None  # noqa: S101 (a mark is small)
        mark = put(name, gone, _LIFE * self._age, over=True)
        entry = _Entry((mark, self._entry(identity, response_id)), deletes=name)
        self._deletions[name] = entry
        self._untold.add(name)
        if self._listens():
            self._put_deletion(name, entry)

    def tell_deletions(self, *, again: bool) -> None:
        """Tell of deletions that could not be told of, or ``again`` of all that are remembered."""
        self._untold.intersection_update(self._deletions)
        for name in tuple(self._deletions) if again else tuple(self._untold):
            entry = self._deletions.get(name)
            if entry is not None:
                self._put_deletion(name, entry)

    def forgotten(self, identity: bytes, response_id: str) -> None:
        """The upstream does not know this response any more."""
        name = self._deployment.response(identity, response_id)
        self.kept.pop(name, None)
        if self._listens():
            self._put(_Entry((drop(name),)))

    async def settled(self) -> None:
        """Wait until nothing waits to be told."""
        await self._queue.join()

    async def finish(self) -> None:
        """Tell what waits to be told, for a moment."""
        if self._health.state in {"works", "read_only"}:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BOUND / 2):
                    await self.settled()

    def _listens(self) -> bool:
        """Whether telling is of use now; what is not told then is counted."""
        listens = self._health.state == "works" or (
            self._health.state == "read_only" and self._clock() >= self._mute_until
        )
        self._health.dropped += not listens
        return listens

    def _put_deletion(self, name: bytes, entry: _Entry) -> None:
        if name not in self._queued and not self._queue.full():
            self._queued.add(name)
            self._queue.put_nowait(entry)

    def _put(self, entry: _Entry) -> None:
        try:
            self._queue.put_nowait(entry)
        except asyncio.QueueFull:
            self._lost((entry,))

    def _lost(self, entries: Iterable[_Entry]) -> None:
        for entry in entries:
            self._health.dropped += 1
            if entry.name is not None:
                self.kept.pop(entry.name, None)

    async def work(self) -> None:
        """Empty the queue, for ever."""
        while True:
            entries = [await self._queue.get()]
            while len(entries) < _BATCH and not self._queue.empty():
                entries.append(self._queue.get_nowait())
            try:
                await self._write_all(entries)
            finally:
                for _ in entries:
                    self._queue.task_done()

    async def _write_all(self, entries: Sequence[_Entry]) -> None:
        self._queued.difference_update(entry.deletes for entry in entries if entry.deletes is not None)
        commands = [command for entry in entries for command in entry.commands]
        try:
            async with asyncio.timeout(_BOUND):
                answers = await self._server.do(commands)
        except (TimeoutError, Unanswered) as error:
            self._lost(entries)
            self._fail(error.cause if isinstance(error, Unanswered) else "timeout")
            return
        refused: Cause | None = None
        at = 0
        for entry in entries:
            own = answers[at : at + len(entry.commands)]
            at += len(entry.commands)
            failures = [each.cause for each in own if isinstance(each, Unanswered)]
            if failures:
                refused = failures[0]
                self._lost((entry,))
            elif entry.name is not None and (own[0] is None or (entry.needed and own[-1] != entry.needed)):
                # It stands on what is no longer there, or was deleted already: the next of this conversation is written whole.
                self._lost((entry,))
            else:
                self._health.written += 1
                if entry.deletes is not None:
                    self._untold.discard(entry.deletes)
        if refused is not None:
            self._health.errors += 1
            self._mute_until = self._clock() + _MUTE
            if self._health.state in {"works", "read_only"}:
                self._health.be("read_only", refused)
        elif self._health.state == "read_only":
            self._health.be("works")


def _referable(answered: Sequence[ItemFacts]) -> set[bytes]:
    """Ids of items by which clients that send references may name this answer: its first and its last item, its last reasoning."""
    named = [fact for fact in answered if fact.identifier is not None]
    reasoning = [fact for fact in named if fact.kind is Kind.REASONING]
    return {
        fact.identifier for fact in (*named[:1], *reasoning[-1:], *named[-1:]) if fact.identifier is not None
    }
