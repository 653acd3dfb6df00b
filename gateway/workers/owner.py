"""Which worker a conversation lives in: decided by whose it is and what it begins with, so every worker decides alike.

What it begins with are its instructions and the first item that a user said, by their meaning: they stay the same for as long as
anything of the conversation can be continued.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import orjson

from gateway.conversation.arriving import NAME, OPENINGS
from gateway.conversation.digests import Digester
from gateway.conversation.items import Kind, Unreadable
from gateway.conversation.reading import Reader, items_of
from gateway.conversation.request import text_of
from gateway.protocol.raw import NotSliceable, split_object

_MOST = 16_384
"""Items at the beginnings of conversations that are remembered, twice at most."""
_TRIES = 64
"""Places that look like the end of an item before it counts as unknown."""
_BORDERS = (b'},{"', b'}, {"')
_INSTRUCTS = ("system", "developer")
_SAID = (*_INSTRUCTS, "user")
_PARENT = b'"previous_response_id"'


@dataclass(frozen=True, slots=True)
class Parent:
    """A response that the client itself names as the one to continue."""

    response_id: str


@dataclass(frozen=True, slots=True)
class _Opening:
    """An item at the beginning of a conversation: what it means, if that counts, and whether the beginning ends with it."""

    core: bytes | None
    ends: bool


class Beginnings:
    """Tells what a body's conversation begins with. Items that were read once are known by the digest of their bytes."""

    def __init__(self, reader: Reader, digester: Digester) -> None:
        self._reader = reader
        self._digester = digester
        self._young: dict[bytes, _Opening] = {}
        self._old: dict[bytes, _Opening] = {}

    def of(self, body: bytes) -> bytes | Parent | None:
        """A digest of the beginning, or the parent that the client names; None where there is nothing to go by."""
        if _PARENT not in body and (found := self._familiar(body)) is not None:
            return found
        try:
            members = {member.name: member.value for member in split_object(body)}
            parent = text_of(members.get("previous_response_id"))
            return Parent(parent) if parent else self._read(members.get("input", b""))
        except (NotSliceable, UnicodeDecodeError, Unreadable):
            return None

    def _familiar(self, body: bytes) -> bytes | None:
        """The digest, if every item up to the first that a user said is known in this spelling."""
        behind = body.find(NAME) + len(NAME)
        if behind < len(NAME):
            return None
        for opening, border in zip(OPENINGS, _BORDERS, strict=True):
            if body.startswith(opening, behind):
                return self._run(body, behind + len(opening), border)
        return None

    def _run(self, body: bytes, at: int, border: bytes) -> bytes | None:
        view, cores = memoryview(body), list[bytes]()
        while (found := self._next(body, view, at, border)) is not None:
            end, opening = found
            if opening.core is not None:
                cores.append(opening.core)
            if opening.ends or not body.startswith(border, end):
                return self._digester.digest(b"beginning", *cores)
            at = end + len(border) - 2
        return None

    def _next(self, body: bytes, view: memoryview, at: int, border: bytes) -> tuple[int, _Opening] | None:
        """Where the known item that begins at ``at`` ends, and what it is. An object ends where it ends, whatever follows."""
        beyond = len(body)
        between = last = at - 1
        for _ in range(_TRIES):
            # Each is looked for again only when it was the nearer one: a body may be large.
            end = min(between, last)
            if between == end:
                between = body.find(border, end + 1)
                between = beyond if between < 0 else between
            if last == end:
                last = body.find(b"}]", end + 1)
                last = beyond if last < 0 else last
            end = min(between, last)
            if end == beyond:
                return None
            digest = self._digester.raw(view[at : end + 1])
            opening = self._young.get(digest) or self._old.get(digest)
            if opening is not None:
                self._young[digest] = opening
                return end, opening
        return None

    def _read(self, source: bytes | memoryview) -> bytes:
        """The digest, from items read in full, which are known from now on."""
        cores: list[bytes] = []
        for item in items_of(bytes(source)):
            opening = self._learn(item)
            if opening.core is not None:
                cores.append(opening.core)
            if opening.ends:
                break
        return self._digester.digest(b"beginning", *cores)

    def _learn(self, item: bytes) -> _Opening:
        facts = self._reader.facts(item)
        try:
            value = orjson.loads(item)
        except orjson.JSONDecodeError:
            value = None
        role = value.get("role") if isinstance(value, dict) else None
        if facts.kind in (Kind.EMPTY, Kind.REFERENCE):
            # Clients put in and leave out the one, and name by the other what they sent before.
            opening = _Opening(None, ends=False)
        else:
            # What the model made is no part of the beginning: the first request was without it.
            opening = _Opening(facts.core if role in _SAID else None, ends=role not in _INSTRUCTS)
        if len(self._young) >= _MOST:
            self._old, self._young = self._young, {}
        self._young[self._digester.raw(item)] = opening
        return opening


def owner(identity: bytes, beginning: bytes, workers: Iterable[int]) -> int:
    """Which of these numbers has it, by the highest of their scores; with one more or less few conversations move."""
    return max(workers, key=lambda number: _score(identity, beginning, number))


def _score(identity: bytes, beginning: bytes, number: int) -> bytes:
    return blake2b(identity + beginning, salt=number.to_bytes(2, "big"), digest_size=8).digest()
