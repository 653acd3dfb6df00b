"""Slices of JSON texts: where each member of an object and each element of an array stands, undecoded.

Bodies and events travel as the sender's own bytes. To leave out or replace one member, its place must be known; nothing
else is decoded or written again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_KEY = msgspec.json.Decoder(str)


class NotSliceable(ValueError):
    """The text is not JSON of the wanted kind, or an object with a duplicate key. Never quotes the text."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object: its decoded name and the raw bytes of its value."""

    name: str
    value: bytes


def split_object(text: bytes) -> tuple[Member, ...]:
    """The members of the JSON object ``text`` in order.

    Raises NotSliceable if it is not a JSON object, is nested too deeply, or has a duplicate top-level key. Strings inside the
    values are not validated beyond their borders.
    """
    try:
        decoded = _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise NotSliceable("not a JSON object") from None
    members = tuple(Member(name, bytes(value)) for name, value in decoded.items())
    if not _each_once(text, members):
        raise NotSliceable("duplicate key")
    return members


def split_array(text: bytes) -> tuple[bytes, ...]:
    """The raw elements of the JSON array ``text`` in order; raises NotSliceable if it is none."""
    try:
        return tuple(bytes(element) for element in _ARRAY.decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise NotSliceable("not a JSON array") from None


def join_object(members: tuple[Member, ...] | list[Member]) -> bytes:
    """A JSON object of the given members, their values byte for byte."""
    return b"{" + b",".join(msgspec.json.encode(m.name) + b":" + m.value for m in members) + b"}"


def _each_once(text: bytes, members: tuple[Member, ...]) -> bool:
    """Whether ``text`` holds exactly ``members``: a decoder that keeps the last of two equal keys would hide the first."""
    at = _skip(text, 0) + 1
    for member in members:
        at = _skip(text, at)
        key = _STRING.match(text, at)
        if key is None or _KEY.decode(key.group()) != member.name:
            return False
        at = _skip(text, _skip(text, key.end()) + 1)
        if not text.startswith(member.value, at):
            return False
        at = _skip(text, at + len(member.value))
        if text[at : at + 1] == b",":
            at += 1
    return text[at : at + 1] == b"}" and _skip(text, at + 1) == len(text)


def _skip(text: bytes, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
