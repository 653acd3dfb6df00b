"""The shared index as turns use it: what others know of a request's parents, and what others are told.

A look-up is bounded in time, and what is not found in time is not found. Telling is never waited for. While the server does not
answer nobody asks it anything but one task, so a dead one costs a turn nothing. Whatever comes from it is at most a proposal:
it is authenticated here, and then verified item by item like any conversation that this process has held itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import structlog

from gateway.conversation.fields import FieldFacts
from gateway.conversation.items import ItemFacts
from gateway.conversation.transcripts import Lineage
from gateway.index.deletions import Deletions, Unheard
from gateway.index.health import REMEDIES, Cause, Health, State
from gateway.index.names import START, Deployment, extended
from gateway.index.records import Deleted, Gone, Pointer, Record, field_facts, joined, read
from gateway.index.redis_server import RedisServer, Unanswered
from gateway.index.telling import MOST_BEFORE, Kept, Teller
from gateway.tasks import Tasks

MOST_FOUND = 4
"""Parents that one look-up takes, the longest ones."""
_LOOK = 1.0
"""Seconds between two looks at what other gateways deleted."""
_LIFE_OF_LOG = 1.5
"""Ages for which the log of deletions is kept when nobody looks at it: as long as what it speaks of."""
_BEAT = 15.0
"""Seconds between signs of life of a server that works."""
_PAUSES = (0.25, 0.5, 1.0, 2.0, 5.0)
"""Seconds before each further try with one that does not; the last one again and again."""


@dataclass(frozen=True, slots=True)
class Found:
    """A stored response that another gateway made: the facts of all items that it stands on, and of its own behind them."""

    response_id: str
    sent: tuple[ItemFacts, ...]
    answered: tuple[ItemFacts, ...]
    fields: FieldFacts
    lineage: Lineage


class SharedIndex:
    """One index on one server. ``age`` is the seconds for which an unused conversation is kept, ``timeout`` bounds a look-up."""

    def __init__(
        self,
        server: RedisServer,
        deployment: Deployment,
        *,
        timeout: float,
        age: float,
        tasks: Tasks,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._server = server
        self._deployment = deployment
        self._timeout = timeout
        self._failed = asyncio.Event()
        self.health = Health(_tell)
        life = _LIFE_OF_LOG * age
        self._deletions = Deletions(server, deployment, life=life, wiped=self._tell_again)
        self._teller = Teller(
            server, deployment, age=age, health=self.health, fail=self._fail, clock=clock, entry=self._deletions.entry,
        )  # fmt: skip
        self.hear = self._deletions.hear
        self.tell = self._teller.tell
        self.deleted = self._teller.deleted
        self.forgotten = self._teller.forgotten
        self.settled = self._teller.settled
        self.key = deployment.key(b"digests")
        self.go_by = deployment.go_by
        self._work = [
            tasks.spawn(self._watch(), name="watch the shared index"),
            tasks.spawn(self._teller.work(), name="tell the shared index"),
            tasks.spawn(self._listen(), name="hear what others deleted"),
        ]

    @property
    def answers(self) -> bool:
        """Whether it is of use to ask now."""
        return self.health.state in {"works", "read_only"}

    # -- asking

    async def find(self, identity: bytes, facts: Sequence[ItemFacts], names: Iterable[str]) -> list[Found]:
        """Stored responses that a request with these items, and fields of these names, may continue; empty in every doubt."""
        pointers = self._deployment.candidates(identity, facts)
        if not pointers or not self.answers:
            return []
        try:
            async with asyncio.timeout(self._timeout):
                return await self._find(identity, pointers, tuple(names))
        except TimeoutError:
            self._fail("timeout")
        except Unanswered as error:
            self._fail(error.cause)
        return []

    def counted(self, *, hit: bool) -> None:
        """A look-up has ended; ``hit`` if it brought something to continue."""
        if hit:
            self.health.hits += 1
        else:
            self.health.misses += 1

    async def _find(self, identity: bytes, pointers: Sequence[bytes], names: tuple[str, ...]) -> list[Found]:
        pointed = [each.name for each in await self._read(pointers) if isinstance(each, Pointer)]
        wanted = list(dict.fromkeys(pointed))[:MOST_FOUND]
        if not wanted:
            return []
        read_now = await self._read(wanted)
        records = {
            name: each
            for name, each in zip(wanted, read_now, strict=True)
            if isinstance(each, Record)
            and len(each.before) <= MOST_BEFORE
            and self._deployment.response(identity, each.response_id) == name
        }
        if not records:
            return []
        before = list(dict.fromkeys(name for record in records.values() for name in record.before))
        oldest = [
            record.before[record.needs - 1] if record.needs else name for name, record in records.items()
        ]
        values, lives = await self._server.values_and_lives(before, oldest)
        known = {
            name: read(self._deployment, name, value) for name, value in zip(before, values, strict=True)
        }
        found: list[Found] = []
        for (name, record), life in zip(records.items(), lives, strict=True):
            behind = [known[each] for each in record.before]
            whole = joined(record, behind)
            if whole is None:
                continue
            lineage = _lineage(whole.response_id, behind)
            if self._deletions.just_deleted(identity, lineage):
                continue
            found.append(
                Found(
                    whole.response_id,
                    whole.facts[: whole.asked],
                    whole.facts[whole.asked :],
                    field_facts(self._deployment, whole, names),
                    lineage,
                )
            )
            self._teller.kept[name] = Kept(
                extended(START, whole.facts),
                len(whole.facts),
                whole.before,
                whole.needs,
                self._teller.whole_since(life),
            )
        return found

    async def _read(self, names: Sequence[bytes]) -> list[Pointer | Gone | Deleted | Record | None]:
        values = await self._server.values(names)
        return [read(self._deployment, name, value) for name, value in zip(names, values, strict=True)]

    async def close(self) -> None:
        """Tell what waits to be told, for a moment, and close; may be called twice."""
        await self._teller.finish()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self._server.close()

    # -- how it is doing

    def _fail(self, cause: Cause) -> None:
        self.health.errors += 1
        self.health.be("down", cause)
        self._failed.set()

    async def _watch(self) -> None:
        failures = 0
        while True:
            try:
                await self._server.ping(self._timeout / 2)
            except Unanswered as error:
                self.health.be("down", error.cause)
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                failures += 1
            else:
                if self.health.state in {"untried", "down"}:
                    self.health.be("works")
                    self._teller.tell_deletions(again=False)
                failures = 0
                self._failed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_BEAT):
                        await self._failed.wait()
                if not self._failed.is_set():
                    continue
                pause = _PAUSES[0]
                failures = 1
            await asyncio.sleep(pause)

    async def _listen(self) -> None:
        """Look at what others deleted, and tell them what they could not be told of, for ever."""
        worked = True
        while True:
            await asyncio.sleep(_LOOK)
            if not self.answers:
                continue
            self._teller.tell_deletions(again=False)
            try:
                async with asyncio.timeout(max(_LOOK, self._timeout)):
                    await self._deletions.look()
            except TimeoutError:
                self._fail("timeout")
            except Unanswered as error:
                self._fail(error.cause)
            except Unheard as error:
                self.health.errors += 1
                if worked:
                    _overhears(error.cause)
                worked = False
            else:
                worked = True

    def _tell_again(self) -> None:
        self._teller.tell_deletions(again=True)

    def snapshot(self) -> dict[str, Any]:
        """For the statistics."""
        return self.health.snapshot()


def _lineage(response_id: str, before: Sequence[object]) -> Lineage:
    """The responses in the chain, as far as their ids are known."""
    link: Lineage | None = None
    for each in reversed(before):
        if isinstance(each, Record):
            link = Lineage(each.response_id, link)
    return Lineage(response_id, link)


def _tell(state: State, cause: Cause | None) -> None:
    log = structlog.get_logger("upwire")
    if cause is None:
        log.info("shared_index", state=state)
    else:
        log.warning("shared_index", state=state, cause=cause, remedy=REMEDIES[cause])


def _overhears(cause: Cause) -> None:
    structlog.get_logger("upwire").warning(
        "shared_index_deletions",
        cause=cause,
        remedy="responses that are deleted at another gateway may be continued here; let the index's user run XADD, XRANGE and XLEN",
    )
