"""What counts in an item: the canonical forms whose digests tell whether two contexts are the same.

Two forms. ``strict`` leaves out what no reading of the protocol gives a meaning (key order, absent against null, delivery-only
fields, how a JSON text in ``arguments`` is spelled). ``modulo`` also leaves out what a client may lawfully drop from what it
was given: ``phase``, reasoning summaries, empty assistant messages, and the difference between an item and a reference to it.

Written independently of the gateway's own comparison, so that one mistake cannot hide in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import orjson

Item = dict[str, Any]
Origin = Callable[[str], str | None]
"""Where an id that this upstream gave out came from, as a text that another upstream would compute alike; else None."""

_DELIVERY = ("created_by", "parsed_arguments", "internal_chat_message_metadata_passthrough")
_PART_DELIVERY = ("annotations", "logprobs", "parsed")
_OWN_STRICT = re.compile(rb"strict=[0-9a-f]{16}")
_NO_VALUE = object()


def no_origin(_id: str) -> str | None:
    """The origin function of an upstream that gave out no ids."""
    return None


def strict_form(item: Item, origin: Origin = no_origin) -> bytes:
    """The canonical bytes of ``item`` as sent; equal for items that differ in nothing but delivery."""
    return _dump(_reduce(item, origin))


def both_forms(item: Item, origin: Origin = no_origin) -> tuple[bytes, bytes | None]:
    """The strict form, and the canonical bytes without what a client may drop; None if the whole item may be dropped.

    ``item`` must not be a reference: the caller resolves those first. The strict digest that an earlier answer quotes is
    masked in the second form, because it may differ between two runs that agree there.
    """
    reduced = _reduce(item, origin)
    strict = _dump(reduced)
    said = reduced.get("role") == "assistant"
    if said and _says_nothing(reduced):
        return strict, None
    droppable = "phase" if said else "summary" if reduced.get("type") == "reasoning" else ""
    modulo = _dump(reduced) if reduced.pop(droppable, None) is not None else strict
    return strict, _OWN_STRICT.sub(b"strict=*", modulo) if b"strict=" in modulo else modulo


def digest(form: bytes) -> bytes:
    """The digest of one canonical form."""
    return blake2b(form, digest_size=16).digest()


def arguments_form(text: str) -> Any:
    """The value of a JSON text with numbers as written; the text itself if it does not parse or repeats a key."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_number,
            parse_float=_number,
            parse_constant=_reject,
        )
    except (ValueError, RecursionError):
        return {"text": text}
    return {"json": value}


def _reduce(item: Item, origin: Origin) -> Item:
    reduced = {key: value for key, value in item.items() if value is not None and key not in _DELIVERY}
    kind = reduced.get("type")
    role = reduced.get("role")
    if role is not None and kind == "message":
        del reduced["type"]
    if reduced.get("status") == "completed" and not is_tool_output(item):
        del reduced["status"]
    if "id" in reduced:
        if role is not None or "call_id" in reduced or "encrypted_content" in reduced:
            del reduced["id"]
        elif isinstance(reduced["id"], str):
            reduced["id"] = origin(reduced["id"]) or reduced["id"]
    if isinstance(reduced.get("arguments"), str):
        reduced["arguments"] = arguments_form(reduced["arguments"])
    if role is not None and isinstance(reduced.get("content"), str):
        kind_of_part = "output_text" if role == "assistant" else "input_text"
        reduced["content"] = [{"type": kind_of_part, "text": reduced["content"]}]
    for key in ("content", "summary", "output"):
        if isinstance(reduced.get(key), list):
            reduced[key] = [_reduce_part(part) for part in reduced[key]]
    return reduced


def _reduce_part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    reduced = {key: value for key, value in part.items() if value is not None}
    if str(reduced.get("type", "")).endswith("_text"):
        for key in _PART_DELIVERY:
            reduced.pop(key, None)
    if reduced.get("detail") == "auto":
        del reduced["detail"]
    return reduced


def is_tool_output(item: Item) -> bool:
    """Whether ``item`` is the output of a tool, by the one naming rule that all output types share."""
    return str(item.get("type", "")).endswith("_output")


def is_tool_call(item: Item) -> bool:
    """Whether ``item`` is a call that the client has to answer with an output of the same ``call_id``."""
    return (
        str(item.get("type", "")).endswith("_call")
        and isinstance(item.get("call_id"), str)
        and item.get("execution") != "server"
    )


def _says_nothing(message: Item) -> bool:
    content = message.get("content", [])
    return isinstance(content, list) and all(
        isinstance(part, dict)
        and part.get("type") in ("output_text", "input_text")
        and part.get("text") in ("", None)
        for part in content
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate key")
    return value


def _number(text: str) -> Any:
    return {"\0number": text}


def _reject(text: str) -> Any:
    raise ValueError(text)


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # a lone surrogate, which can come out of an arguments text
        return json.dumps(value, sort_keys=True).encode()
