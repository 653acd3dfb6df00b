"""Facts of many items in little memory: the columns of a table, one ``bytes`` each, in place of an object per item.

A gateway keeps the facts of millions of items. As objects each takes about 200 bytes, as columns 17, and 16 for every digest that
only some items have.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from gateway.conversation.digests import DIGEST_SIZE
from gateway.conversation.items import ItemFacts, Kind, Level, equal

KIND = 0b111
"""The part of a head that is the item's kind."""
_PHASE, _IDENTIFIER, _CONTENT, _REST = FLAGS = 0b1000, 0b10000, 0b100000, 0b1000000
"""Which of its further digests an item has, in their order."""
_KINDS: tuple[Kind, ...] = (Kind.ITEM, *Kind)
MORE = bytes((head >> 3).bit_count() for head in range(256))
"""How many further digests an item has, by its head."""
_BLOCK = 64
"""Items between two places from which the place of further digests is counted."""


class PackedFacts:
    """The facts of items in order. Nothing of it changes; an index must be from 0 to the length, which is not checked."""

    __slots__ = ("_blocks", "_cores", "_heads", "_more")

    def __init__(self, facts: Iterable[ItemFacts] = ()) -> None:
        facts = tuple(facts)
        self._cores = b"".join([fact.core for fact in facts])
        self._heads = bytes(map(head_of, facts))
        self._more = b"".join([digest for fact in facts for digest in further(fact)])
        self._blocks: array[int] | None = None
        if len(facts) > _BLOCK and self._more:
            counts = [
                sum(self._heads[at : at + _BLOCK].translate(MORE)) for at in range(0, len(facts), _BLOCK)
            ]
            self._blocks = array("L", [0])
            for count in counts[:-1]:
                self._blocks.append(self._blocks[-1] + count)

    def __len__(self) -> int:
        return len(self._heads)

    def __iter__(self) -> Iterator[ItemFacts]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, at: int) -> ItemFacts:
        head = self._heads[at]
        rest: list[bytes | None] = [None, None, None, None]
        if head > KIND:
            offset = self._offset(at)
            for column, flag in enumerate(FLAGS):
                if head & flag:
                    rest[column] = self._more[offset : offset + DIGEST_SIZE]
                    offset += DIGEST_SIZE
        return ItemFacts(_KINDS[head & KIND], self.core(at), *rest)

    def core(self, at: int) -> bytes:
        """The core of one item."""
        return self._cores[DIGEST_SIZE * at : DIGEST_SIZE * (at + 1)]

    def kind(self, at: int) -> Kind:
        """The kind of one item."""
        return _KINDS[self._heads[at] & KIND]

    def answers_to(self, at: int, client: ItemFacts, level: Level) -> bool:
        """Whether the client's item stands for the one held here; the same as ``equal``."""
        if self._cores[DIGEST_SIZE * at : DIGEST_SIZE * (at + 1)] != client.core:
            return False
        head = self._heads[at]
        if level is not Level.EXACT and not head & (_PHASE | _CONTENT):
            return head & KIND == client.kind and client.phase is None and client.content is None
        return equal(client, self[at], level)

    def first(self, count: int) -> PackedFacts:
        """The first ``count`` items."""
        return PackedFacts(self[at] for at in range(count))

    def _offset(self, at: int) -> int:
        if self._blocks is None:
            return DIGEST_SIZE * sum(self._heads[:at].translate(MORE))
        block = at // _BLOCK
        within = self._heads[block * _BLOCK : at].translate(MORE)
        return DIGEST_SIZE * (self._blocks[block] + sum(within))


def further(fact: ItemFacts) -> list[bytes]:
    """The digests that only some items have, in order."""
    return [each for each in (fact.phase, fact.identifier, fact.content, fact.rest) if each is not None]


def head_of(fact: ItemFacts) -> int:
    """The kind of an item, and which further digests it has, in one byte."""
    return (
        fact.kind
        | (fact.phase is not None and _PHASE)
        | (fact.identifier is not None and _IDENTIFIER)
        | (fact.content is not None and _CONTENT)
        | (fact.rest is not None and _REST)
    )
