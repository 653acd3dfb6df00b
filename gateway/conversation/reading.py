"""Reading a body in as little time as its familiarity allows.

Three tiers, each falling to the next. (1) The items that an earlier request of the same conversation began with are recognised by
one digest of their raw bytes, and are not decoded at all: only what follows is. (2) Items are sliced out undecoded, and a
digest of each slice finds the facts of items that were seen in that spelling. (3) An item never seen so is decoded and put into
its canonical form. What tiers 1 and 2 take for granted was read strictly when it was first seen.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gateway.conversation.arriving import NAME, OPENINGS, Body
from gateway.conversation.digests import Digester
from gateway.conversation.familiar import Familiar
from gateway.conversation.fields import FieldReader
from gateway.conversation.items import ItemFacts, Unreadable
from gateway.conversation.request import NotUpgradable, Request, Spelling, refusal_of, text_of
from gateway.conversation.transcripts import Known
from gateway.protocol.raw import Member, NotSliceable, split_around, split_array, split_object

_BORDERS = (b'},{"', b'}, {"')
"""How one of the input's items ends and the next begins, in the spelling of each of ``OPENINGS``."""


_MOST_NEW = 50_000
"""Items of one request that are read for the first time; more would hold up everybody else, and go over plain HTTP."""


class Reader:
    """Reads bodies, and remembers the facts of items by the digest of their raw bytes."""

    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self._familiar = Familiar(digester)
        self._fields = FieldReader(digester)

    def read(self, body: Body | bytes, *, bounded: bool = True) -> Request | NotUpgradable:
        """Read a decoded request body. Never fails: what cannot be read strictly goes over plain HTTP, byte for byte.

        Of one with a known beginning the request holds only the items behind it (see ``Request.after``); a body given as
        bytes is read in full. Not ``bounded``, it is read however many new items it has: for a body that was taken already.
        """
        most = _MOST_NEW if bounded else sys.maxsize
        try:
            if isinstance(body, Body):
                found = body.known()
                if found is not None and (recognised := self._tail(body, *found, most)) is not None:
                    return recognised
                body = body.whole()
            start, border = _input_start(body)
            if start is not None and (sliced := self._sliced(body, start, border, most)) is not None:
                return sliced
            return self._plainly(body, most)
        except (UnicodeDecodeError, NotSliceable, Unreadable):
            return NotUpgradable("body")

    def facts(self, item: bytes | memoryview) -> ItemFacts:
        """The facts of an item that was sliced out of a larger JSON text; raises Unreadable for what is not UTF-8."""
        return self._familiar.facts(item)

    def _tail(self, body: Body, start: int, known: Known, most: int) -> Request | None:
        """Tier 1: what a shortened body says, with the known items and the comma behind them cut out."""
        short = body.without(start + 1, start + 2 + known.length)
        try:
            members = split_around(short, "input", start)
        except NotSliceable:
            # The bytes that looked like the input stand elsewhere in the body.
            return None
        text = bytes(next(member.value for member in members if member.name == "input"))
        _check_around(short, start, len(text))
        items = split_array(text)
        length = known.length + 1 + len(text) - 2
        known.hasher.update(b",")
        known.hasher.update(text[1:-1])
        spelling = Spelling(length, known.hasher.digest(), known.items + len(items))
        request = self._request(members, items, most, spelling=spelling, after=known)
        return request if isinstance(request, Request) and items else None

    def _sliced(self, body: bytes, start: int, border: bytes, most: int) -> Request | NotUpgradable | None:
        """Tier 2: what a shortened body says, with the familiar items cut out that the input begins with."""
        known = self._familiar.run(body, start + 1, border)
        short = body[: start + 1] + body[known.at :]
        try:
            members = split_around(short, "input", start)
        except NotSliceable:
            return None
        tail = bytes(next(member.value for member in members if member.name == "input"))
        _check_around(short, start, len(tail))
        others = split_array(tail)
        if len(others) > most:
            return NotUpgradable("items")
        end = known.at + len(tail) - 2
        text = memoryview(body)
        whole = [Member("input", text[start : end + 1]) if m.name == "input" else m for m in members]
        spelling = Spelling(
            end - start - 1, self._digester.raw(text[start + 1 : end]), len(known.items) + len(others)
        )
        facts = (*known.facts, *map(self.facts, others))
        return self._request(whole, (*known.items, *others), most, spelling=spelling, facts=facts)

    def _plainly(self, body: bytes, most: int) -> Request | NotUpgradable:
        """Any spelling at all: a string as input, odd spacing, members in odd places."""
        body.decode()
        members = split_object(body)
        source = next((member.value for member in members if member.name == "input"), b"")
        return self._request(members, items_of(bytes(source)), most)

    def _request(
        self,
        members: Sequence[Member],
        items: Sequence[bytes | memoryview],
        most: int,
        *,
        spelling: Spelling | None = None,
        after: Known | None = None,
        facts: Sequence[ItemFacts] | None = None,
    ) -> Request | NotUpgradable:
        values = {member.name: member.value for member in members}
        model = text_of(values.get("model")) or ""
        stream = values.get("stream") == b"true"
        if (refused := refusal_of(values)) is not None:
            return NotUpgradable(refused, stream, model)
        if facts is None and len(items) > most:
            return NotUpgradable("items", stream, model)
        return Request(
            members=tuple(members),
            items=tuple(items),
            facts=tuple(map(self.facts, items) if facts is None else facts),
            fields=self._fields.facts(members),
            model=model,
            stream=stream,
            store=values.get("store") != b"false",
            client_parent=text_of(values.get("previous_response_id")),
            spelling=spelling,
            after=after,
        )


def _check_around(text: bytes, start: int, length: int) -> None:
    """See that all but the input is UTF-8, which is seen to for each of its items; raises UnicodeDecodeError."""
    text[:start].decode()
    text[start + length :].decode()


def items_of(source: bytes) -> tuple[bytes, ...]:
    """The items of an ``input`` in any spelling; a string is one message of the user, as the API takes it. Raises NotSliceable."""
    if source[:1] == b'"':
        return (b'{"type":"message","role":"user","content":' + source + b"}",)
    return split_array(source) if source[:1] == b"[" else ()


def _input_start(body: bytes) -> tuple[int | None, bytes]:
    """Where the bracket stands that opens the input, as far as the usual spellings tell, and the border of items in that spelling.

    To be checked by who uses it.
    """
    behind = body.find(NAME) + len(NAME)
    for opening, border in zip(OPENINGS, _BORDERS, strict=True):
        if behind >= len(NAME) and body.startswith(opening, behind):
            return behind + len(opening) - 1, border
    return None, b""


def read_request(body: bytes, digester: Digester) -> Request | NotUpgradable:
    """Read one body by a reader that remembers nothing."""
    return Reader(digester).read(body)
