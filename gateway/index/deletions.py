"""What gateways deleted, told to each other: a short log in the shared index that every one of them reads about once a second.

Whoever already holds a conversation asks the index for nothing, so the mark that a deleted response leaves there would not be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cachetools import TTLCache

from gateway.conversation.transcripts import Lineage
from gateway.index.health import Cause
from gateway.index.names import Deployment
from gateway.index.records import Deleted, read, write
from gateway.index.redis_server import Command, RedisServer, Unanswered, append, length, listed

MOST = 4096
"""Entries that the log keeps about; who was away for longer than they last does not know what was deleted meanwhile."""
_PAGE = 512
_RECENT = 60.0
"""Seconds for which a deletion is remembered for look-ups that were under way; those are over in a fraction of it."""


class Unheard(Exception):
    """The server answers, but not about the log; ``cause`` says why."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause: Cause = cause


class Deletions:
    """The log on ``server``, kept for ``life`` seconds after anybody looked at it last.

    ``wiped`` is called when entries that were read are no longer there: each gateway then tells again what it deleted itself.
    """

    def __init__(
        self, server: RedisServer, deployment: Deployment, *, life: float, wiped: Callable[[], None]
    ) -> None:
        self._server = server
        self._deployment = deployment
        self._life = life
        self._wiped = wiped
        self._last: bytes | None = None
        self._recent: TTLCache[tuple[bytes, str], bool] = TTLCache(MOST, _RECENT)
        self._deleted: list[Callable[[bytes, str], None]] = []
        self._missed: list[Callable[[], None]] = []

    def hear(self, deleted: Callable[[bytes, str], None], missed: Callable[[], None]) -> None:
        """Call ``deleted`` with whose response was deleted anywhere, and its id; ``missed`` where that may have been overheard."""
        self._deleted.append(deleted)
        self._missed.append(missed)

    def just_deleted(self, identity: bytes, lineage: Lineage) -> bool:
        """Whether one of these responses was deleted a moment ago, so that what was found of them may be older than that."""
        link: Lineage | None = lineage
        while link is not None:
            if (identity, link.response_id) in self._recent:
                return True
            link = link.before
        return False

    def entry(self, identity: bytes, response_id: str) -> Command:
        """What adds a deletion to the log."""
        name = self._deployment.deletions()
        value = write(self._deployment, name, Deleted(identity, response_id))
        assert value is not None  # noqa: S101 (an id is bounded by the length of a request's target)
        self._recent[identity, response_id] = True
        return append(name, value, MOST)

    async def look(self) -> None:
        """Take note of what is new. Raises Unanswered and Unheard; the caller bounds the time."""
        name = self._deployment.deletions()
        while True:
            answers = await self._server.do((listed(name, self._last, _PAGE), *length(name, self._life)))
            for each in answers:
                if isinstance(each, Unanswered):
                    raise Unheard(each.cause)
            entries = _entries(answers[0])
            full = len(entries) == _PAGE
            if self._last is not None:
                if not entries or entries[0][0] != self._last:
                    self._last = None
                    self._lost(answers[1])
                    continue
                del entries[0]
            for number, value in entries:
                self._last = number
                found = read(self._deployment, name, value)
                if isinstance(found, Deleted):
                    self._recent[found.identity, found.response_id] = True
                    for tell in self._deleted:
                        tell(found.identity, found.response_id)
            if not full:
                return

    def _lost(self, count: Any) -> None:
        """Where the log is as long as it gets, entries were dropped for others; else it was wiped, or begun anew."""
        if isinstance(count, int) and count >= MOST:
            for tell in self._missed:
                tell()
        else:
            self._wiped()


def _entries(found: Any) -> list[tuple[bytes, bytes]]:
    """Number and value of each entry; whatever has another form is none. Raises Unheard for what is no list."""
    if not isinstance(found, list):
        raise Unheard("error")
    entries: list[tuple[bytes, bytes]] = []
    for each in found:
        match each:
            case (bytes(number), [b"v", bytes(value)]):
                entries.append((number, value))
            case (bytes(number), *_):
                entries.append((number, b""))
    return entries
