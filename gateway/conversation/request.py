"""A request as the gateway sees it: raw members and items, their facts, and whether it can go over a socket at all."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from gateway.conversation.canonical import Digester
from gateway.conversation.fields import FieldFacts, field_facts
from gateway.conversation.items import ItemFacts, facts_of
from gateway.protocol.raw import Member, NotSliceable, split_array, split_object

# Asynchronous or server-assembled requests: their context or their answer is not what this exchange carries.
_ELSEWHERE = ("background_options", "conversation", "prompt")
# Fields of the socket protocol: in an HTTP body they mean nothing, or something else.
_SOCKET_FIELDS = ("type", "stream_id", "generate")


@dataclass(frozen=True, slots=True)
class Request:
    """One request that can go over a socket.

    ``members`` are the body's members as the client wrote them. ``items`` are the raw elements of ``input`` (a string input is
    one user message) and ``facts`` belongs to them one by one. ``client_parent`` is the client's own ``previous_response_id``.
    """

    members: tuple[Member, ...]
    items: tuple[bytes, ...]
    facts: tuple[ItemFacts, ...]
    fields: FieldFacts
    model: str
    stream: bool
    store: bool
    client_parent: str | None


@dataclass(frozen=True, slots=True)
class NotUpgradable:
    """A request that only plain HTTP can carry; ``why`` is a word for the log, ``stream`` and ``model`` as far as known."""

    why: str
    stream: bool = False
    model: str = ""


def read_request(body: bytes, digester: Digester) -> Request | NotUpgradable:
    """Read a decoded request body. Never fails: what cannot be read strictly goes over plain HTTP, byte for byte."""
    try:
        body.decode()
        members = split_object(body)
    except (UnicodeDecodeError, NotSliceable):
        return NotUpgradable("body")
    values = {member.name: member.value for member in members}
    model = _text(values.get("model")) or ""
    if (refused := _refusal(values)) is not None:
        return NotUpgradable(refused, values.get("stream") == b"true", model)
    source = values["input"]
    if source[:1] == b'"':
        items: tuple[bytes, ...] = (b'{"type":"message","role":"user","content":' + source + b"}",)
    else:
        try:
            items = split_array(source)
        except NotSliceable:
            return NotUpgradable("input", values.get("stream") == b"true", model)
    return Request(
        members=members,
        items=items,
        facts=tuple(facts_of(item, digester) for item in items),
        fields=field_facts(members, digester),
        model=model,
        stream=values.get("stream") == b"true",
        store=values.get("store") != b"false",
        client_parent=_text(values.get("previous_response_id")),
    )


def _refusal(values: dict[str, bytes]) -> str | None:
    for name in _SOCKET_FIELDS:
        if name in values:
            return name
    for name in _ELSEWHERE:
        if values.get(name, b"null") != b"null":
            return name
    for name in ("stream", "background", "store"):
        if values.get(name, b"null") not in {b"null", b"true", b"false"}:
            return name
    if values.get("background") == b"true":
        return "background"
    if "stream_options" in values and values["stream_options"] != b"null" and values.get("stream") != b"true":
        return "stream_options"
    if values.get("input", b"")[:1] not in {b'"', b"["}:
        return "input"
    if values.get("previous_response_id", b"null") != b"null" and not _text(values["previous_response_id"]):
        return "previous_response_id"
    return None


def _text(value: bytes | None) -> str | None:
    if value is None or value[:1] != b'"':
        return None
    try:
        text = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return text if isinstance(text, str) else None
