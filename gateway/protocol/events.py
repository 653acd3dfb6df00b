"""What kind of event a text frame of the upstream is, read without decoding the rest of it.

Over a socket the upstream sends the same event objects as over HTTP streaming, one per text frame, plus a few notices about
the transport itself. One pass of a typed decoder is as fast as a comparison of prefixes and also proves that the frame is
JSON, so there is no table of frequent events here.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import orjson

LIFECYCLE = frozenset(
    f"response.{state}" for state in ("created", "queued", "in_progress", "completed", "failed", "incomplete")
)
"""Events that carry the whole response object."""

STARTS = frozenset({"response.created", "response.queued", "response.in_progress"})
"""Lifecycle events by which a response can make itself known."""

TERMINALS = frozenset({"response.completed", "response.failed", "response.incomplete"})
"""Lifecycle events after which nothing of that response follows."""

ALIAS_TERMINAL = "response.done"
"""What some upstreams send in place of the terminal event; which one it stands for is in ``response.status``."""

ERROR = "error"
ERRORS = frozenset({ERROR, "response.error"})
"""Errors that are not a lifecycle event: a refusal as first event, a break later. HTTP streams know the first name only."""

KEEPALIVE = "keepalive"
"""Sent by the API during long silences, with a sequence number of its own."""

_NOTICE_PREFIXES = ("codex.", "responsesapi.")
_NOTICES = frozenset({"response.metadata"})
_LINE_ENDS = frozenset("\r\n")


class Head(msgspec.Struct):
    """The members of an event that decide what is done with it. All but ``type`` may be absent or of any JSON type."""

    type: str
    output_index: Any = None
    content_index: Any = None
    stream_id: Any = msgspec.UNSET
    response_id: Any = None


_HEAD = msgspec.json.Decoder(Head)


def head_of(event: bytes) -> Head | None:
    """The deciding members of an event; None if it is not a JSON object with a string ``type`` that fits on one line."""
    try:
        head = _HEAD.decode(event)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        lenient = _lenient_head(event)
        if lenient is None:
            return None
        head = lenient
    except RecursionError:
        return None
    return None if _LINE_ENDS.intersection(head.type) else head


def kind_of(event: bytes) -> str | None:
    """The value of the top-level ``type``; None if the event is not a JSON object or has no usable one."""
    head = head_of(event)
    return None if head is None else head.type


def is_notice(kind: str) -> bool:
    """Whether an event is about the transport (rate limits of the socket, timing): an HTTP client would never see it."""
    return kind.startswith(_NOTICE_PREFIXES) or kind in _NOTICES


def open_json(text: bytes) -> Any:
    """The value of a JSON text as Python objects, also where it has lone surrogate escapes or NaN.

    Raises ValueError for everything that is not JSON, including what is nested too deeply.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        try:
            return json.loads(text.decode())
        except RecursionError:
            raise ValueError("nested too deeply") from None


def _lenient_head(event: bytes) -> Head | None:
    try:
        opened = open_json(event)
    except ValueError:
        return None
    if not isinstance(opened, dict) or not isinstance(opened.get("type"), str):
        return None
    return msgspec.convert({name: opened[name] for name in Head.__struct_fields__ if name in opened}, Head)
