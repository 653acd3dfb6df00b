"""Items that were seen before, known by the digest of their bytes, and found one after the other without decoding any.

An item is remembered only after it was read strictly as one element of an array. A JSON object ends where it ends, whatever follows,
so a run of remembered objects with commas between them is the beginning of an array as certainly as if it had been decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.conversation.digests import Digester
from gateway.conversation.items import ItemFacts, facts_of

_MOST = 32_768
"""Spellings of items whose facts are kept, twice at most."""
_TRIES = 8
"""Places that look like the end of an item, as a part of one can, before the item counts as unknown."""


@dataclass(slots=True)
class Run:
    """Familiar items at the beginning of an input: their bytes, their facts, and where in the body the next item begins."""

    at: int
    items: list[bytes | memoryview] = field(default_factory=list)
    facts: list[ItemFacts] = field(default_factory=list)


class Familiar:
    """The facts of items by the digests of their spellings, and how long the item was that followed each."""

    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self._young: dict[bytes, ItemFacts] = {}
        self._old: dict[bytes, ItemFacts] = {}
        self._followed_by: dict[bytes, int] = {}

    def facts(self, item: bytes | memoryview) -> ItemFacts:
        """The facts of an item that a reader of JSON has sliced out; raises Unreadable for what is not UTF-8."""
        digest = self._digester.raw(item)
        facts = self._get(digest)
        if facts is None:
            facts = self._young[digest] = facts_of(bytes(item), self._digester)
        return facts

    def run(self, body: bytes, start: int, border: bytes) -> Run:
        """The familiar objects from ``start`` on that are each followed by another; ``border`` is ``}``, a comma, ``{"``."""
        text, digest_of, followed_by = memoryview(body), self._digester.raw, self._followed_by
        found = Run(start)
        at, before = start, b""
        while True:
            # What followed this item last time follows it again in almost every request: no need to look for its end.
            end = at + followed_by.get(before, 0) - 1
            facts = None
            if end >= at and body.startswith(border, end):
                digest = digest_of(text[at : end + 1])
                facts = self._get(digest)
            if facts is None:
                end = at - 1
                for _ in range(_TRIES):
                    end = body.find(border, end + 1)
                    if end < 0:
                        return found
                    digest = digest_of(text[at : end + 1])
                    if (facts := self._get(digest)) is not None:
                        self._note(before, end + 1 - at)
                        break
                else:
                    return found
            found.items.append(text[at : end + 1])
            found.facts.append(facts)
            found.at = at = end + len(border) - 2
            before = digest

    def _get(self, digest: bytes) -> ItemFacts | None:
        facts = self._young.get(digest)
        if facts is None and (facts := self._old.get(digest)) is not None:
            self._young[digest] = facts
        if len(self._young) >= _MOST:
            self._old, self._young = self._young, {}
        return facts

    def _note(self, before: bytes, length: int) -> None:
        if len(self._followed_by) >= 2 * _MOST:
            self._followed_by.clear()
        self._followed_by[before] = length
