"""All conversations that may be continued, bounded by count, items and age; the least recently used go first.

Everything is kept per identity: a walk never leaves the tree of its own identity, and a response id of another one is unknown.
Only digests and ids are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import xxhash

from gateway.conversation.beginnings import Beginnings, Scan
from gateway.conversation.fields import FieldFacts
from gateway.conversation.items import ItemFacts, Kind, Level
from gateway.conversation.plan import Plan, Rules, plan
from gateway.conversation.request import Request, Spelling
from gateway.conversation.transcripts import Lineage, Transcript, Walk
from gateway.conversation.tree import Tree

_MOST_FIELDS = 256
_ITEM_BYTES = 24
_TRANSCRIPT_BYTES = 1250


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How much is kept: responses, items of all of them together, and seconds since the last use."""

    responses: int
    items: int
    age: float


@dataclass(slots=True)
class _Realm:
    """What is known of one identity."""

    tree: Tree = field(default_factory=Tree)
    by_response: dict[str, Transcript] = field(default_factory=dict)
    beginnings: Beginnings = field(default_factory=Beginnings)
    fields: dict[FieldFacts, FieldFacts] = field(default_factory=dict)

    def shared(self, facts: FieldFacts) -> FieldFacts:
        """Equal facts that are kept already, in place of these: most requests of one identity have the same fields."""
        if len(self.fields) >= _MOST_FIELDS:
            self.fields.clear()
        return self.fields.setdefault(facts, facts)


