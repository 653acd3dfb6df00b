"""Slices of JSON texts: where each member of an object and each element of an array stands, undecoded.

Bodies and events travel as the sender's own bytes. To leave out or replace one member, its place must be known; nothing
else is decoded or written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_KEY = msgspec.json.Decoder(str)
_LENIENT = json.JSONDecoder()
_MOST_MEMBERS = 4096
"""Members of a body that are looked at one by one; the API knows about fifty."""


class NotSliceable(ValueError):
    """The text is not JSON of the wanted kind, or an object with a duplicate key. Never quotes the text."""


class Member(msgspec.Struct, frozen=True):
    """One member of an object: its decoded name and the raw bytes of its value."""

    name: str
    value: bytes | memoryview


def split_object(text: bytes) -> tuple[Member, ...]:
    """The members of the JSON object ``text`` in order.

    Raises NotSliceable if it is not a JSON object, is nested too deeply, or has a duplicate top-level key. Strings inside the
    values are not validated beyond their borders.
    """
    return _split(text)[0]


def split_around(text: bytes, name: str, start: int) -> tuple[Member, ...]:
    """Like ``split_object``, and raises NotSliceable as well unless the value of member ``name`` begins at ``start``."""
    members, starts = _split(text)
    if not any(member.name == name and at == start for member, at in zip(members, starts, strict=True)):
        raise NotSliceable("the member is elsewhere")
    return members


def _split(text: bytes) -> tuple[tuple[Member, ...], list[int]]:
    try:
        decoded = _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise NotSliceable("not a JSON object") from None
    if len(decoded) > _MOST_MEMBERS:
        raise NotSliceable("too many members")
    raws = {name: bytes(raw) for name, raw in decoded.items()}
    found = _walk(text, raws)
    if found is None:
        raise NotSliceable("duplicate key")
    return tuple(map(Member, raws, raws.values())), [place.start for place in found.values()]


def split_array(text: bytes) -> tuple[bytes, ...]:
    """The raw elements of the JSON array ``text`` in order; raises NotSliceable if it is none."""
    try:
        return tuple(bytes(element) for element in _ARRAY.decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise NotSliceable("not a JSON array") from None


def join_object(members: tuple[Member, ...] | list[Member]) -> bytes:
    """A JSON object of the given members, their values byte for byte."""
    return b"{" + b",".join(msgspec.json.encode(m.name) + b":" + m.value for m in members) + b"}"


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where one member of an object stands in its text: ``text[key:start]`` is key and colon, ``text[start:end]`` the value."""

    key: int
    start: int
    end: int


def places(text: bytes) -> dict[str, Place]:
    """The place of every member of the JSON object ``text``, in order, so that a part can be replaced and the rest kept.

    Unlike ``split_object`` it also takes what lenient writers send inside a value: lone surrogate escapes (half an emoji in
    a delta) and NaN. Raises NotSliceable if the text is not a JSON object, is nested too deeply, or has a duplicate key.
    """
    try:
        members = _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _lenient_places(text)
    except RecursionError:
        raise NotSliceable("nested too deeply") from None
    raws = {name: bytes(raw) for name, raw in members.items()}
    found = _walk(text, raws)
    if found is None:
        raise NotSliceable("duplicate key")
    return found


def _walk(text: bytes, members: dict[str, bytes]) -> dict[str, Place] | None:
    """The place of each member; None unless ``text`` holds exactly ``members``.

    A decoder that keeps the last of two equal keys would hide the first.
    """
    found: dict[str, Place] = {}
    at = _skip(text, 0) + 1
    for name, value in members.items():
        key, usual = at, _usual_key(name)
        start = key + len(usual)
        if not text.startswith(usual, key) or not text.startswith(value, start):
            key = _skip(text, at)
            quoted = _STRING.match(text, key)
            if quoted is None or _name(quoted.group()) != name:
                return None
            start = _skip(text, _skip(text, quoted.end()) + 1)
            if not text.startswith(value, start):
                return None
        at = start + len(value)
        found[name] = Place(key, start, at)
        if not text.startswith(b",", at):
            at = _skip(text, at)
        if text.startswith(b",", at):
            at += 1
    at = _skip(text, at)
    return found if text.startswith(b"}", at) and _skip(text, at + 1) == len(text) else None


@lru_cache(1024)
def _usual_key(name: str) -> bytes:
    """How nearly everybody writes the key and its colon."""
    return msgspec.json.encode(name) + b":"


def _lenient_places(text: bytes) -> dict[str, Place]:
    # One character per byte keeps offsets equal; no byte of a longer UTF-8 sequence can look like JSON's own signs.
    chars = text.decode("latin-1")
    found: dict[str, Place] = {}
    try:
        at = _expect(text, _skip(text, 0), b"{")
        while text[at : at + 1] != b"}":
            if found:
                at = _expect(text, at, b",")
            key = at
            if text[at : at + 1] != b'"':
                raise NotSliceable("not a JSON object")
            at = _LENIENT.raw_decode(chars, key)[1]
            name = json.loads(text[key:at])
            if name in found:
                raise NotSliceable("duplicate key")
            start = _expect(text, _skip(text, at), b":")
            end = _LENIENT.raw_decode(chars, start)[1]
            found[name] = Place(key, start, end)
            at = _skip(text, end)
        if _skip(text, at + 1) != len(text):
            raise NotSliceable("not a JSON object")
    except (ValueError, RecursionError):
        raise NotSliceable("not a JSON object") from None
    return found


def splice(text: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """``text`` with each ``text[start:end]`` replaced by the given bytes; the rest is kept byte for byte.

    The edits must not overlap; their order does not matter.
    """
    parts: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        parts += (text[at:start], new)
        at = end
    parts.append(text[at:])
    return b"".join(parts)


def removal(found: dict[str, Place], name: str) -> tuple[int, int, bytes]:
    """The edit that takes the member ``name`` out of the object whose places are ``found``, with one comma."""
    names = list(found)
    at = names.index(name)
    if at + 1 < len(names):
        return found[name].key, found[names[at + 1]].key, b""
    before = found[names[at - 1]].end if at else found[name].key
    return before, found[name].end, b""


def addition(text: bytes, found: dict[str, Place], name: str, value: bytes) -> tuple[int, int, bytes]:
    """The edit that adds a member behind the last one of the object ``text`` whose places are ``found``."""
    at = text.rindex(b"}")
    comma = b"," if found else b""
    return at, at, comma + msgspec.json.encode(name) + b":" + value


def _name(quoted: bytes) -> str | None:
    try:
        return _KEY.decode(quoted)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _expect(text: bytes, at: int, sign: bytes) -> int:
    if text[at : at + 1] != sign:
        raise NotSliceable("not a JSON object")
    return _skip(text, at + 1)


def _skip(text: bytes, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
