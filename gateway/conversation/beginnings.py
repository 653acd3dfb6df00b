"""Requests that are recognised by their beginning: the cheapest way to find what a growing history extends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import xxhash

from gateway.conversation.items import Level
from gateway.conversation.request import Spelling
from gateway.conversation.transcripts import Known, Transcript

_MOST = 256
"""Beginnings kept for each identity. Each costs a digest per request, so what was not seen lately is read in full instead."""
_COMMA = ord(",")


class Beginning(NamedTuple):
    """One request that can be recognised: how it was spelled, its transcript, and the level that made them equal."""

    spelling: Spelling
    transcript: Transcript
    level: Level


class Beginnings:
    """How the newest conversations' requests were spelled, so that what extends one is recognised without reading it."""

    def __init__(self) -> None:
        self._spelled: OrderedDict[bytes, Beginning] = OrderedDict()
        self._by_transcript: dict[str, bytes] = {}

    def add(self, spelling: Spelling, transcript: Transcript, level: Level) -> None:
        """``transcript``'s request was spelled so, and its items were found equal at ``level``.

        A later request with the same text takes its place.
        """
        self._drop(spelling.digest)
        self._spelled[spelling.digest] = Beginning(spelling, transcript, level)
        self._by_transcript[transcript.response_id] = spelling.digest
        if len(self._spelled) > _MOST:
            self._drop(next(iter(self._spelled)))

    def forget(self, response_id: str) -> None:
        """The transcript is gone, or a longer request has taken over its conversation."""
        if (digest := self._by_transcript.get(response_id)) is not None:
            self._drop(digest)

    def scan(self, hasher: xxhash.xxh3_128) -> Scan:
        """A look for the longest remembered beginning of a text that comes piece by piece; ``hasher`` is fresh."""
        return Scan(self._spelled, hasher)

    def _drop(self, digest: bytes) -> None:
        if (found := self._spelled.pop(digest, None)) is not None:
            self._by_transcript.pop(found.transcript.response_id, None)


class Scan:
    """Compares a text with what is remembered of others, at every length at which one of them ended."""

    __slots__ = ("_at", "_hasher", "_lengths", "_met", "_spelled")

    def __init__(self, spelled: Mapping[bytes, Beginning], hasher: xxhash.xxh3_128) -> None:
        self._spelled = spelled
        self._hasher = hasher
        self._lengths = sorted(
            {one.spelling.length for one in spelled.values() if one.spelling.length}, reverse=True
        )
        self._at = 0
        self._met: tuple[bytes, xxhash.xxh3_128] | None = None

    def feed(self, piece: memoryview) -> None:
        """The next bytes of the text; what follows the longest length is not looked at."""
        begins, ends = self._at, self._at + len(piece)
        # The byte behind a beginning decides as well, so a beginning that ends with the piece has to wait for the next.
        while self._lengths and self._lengths[-1] < ends:
            length = self._lengths.pop()
            self._hasher.update(piece[self._at - begins : length - begins])
            self._at = length
            digest = self._hasher.digest()
            if piece[length - begins] == _COMMA and digest in self._spelled:
                self._met = (digest, self._hasher.copy())
        if self._lengths:
            self._hasher.update(piece[self._at - begins :])
            self._at = ends

    def found(self) -> Known | None:
        """The longest beginning that a comma follows, if it is still remembered."""
        if self._met is None:
            return None
        digest, hasher = self._met
        if (begun := self._spelled.get(digest)) is None:
            return None
        spelling = begun.spelling
        return Known(begun.transcript, spelling.length, spelling.items, begun.level, hasher.copy())
