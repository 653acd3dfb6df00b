"""The one frame that starts work over a socket: the client's own body with a type, and a shorter input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gateway.protocol.raw import Member

Piece = bytes | memoryview

_DROPPED = frozenset({"stream", "background"})
"""A socket always streams and never works in the background; the API asks clients not to send these there."""

_SOCKET_ONLY = frozenset({"type", "stream_id", "generate"})


def create_frame(
    members: Iterable[Member],
    *,
    previous_response_id: str | None,
    items: Sequence[Piece] | None,
) -> bytes:
    """A ``response.create`` frame of the members of a request body, each byte for byte and in the client's order.

    ``stream`` and ``background`` are left out. With ``items`` the value of ``input`` becomes the list of these raw items.
    With ``previous_response_id`` it stands in place of the client's own (null) one, else behind the last member.

    The caller must not pass bodies with members that mean something else on a socket (``type``, ``stream_id``,
    ``generate``): raises ValueError.
    """
    pieces: list[Piece] = [b'{"type":"response.create"']
    parent = None if previous_response_id is None else msgspec.json.encode(previous_response_id)
    waiting = items
    for member in members:
        if member.name in _DROPPED:
            continue
        if member.name in _SOCKET_ONLY:
            raise ValueError("the body has a member that means something else on a socket")
        if member.name == "input" and waiting is not None:
            _add_items(pieces, waiting)
            waiting = None
            continue
        value: Piece = member.value
        if member.name == "previous_response_id" and parent is not None:
            value, parent = parent, None
        pieces += (b",", msgspec.json.encode(member.name), b":", value)
    if parent is not None:
        pieces += (b',"previous_response_id":', parent)
    if waiting is not None:
        _add_items(pieces, waiting)
    pieces.append(b"}")
    return b"".join(pieces)


def _add_items(pieces: list[Piece], items: Sequence[Piece]) -> None:
    pieces.append(b',"input":[')
    for at, item in enumerate(items):
        if at:
            pieces.append(b",")
        pieces.append(item)
    pieces.append(b"]")
