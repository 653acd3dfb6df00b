"""What the upstream holds after a response, as segments of a tree of items: the data, without the ways through it.

A transcript is everything one response stands on, item by item, and the response's own items. Transcripts of one conversation
share their beginning, so they are stored as a tree: a segment holds the facts of the items that one turn added, and further
segments branch off it at any depth. Memory grows with new items, not with turns x history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import xxhash

from gateway.conversation.fields import FieldFacts
from gateway.conversation.items import ItemFacts, Kind, Level
from gateway.conversation.packed import PackedFacts

SKIPPABLE = frozenset({Kind.EMPTY, Kind.REASONING})
"""Kinds of held items that some level lets a client leave out."""


_FEW = 8
"""Segments among which searching one by one is as fast as an index, and takes less memory than an empty one."""


class Fork:
    """The segments that leave at one depth, oldest first, findable by what their first item is."""

    __slots__ = ("_by_core", "_by_identifier", "_few", "_skippable")

    def __init__(self) -> None:
        self._few: tuple[Segment, ...] | None = ()
        self._by_core: dict[bytes, list[Segment]]
        self._by_identifier: dict[bytes, list[Segment]]
        self._skippable: list[Segment]

    def __bool__(self) -> bool:
        return bool(self._by_core if self._few is None else self._few)

    def __iter__(self) -> Iterator[Segment]:
        if self._few is not None:
            return iter(self._few)
        return (segment for segments in self._by_core.values() for segment in segments)

    def with_core(self, core: bytes) -> Sequence[Segment]:
        """The segments whose first item has this core."""
        if self._few is None:
            return self._by_core.get(core, ())
        return [segment for segment in self._few if segment.facts.core(0) == core]

    def with_identifier(self, identifier: bytes) -> Sequence[Segment]:
        """The segments whose first item has this id."""
        if self._few is None:
            return self._by_identifier.get(identifier, ())
        return [segment for segment in self._few if segment.facts[0].identifier == identifier]

    def skippable(self) -> Sequence[Segment]:
        """The segments whose first item some level lets a client leave out."""
        if self._few is None:
            return self._skippable
        return [segment for segment in self._few if segment.facts.kind(0) in SKIPPABLE]

    def add(self, segment: Segment) -> None:
        """Let ``segment`` leave here."""
        if self._few is not None and len(self._few) < _FEW:
            self._few = (*self._few, segment)
            return
        if self._few is not None:
            few, self._few = self._few, None
            self._by_core, self._by_identifier, self._skippable = {}, {}, []
            for each in few:
                self._index(each)
        self._index(segment)

    def discard(self, segment: Segment) -> None:
        """The opposite of ``add``."""
        if self._few is not None:
            self._few = tuple(each for each in self._few if each is not segment)
            return
        first = segment.facts[0]
        _discard(self._by_core, first.core, segment)
        if first.identifier is not None:
            _discard(self._by_identifier, first.identifier, segment)
        if first.kind in SKIPPABLE:
            self._skippable.remove(segment)

    def _index(self, segment: Segment) -> None:
        first = segment.facts[0]
        self._by_core.setdefault(first.core, []).append(segment)
        if first.identifier is not None:
            self._by_identifier.setdefault(first.identifier, []).append(segment)
        if first.kind in SKIPPABLE:
            self._skippable.append(segment)


@dataclass(slots=True, eq=False)
class Segment:
    """Items that one turn added: ``facts`` begin at depth ``start``; answers begin at depth ``answer``.

    ``after_answer`` says whether an answer lies before ``start``. ``branches`` are keyed by the depth at which they leave.
    """

    parent: Segment | None
    start: int
    facts: PackedFacts
    answer: int
    after_answer: bool
    branches: dict[int, Fork] = field(default_factory=dict)
    ends: dict[int, tuple[Transcript, ...]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The depth behind the last item."""
        return self.start + len(self.facts)


@dataclass(frozen=True, slots=True, eq=False)
class Lineage:
    """The responses that one was chained through, newest first: ids only, which outlast what was known of them."""

    response_id: str
    before: Lineage | None


@dataclass(slots=True, eq=False)
class Transcript:
    """A completed response that later requests may continue, and where its items end in the tree.

    ``lineage`` begins with itself; behind it comes the response that its request named as parent, if any. ``used`` is the time of last use in seconds.
    ``asked`` is the depth behind the items of its own request, before its answer.
    """

    response_id: str
    segment: Segment
    depth: int
    fields: FieldFacts
    stored: bool
    lineage: Lineage
    used: float
    asked: int

    def place_asked(self) -> tuple[Segment, int]:
        """The place in the tree behind the items of its own request."""
        segment = self.segment
        while segment.parent is not None and segment.start >= self.asked:
            segment = segment.parent
        return segment, self.asked

    def held(self, *, since: int = 0) -> tuple[ItemFacts, ...]:
        """The facts of the items that the upstream holds, first to last, from depth ``since`` on."""
        parts: list[list[ItemFacts]] = []
        segment: Segment | None = self.segment
        depth = self.depth
        while segment is not None and depth > since:
            first = max(0, since - segment.start)
            parts.append([segment.facts[at] for at in range(first, depth - segment.start)])
            depth = segment.start
            segment = segment.parent
        return tuple(fact for part in reversed(parts) for fact in part)


@dataclass(frozen=True, slots=True)
class Known:
    """The items that an earlier request, ``transcript``'s own, consisted of, recognised by their raw text.

    ``length`` is that of the text in bytes, ``items`` how many items it holds, ``hasher`` has digested it so far. That these
    items stand for what ``transcript`` holds was found at ``level``, with references resolved if the response was stored.
    """

    transcript: Transcript
    length: int
    items: int
    level: Level
    hasher: xxhash.xxh3_128


@dataclass(frozen=True, slots=True)
class Match:
    """A transcript whose items equal the first ``consumed`` items of a request."""

    transcript: Transcript
    consumed: int


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk found: matches, the longest first, and whether it agreed with an answer before it differed."""

    matches: tuple[Match, ...]
    met_answer: bool


def _discard(index: dict[bytes, list[Segment]], key: bytes, segment: Segment) -> None:
    index[key].remove(segment)
    if not index[key]:
        del index[key]
