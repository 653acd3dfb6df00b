"""What the shared index keeps, as bytes: written and read strictly, so that whatever is not exactly ours counts as not found. Pure.

A value is a version, a body and a tag over the name that it stands under and all of it. A record holds the facts of the items that
one response added; those of the responses that it stands on are in theirs, so that a conversation takes room with its items,
not with turns x history. Digests and ids, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hmac import compare_digest

import msgspec

from gateway.conversation.digests import DIGEST_SIZE
from gateway.conversation.fields import FieldFacts
from gateway.conversation.items import ItemFacts, Kind
from gateway.conversation.packed import FLAGS, KIND, MORE, further, head_of
from gateway.index.names import NAME_SIZE, Deployment

VERSION = b"\x01"
LARGEST = 4 * 1024 * 1024
"""Bytes of the largest value that is written or read."""
_LABEL = 8
"""Bytes that stand for the name of a request's field."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Names the record of a response."""

    name: bytes


@dataclass(frozen=True, slots=True)
class Gone:
    """The response was deleted: nothing that was chained through it may be continued."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """An entry of the log: whose response was deleted, and its id."""

    identity: bytes
    response_id: str


@dataclass(frozen=True, slots=True)
class Record:
    """One stored response.

    ``before`` names the records of the responses that it was chained through, newest first. The facts of its items are those of the
    first ``needs`` of them, and behind these its own ``facts``, of which the first ``asked`` were not made by this response.
    ``labels`` stand for the names of its request's fields.
    """

    response_id: str
    facts: tuple[ItemFacts, ...]
    asked: int
    before: tuple[bytes, ...]
    needs: int
    labels: frozenset[bytes]
    binding: bytes
    every: bytes
    truncates: bool


class _Packed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    response_id: str
    heads: bytes
    digests: bytes
    asked: int
    before: bytes
    needs: int
    labels: bytes
    binding: bytes
    every: bytes
    truncates: bool


_DECODER = msgspec.msgpack.Decoder(_Packed)
_DELETED = msgspec.msgpack.Decoder(tuple[bytes, str])
_POINTER, _GONE, _RECORD, _ENTRY = b"p", b"g", b"r", b"d"


def label(deployment: Deployment, name: str) -> bytes:
    """What stands for the name of a field, which a client may have made up."""
    return deployment.tag(b"field", name.encode("utf-8", "surrogatepass"))[:_LABEL]


def write(deployment: Deployment, name: bytes, value: Pointer | Gone | Deleted | Record) -> bytes | None:
    """The bytes to keep under ``name``; None for what is too large to be kept."""
    match value:
        case Pointer(target):
            body = _POINTER + target
        case Gone():
            body = _GONE
        case Deleted():
            body = _ENTRY + msgspec.msgpack.encode((value.identity, value.response_id))
        case Record():
            body = _RECORD + msgspec.msgpack.encode(_packed(value))
    whole = VERSION + body
    return whole + deployment.tag(name, whole) if len(whole) < LARGEST else None


def read(deployment: Deployment, name: bytes, raw: bytes | None) -> Pointer | Gone | Deleted | Record | None:
    """What was kept under ``name``; None for all that no gateway of this deployment wrote there in this form."""
    if raw is None or not NAME_SIZE + 2 <= len(raw) <= LARGEST + NAME_SIZE or raw[:1] != VERSION:
        return None
    whole, tag = raw[:-NAME_SIZE], raw[-NAME_SIZE:]
    if not compare_digest(deployment.tag(name, whole), tag):
        return None
    kind, body = whole[1:2], whole[2:]
    if kind == _POINTER and len(body) == NAME_SIZE:
        return Pointer(body)
    if kind == _GONE and not body:
        return Gone()
    try:
        if kind == _RECORD:
            return _unpacked(_DECODER.decode(body))
        if kind == _ENTRY:
            return Deleted(*_DELETED.decode(body))
    except (msgspec.MsgspecError, ValueError):
        return None
    return None


def field_facts(deployment: Deployment, record: Record, names: Iterable[str]) -> FieldFacts:
    """The facts of the fields of a response's request. Names are known by those of the request at hand; others match nothing."""
    known = {label(deployment, name): name for name in names}
    return FieldFacts(
        frozenset(known.get(each, "?" + each.hex()) for each in record.labels),
        record.binding,
        record.every,
        record.truncates,
    )


def _packed(record: Record) -> _Packed:
    return _Packed(
        response_id=record.response_id,
        heads=bytes(map(head_of, record.facts)),
        digests=b"".join(digest for fact in record.facts for digest in (fact.core, *further(fact))),
        asked=record.asked,
        before=b"".join(record.before),
        needs=record.needs,
        labels=b"".join(sorted(record.labels)),
        binding=record.binding,
        every=record.every,
        truncates=record.truncates,
    )


def _unpacked(packed: _Packed) -> Record:
    """Raises ValueError for what cannot have been written by ``_packed``."""
    before = _cut(packed.before, NAME_SIZE)
    if not 0 <= packed.needs <= len(before) or not 0 <= packed.asked <= len(packed.heads):
        raise ValueError("counts")
    if len(packed.binding) != DIGEST_SIZE or len(packed.every) != DIGEST_SIZE:
        raise ValueError("digests")
    return Record(
        response_id=packed.response_id,
        facts=_facts(packed.heads, packed.digests),
        asked=packed.asked,
        before=before,
        needs=packed.needs,
        labels=frozenset(_cut(packed.labels, _LABEL)),
        binding=packed.binding,
        every=packed.every,
        truncates=packed.truncates,
    )


def _facts(heads: bytes, digests: bytes) -> tuple[ItemFacts, ...]:
    cut = _cut(digests, DIGEST_SIZE)
    if len(cut) != len(heads) + sum(heads.translate(MORE)):
        raise ValueError("digests")
    left = iter(cut)
    found: list[ItemFacts] = []
    for head in heads:
        core = next(left)
        rest = [next(left) if head & flag else None for flag in FLAGS]
        found.append(ItemFacts(Kind(head & KIND), core, *rest))
    return tuple(found)


def _cut(joined: bytes, size: int) -> tuple[bytes, ...]:
    if len(joined) % size:
        raise ValueError("length")
    return tuple(joined[at : at + size] for at in range(0, len(joined), size))


def joined(record: Record, before: Sequence[object]) -> Record | None:
    """The record with all facts of its items, given what was found under the names in ``before``; None if that does not fit.

    A deleted response among them ends it. Those that are needed must be there, each made on the one behind it.
    """
    if any(isinstance(each, Gone) for each in before):
        return None
    facts = list(record.facts)
    for at in range(record.needs):
        each = before[at]
        if (
            not isinstance(each, Record)
            or each.needs != record.needs - 1 - at
            or each.before != record.before[at + 1 :]
        ):
            return None
        facts[:0] = each.facts
    return replace(record, facts=tuple(facts), asked=len(facts) - len(record.facts) + record.asked)
