"""A request as the gateway sees it: raw members and items, their facts, and whether it can go over a socket at all."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from gateway.conversation.fields import FieldFacts
from gateway.conversation.items import ItemFacts
from gateway.conversation.transcripts import Known
from gateway.protocol.raw import Member

# Asynchronous or server-assembled requests: their context or their answer is not what this exchange carries.
_ELSEWHERE = ("background_options", "conversation", "prompt")
# Fields of the socket protocol: in an HTTP body they mean nothing, or something else.
_SOCKET_FIELDS = ("type", "stream_id", "generate")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a request spelled its items: the length and the digest of their raw text, and how many they are."""

    length: int
    digest: bytes
    items: int


@dataclass(frozen=True, slots=True)
class Request:
    """One request that can go over a socket.

    ``members`` are the body's members as the client wrote them. ``items`` are the raw elements of ``input`` (a string input is
    one user message) and ``facts`` belongs to them one by one. ``client_parent`` is the client's own ``previous_response_id``.
    ``spelling`` is None where the items are not in one piece. With ``after`` the request was recognised by its beginning:
    ``items``, ``facts`` and the member ``input`` hold only what follows the known items, so it can only be sent as a delta.
    """

    members: tuple[Member, ...]
    items: tuple[bytes | memoryview, ...]
    facts: tuple[ItemFacts, ...]
    fields: FieldFacts
    model: str
    stream: bool
    store: bool
    client_parent: str | None
    spelling: Spelling | None = None
    after: Known | None = None

    @property
    def skipped(self) -> int:
        """How many items of the client's input come before ``items``."""
        return self.after.items if self.after is not None else 0


@dataclass(frozen=True, slots=True)
class NotUpgradable:
    """A request that only plain HTTP can carry; ``why`` is a word for the log, ``stream`` and ``model`` as far as known."""

    why: str
    stream: bool = False
    model: str = ""


def refusal_of(values: dict[str, bytes | memoryview]) -> str | None:
    """The name of the member that only plain HTTP can carry, if there is one among these raw values."""
    for name in _SOCKET_FIELDS:
        if name in values:
            return name
    for name in _ELSEWHERE:
        if values.get(name, b"null") != b"null":
            return name
    for name in ("stream", "background", "store"):
        if bytes(values.get(name, b"null")) not in {b"null", b"true", b"false"}:
            return name
    if values.get("background") == b"true":
        return "background"
    if "stream_options" in values and values["stream_options"] != b"null" and values.get("stream") != b"true":
        return "stream_options"
    # As bytes: to hash a part of a view takes a hash of all that it is a view of.
    if bytes(values.get("input", b"")[:1]) not in {b'"', b"["}:
        return "input"
    if values.get("previous_response_id", b"null") != b"null" and not text_of(values["previous_response_id"]):
        return "previous_response_id"
    return None


def text_of(value: bytes | memoryview | None) -> str | None:
    """The value of a member that is a string, else None."""
    if value is None or value[:1] != b'"':
        return None
    try:
        text = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return text if isinstance(text, str) else None
