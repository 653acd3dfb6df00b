"""Under which names the shared index keeps things, and where a request may find its own. Pure.

A response is kept under its id. A pointer to it stands where its items end: under a chained digest of what every level of equality
compares, so one request can ask for all its possible parents at once. That digest only finds candidates; what it finds is
verified item by item like any conversation of this process. A second kind of pointer goes by the id that the API gave to an
item, for clients that send references in place of items.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from gateway.conversation.items import ItemFacts, Kind
from gateway.conversation.transcripts import SKIPPABLE

NAME_SIZE = 16
START = bytes(NAME_SIZE)
"""The chained digest of no items."""
MOST_POSITIONS = 256
"""Places in one request at which a parent's end is looked for, the last ones first."""
MOST_ITEMS = 8
"""Ids of items that are looked for in a request with references."""
LONGEST_SECRET = 16 * 1024


class Deployment:
    """Keys that all gateways of one deployment share, and nobody else.

    ``secret`` is theirs. ``differences`` is whatever makes their digests incomparable although they share it, such as another version
    that reads items otherwise.
    """

    def __init__(self, secret: bytes, *differences: str) -> None:
        root = blake2b(secret, digest_size=64).digest()
        state = blake2b(key=root, digest_size=64)
        _feed(state, differences)
        self._root = state.digest()
        self._names = self.key(b"names")
        self._tags = self.key(b"tags")

    def key(self, purpose: bytes) -> bytes:
        """A key of 32 bytes for one purpose."""
        return blake2b(purpose, key=self._root, digest_size=32).digest()

    def go_by(self, rules: Iterable[str]) -> None:
        """Only gateways with the same ``rules`` about who is who find each other's things from now on."""
        state = blake2b(key=self.key(b"names"), digest_size=32)
        _feed(state, sorted(rules))
        self._names = state.digest()

    def tag(self, name: bytes, value: bytes) -> bytes:
        """What proves that a gateway of this deployment wrote ``value`` under ``name``."""
        return blake2b(name + value, key=self._tags, digest_size=NAME_SIZE).digest()

    def response(self, identity: bytes, response_id: str) -> bytes:
        """Where the record of a response is."""
        return self._name(b"response", identity, response_id.encode("utf-8", "surrogatepass"))

    def position(self, identity: bytes, chain: bytes) -> bytes:
        """Where the pointer to a response is whose items end with this chained digest."""
        return self._name(b"position", identity, chain)

    def item(self, identity: bytes, identifier: bytes) -> bytes:
        """Where the pointer to the response is that made the item with this id."""
        return self._name(b"item", identity, identifier)

    def deletions(self) -> bytes:
        """Where the log of what was deleted is."""
        return self._name(b"deletions", b"", b"")

    def candidates(self, identity: bytes, facts: Sequence[ItemFacts]) -> list[bytes]:
        """Where pointers to the parents of a request with these items may be, the one that leaves least to send first."""
        by_position = [self.position(identity, chain) for chain in ends(facts)]
        return [*by_position, *(self.item(identity, identifier) for identifier in referred(facts))]

    def _name(self, kind: bytes, identity: bytes, what: bytes) -> bytes:
        return blake2b(identity + what, key=self._names, digest_size=NAME_SIZE, person=kind).digest()


def _feed(state: blake2b, texts: Iterable[str]) -> None:
    """Each with its length before it, so that borders count."""
    for each in texts:
        text = each.encode("utf-8", "surrogatepass")
        state.update(len(text).to_bytes(8, "big") + text)


def extended(chain: bytes, facts: Iterable[ItemFacts]) -> bytes:
    """The chained digest behind ``facts``; items that a client may leave out or put in do not count."""
    for fact in facts:
        if fact.kind not in SKIPPABLE:
            chain = _behind(chain, fact)
    return chain


def _behind(chain: bytes, fact: ItemFacts) -> bytes:
    return blake2b(chain + fact.core, digest_size=NAME_SIZE).digest()


def ends(facts: Sequence[ItemFacts]) -> list[bytes]:
    """The chained digests at which a parent of such a request may end, the longest first: before its last item at most."""
    found: list[bytes] = []
    chain = START
    for fact in facts[:-1]:
        if fact.kind not in SKIPPABLE:
            chain = _behind(chain, fact)
            found.append(chain)
    return found[: -MOST_POSITIONS - 1 : -1]


def referred(facts: Sequence[ItemFacts]) -> list[bytes]:
    """The ids of a request's last items, the last first, if references stand among them; else none are needed."""
    if not any(fact.kind is Kind.REFERENCE for fact in facts):
        return []
    found = [fact.identifier for fact in reversed(facts) if fact.identifier is not None]
    return list(dict.fromkeys(found))[:MOST_ITEMS]
