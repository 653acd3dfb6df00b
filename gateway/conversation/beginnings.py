"""Requests that are recognised by their beginning: the cheapest way to find what a growing history extends."""

from __future__ import annotations

from collections import OrderedDict

import xxhash

from gateway.conversation.request import Spelling
from gateway.conversation.transcripts import Known, Transcript

_MOST = 256
"""Beginnings kept for each identity. Each costs a digest per request, so what was not seen lately is read in full instead."""
_COMMA = ord(",")


class Beginnings:
    """How the newest conversations' requests were spelled, so that what extends one is recognised without reading it."""

    def __init__(self) -> None:
        self._spelled: OrderedDict[bytes, tuple[Spelling, Transcript]] = OrderedDict()
        self._by_transcript: dict[str, bytes] = {}

    def add(self, spelling: Spelling, transcript: Transcript) -> None:
        """``transcript``'s request was spelled so; a later request with the same text takes its place."""
        self._drop(spelling.digest)
        self._spelled[spelling.digest] = (spelling, transcript)
        self._by_transcript[transcript.response_id] = spelling.digest
        if len(self._spelled) > _MOST:
            self._drop(next(iter(self._spelled)))

    def forget(self, response_id: str) -> None:
        """The transcript is gone, or a longer request has taken over its conversation."""
        if (digest := self._by_transcript.get(response_id)) is not None:
            self._drop(digest)

    def find(self, text: memoryview, hasher: xxhash.xxh3_128) -> Known | None:
        """The longest remembered beginning of ``text`` that a comma follows."""
        best: Known | None = None
        at = 0
        for length in sorted({spelling.length for spelling, _ in self._spelled.values()}):
            if length >= len(text) or length == 0:
                continue
            hasher.update(text[at:length])
            at = length
            spelling, transcript = self._spelled.get(hasher.digest(), (None, None))
            if (
                spelling is not None
                and transcript is not None
                and spelling.length == length
                and text[length] == _COMMA
            ):
                best = Known(transcript, length, spelling.items, hasher.copy())
        return best

    def _drop(self, digest: bytes) -> None:
        if (found := self._spelled.pop(digest, None)) is not None:
            self._by_transcript.pop(found[1].response_id, None)
