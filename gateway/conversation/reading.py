"""Reading a body in as little time as its familiarity allows.

Three tiers, each falling to the next. (1) The items that an earlier request of the same conversation began with are recognised by
one digest of their raw bytes, and are not decoded at all: only what follows is. (2) Items are sliced out undecoded, and a
digest of each slice finds the facts of items that were seen in that spelling. (3) An item never seen so is decoded and put into
its canonical form. What tiers 1 and 2 take for granted was read strictly when it was first seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gateway.conversation.digests import Digester
from gateway.conversation.fields import field_facts
from gateway.conversation.items import ItemFacts, Unreadable, facts_of
from gateway.conversation.request import NotUpgradable, Request, Spelling, refusal_of, text_of
from gateway.conversation.transcripts import Known
from gateway.protocol.raw import Member, NotSliceable, split_around, split_array, split_object

_INPUTS = (b'"input":[', b'"input": [')
_SEPARATORS = (b",", b", ")
_MOST_REMEMBERED = 32_768
"""Spellings of items whose facts are kept, twice at most."""

Lookup = Callable[[memoryview], Known | None]


class _Sliced(msgspec.Struct):
    input: list[msgspec.Raw]


_SLICED = msgspec.json.Decoder(_Sliced)


class Reader:
    """Reads bodies, and remembers the facts of items by the digest of their raw bytes."""

    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self._young: dict[bytes, ItemFacts] = {}
        self._old: dict[bytes, ItemFacts] = {}

    def read(self, body: bytes, lookup: Lookup | None = None) -> Request | NotUpgradable:
        """Read a decoded request body. Never fails: what cannot be read strictly goes over plain HTTP, byte for byte.

        ``lookup`` is given the text behind the bracket that opens the input, and finds what is known of its beginning; the
        request then holds only the items behind it (see ``Request.after``).
        """
        start = _input_start(body)
        try:
            if start is not None:
                known = lookup(memoryview(body)[start + 1 :]) if lookup is not None else None
                if known is not None and (recognised := self._tail(body, start, known)) is not None:
                    return recognised
                if (sliced := self._slices(body, start)) is not None:
                    return sliced
            return self._plainly(body)
        except (UnicodeDecodeError, NotSliceable, Unreadable):
            return NotUpgradable("body")

    def facts(self, item: bytes | msgspec.Raw) -> ItemFacts:
        """The facts of an item; raises Unreadable for what is not strict JSON in UTF-8."""
        digest = self._digester.raw(item)
        facts = self._young.get(digest)
        if facts is None:
            facts = self._old.get(digest) or facts_of(bytes(item), self._digester)
            if len(self._young) >= _MOST_REMEMBERED:
                self._old, self._young = self._young, {}
            self._young[digest] = facts
        return facts

    def _tail(self, body: bytes, start: int, known: Known) -> Request | None:
        """Tier 1: what a shortened body says, with the known items and the comma behind them cut out."""
        short = body[: start + 1] + body[start + 2 + known.length :]
        try:
            members = split_around(short, "input", start)
        except NotSliceable:
            # The bytes that looked like the input stand elsewhere in the body.
            return None
        short.decode()
        text = bytes(next(member.value for member in members if member.name == "input"))
        items = split_array(text)
        length = known.length + 1 + len(text) - 2
        known.hasher.update(memoryview(body)[start + 1 + known.length : start + 1 + length])
        spelling = Spelling(length, known.hasher.digest(), known.items + len(items))
        request = self._request(members, items, spelling, known)
        return request if isinstance(request, Request) and items else None

    def _slices(self, body: bytes, start: int) -> Request | NotUpgradable | None:
        """Tier 2: the input's elements as slices, and the rest of the body without them."""
        try:
            items = _SLICED.decode(body).input
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        size = sum(map(len, items))
        for separator in _SEPARATORS:
            end = start + 1 + size + len(separator) * max(0, len(items) - 1)
            if body[end : end + 1] == b"]" and separator.join(items) == body[start + 1 : end]:
                break
        else:
            return None
        short = body[: start + 1] + body[end:]
        try:
            members = split_around(short, "input", start)
        except NotSliceable:
            return None
        short.decode()
        text = memoryview(body)
        whole = [Member("input", text[start : end + 1]) if m.name == "input" else m for m in members]
        spelling = Spelling(end - start - 1, self._digester.raw(text[start + 1 : end]), len(items))
        return self._request(whole, items, spelling)

    def _plainly(self, body: bytes) -> Request | NotUpgradable:
        """Any spelling at all: a string as input, odd spacing, members in odd places."""
        body.decode()
        members = split_object(body)
        source = next((member.value for member in members if member.name == "input"), b"")
        if source[:1] == b'"':
            return self._request(members, [b'{"type":"message","role":"user","content":' + source + b"}"])
        return self._request(members, split_array(bytes(source)) if source[:1] == b"[" else ())

    def _request(
        self,
        members: Sequence[Member],
        items: Sequence[bytes | msgspec.Raw],
        spelling: Spelling | None = None,
        after: Known | None = None,
    ) -> Request | NotUpgradable:
        values = {member.name: member.value for member in members}
        model = text_of(values.get("model")) or ""
        stream = values.get("stream") == b"true"
        if (refused := refusal_of(values)) is not None:
            return NotUpgradable(refused, stream, model)
        return Request(
            members=tuple(members),
            items=tuple(items),
            facts=tuple(map(self.facts, items)),
            fields=field_facts(members, self._digester),
            model=model,
            stream=stream,
            store=values.get("store") != b"false",
            client_parent=text_of(values.get("previous_response_id")),
            spelling=spelling,
            after=after,
        )


def _input_start(body: bytes) -> int | None:
    """Where the bracket stands that opens the input, as far as the usual spellings tell; to be checked by who uses it."""
    for name in _INPUTS:
        if (found := body.find(name)) >= 0:
            return found + len(name) - 1
    return None


def read_request(body: bytes, digester: Digester) -> Request | NotUpgradable:
    """Read one body by a reader that remembers nothing."""
    return Reader(digester).read(body)
