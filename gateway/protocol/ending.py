"""How a response ended, and the edits of its response object: parent given back, output filled, turned into a failed one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from gateway.protocol.events import open_json
from gateway.protocol.raw import NotSliceable, Place, addition, places, splice, split_array
from gateway.protocol.refusals import Refusal

EndingKind = Literal["completed", "incomplete", "failed", "error"]

_BY_STATUS: dict[str | None, EndingKind] = {
    "completed": "completed",
    "incomplete": "incomplete",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a response ended. All JSON is raw.

    ``response`` is the final object, its output filled and the parent given back; ``items`` its output. ``contradicts`` tells
    that the terminal event does not agree with itself or with what was streamed, so that nobody knows what the upstream
    holds: such a response must not become a parent. ``refusal`` is what plain HTTP would have answered, for failed and error.
    """

    kind: EndingKind
    response: bytes
    items: tuple[bytes, ...]
    contradicts: bool
    response_id: str | None
    usage: bytes | None
    refusal: Refusal | None = None


def ending_of_json(body: bytes) -> Ending | None:
    """The ending that a plain HTTP answer (one response object) tells; None if it is not a finished response."""
    try:
        found = places(body)
        kind = _BY_STATUS.get(text_at(body, found, "status"))
        response_id = text_at(body, found, "id")
        if kind is None or response_id is None or "output" not in found:
            return None
        items = split_array(slice_at(body, found["output"]))
    except NotSliceable:
        return None
    return Ending(
        kind, body, items, contradicts=False, response_id=response_id, usage=raw_at(body, found, "usage")
    )


def with_member(text: bytes, found: dict[str, Place], name: str, value: bytes) -> tuple[int, int, bytes]:
    """The edit that sets a member of the object ``text`` whose places are ``found``."""
    place = found.get(name)
    return addition(text, found, name, value) if place is None else (place.start, place.end, value)


def as_failed(snapshot: bytes | None, response_id: str | None, error: bytes, items: Sequence[bytes]) -> bytes:
    """A failed response object on the base of the last one seen of the same response."""
    base = snapshot or b"{}"
    found = places(base)
    if not found:
        base = msgspec.json.encode({"id": response_id, "object": "response"})
        found = places(base)
    new = {"status": b'"failed"', "error": error, "output": array_of(items)}
    return splice(base, [with_member(base, found, name, value) for name, value in new.items()])


def array_of(items: Sequence[bytes]) -> bytes:
    """A JSON array of raw elements."""
    return b"[" + b",".join(items) + b"]"


def slice_at(text: bytes, place: Place) -> bytes:
    """The raw value at a place."""
    return text[place.start : place.end]


def raw_at(text: bytes, found: dict[str, Place], name: str) -> bytes | None:
    """The raw value of a member, None if it is absent or null."""
    place = found.get(name)
    value = None if place is None else slice_at(text, place)
    return None if value == b"null" else value


def text_at(text: bytes, found: dict[str, Place], name: str) -> str | None:
    """The value of a member that is a string, None if it is anything else or absent."""
    raw = raw_at(text, found, name)
    if raw is None or not raw.startswith(b'"'):
        return None
    try:
        value = open_json(raw)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