class Store:
    """Transcripts of all identities. Times are seconds of one monotonic clock, given by the caller."""

    def __init__(self, limits: StoreLimits) -> None:
        self._limits = limits
        self._realms: dict[bytes, _Realm] = {}
        self._by_use: OrderedDict[tuple[bytes, str], Transcript] = OrderedDict()
        self._items = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._by_use)

    @property
    def items(self) -> int:
        """Items kept, each shared one counted once."""
        return self._items

    def scan(self, identity: bytes, hasher: xxhash.xxh3_128) -> Scan | None:
        """A look for a known beginning of raw items of this identity, digested by ``hasher`` (fresh); None if nothing is known."""
        realm = self._realms.get(identity)
        return realm.beginnings.scan(hasher) if realm is not None else None

    @property
    def size(self) -> int:
        """About how many bytes of memory all of it takes, from what items and transcripts were measured to take."""
        return self._items * _ITEM_BYTES + len(self._by_use) * _TRANSCRIPT_BYTES

    def plan(self, identity: bytes, request: Request, rules: Rules) -> Plan:
        """What ``request`` may continue among the transcripts of its identity."""
        realm = self._realms.get(identity)
        if realm is None:
            return plan(request, lambda _: Walk((), met_answer=False), rules)
        walk = partial(realm.tree.walk, request.facts, references=request.store, after=request.after)
        return plan(request, walk, rules)

    def get(self, identity: bytes, response_id: str) -> Transcript | None:
        """The transcript of a response of this identity."""
        realm = self._realms.get(identity)
        return realm.by_response.get(response_id) if realm else None

    def add(
        self,
        identity: bytes,
        *,
        response_id: str,
        base: Transcript | None,
        sent: Sequence[ItemFacts],
        answered: Sequence[ItemFacts],
        fields: FieldFacts,
        stored: bool,
        now: float,
        spelling: Spelling | None = None,
        level: Level = Level.EQUIVALENT,
    ) -> Transcript | None:
        """Record a completed response: the upstream now holds ``base``'s items, ``sent`` and ``answered``.

        Gives None, and records nothing, when ``base`` was dropped while the response was made: what the upstream holds is then
        no longer known. With ``spelling`` a request that extends this one is recognised; ``level`` is the one at which the items
        of this one were found to stand for what is held.
        """
        if base is not None and self.get(identity, base.response_id) is not base:
            return None
        if base is None or base.response_id != response_id:
            self.forget(identity, response_id)
        realm = self._realms.setdefault(identity, _Realm())
        before = realm.tree.items
        transcript = realm.tree.add(
            base,
            [_without_identifier(fact) for fact in sent],
            answered if stored else [_without_identifier(fact) for fact in answered],
            response_id=response_id,
            fields=realm.shared(fields),
            stored=stored,
            chained=base,
            now=now,
        )
        self._items += realm.tree.items - before
        realm.by_response[response_id] = transcript
        if spelling is not None:
            realm.beginnings.add(spelling, transcript, level)
        self._by_use[identity, response_id] = transcript
        self._shrink(now)
        return transcript

    def take_in(
        self,
        identity: bytes,
        *,
        response_id: str,
        sent: Sequence[ItemFacts],
        answered: Sequence[ItemFacts],
        fields: FieldFacts,
        lineage: Lineage,
        now: float,
    ) -> None:
        """Record a stored response that another gateway made: the upstream holds ``sent`` and ``answered``.

        What is known of a response already stays as it is.
        """
        if self.get(identity, response_id) is not None:
            return
        transcript = self.add(
            identity,
            response_id=response_id,
            base=None,
            sent=sent,
            answered=answered,
            fields=fields,
            stored=True,
            now=now,
        )
        if transcript is not None:
            transcript.lineage = lineage

    def touch(self, identity: bytes, transcript: Transcript, now: float) -> None:
        """Note that a transcript was continued."""
        transcript.used = now
        if (identity, transcript.response_id) in self._by_use:
            self._by_use.move_to_end((identity, transcript.response_id))

    def forget(self, identity: bytes, response_id: str) -> None:
        """Drop one response; those chained through it stay."""
        if (transcript := self._by_use.pop((identity, response_id), None)) is None:
            return
        realm = self._realms[identity]
        before = realm.tree.items
        realm.tree.remove(transcript)
        self._items += realm.tree.items - before
        del realm.by_response[response_id]
        realm.beginnings.forget(response_id)
        if not realm.by_response:
            del self._realms[identity]

    def outgrown(self, identity: bytes, response_id: str) -> None:
        """A longer request of the same conversation is recognised instead of this one's."""
        if (realm := self._realms.get(identity)) is not None:
            realm.beginnings.forget(response_id)

    def delete(self, identity: bytes, response_id: str) -> None:
        """The client deleted a response upstream: drop it and every transcript that is chained through it."""
        realm = self._realms.get(identity)
        if realm is None:
            return
        for transcript in tuple(realm.by_response.values()):
            link: Lineage | None = transcript.lineage
            while link is not None and link.response_id != response_id:
                link = link.before
            if link is not None:
                self.forget(identity, transcript.response_id)

    def forget_stored(self) -> None:
        """Drop all that the API stores: some of it may have been deleted there, and nobody knows what."""
        for (identity, response_id), transcript in tuple(self._by_use.items()):
            if transcript.stored:
                self.forget(identity, response_id)

    def reconfigure(self, limits: StoreLimits, now: float) -> None:
        """Other bounds from now on; what is beyond them goes at once."""
        self._limits = limits
        self._shrink(now)

    def expire(self, now: float) -> None:
        """Drop what was not used for the longest time allowed."""
        while self._by_use:
            (identity, response_id), transcript = next(iter(self._by_use.items()))
            if now - transcript.used <= self._limits.age:
                return
            self._evict(identity, response_id)

    def _shrink(self, now: float) -> None:
        self.expire(now)
        while len(self._by_use) > self._limits.responses or (
            self._items > self._limits.items and len(self._by_use) > 1
        ):
            identity, response_id = next(iter(self._by_use))
            self._evict(identity, response_id)

    def _evict(self, identity: bytes, response_id: str) -> None:
        self.evicted += 1
        self.forget(identity, response_id)


def _without_identifier(fact: ItemFacts) -> ItemFacts:
    """Only ids that the API gave to a stored item can be referred to; others would tell equal histories apart."""
    if fact.identifier is None or fact.kind is Kind.REFERENCE:
        return fact
    return replace(fact, identifier=None)
