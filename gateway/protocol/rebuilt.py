"""Upstreams that rebuild a conversation themselves, out of fewer kinds of items than they were given.

LiteLLM offers sockets for models that it reaches over plain HTTP: it keeps what it was sent and, of what it answered, the text of
messages and the function calls. Reasoning, other calls and a message's phase are gone from the next turn, which says so nowhere.
Its response ids tell that they are its own, and which provider stands behind them; sockets of two providers it passes through.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from typing import Any

from gateway.protocol.events import open_json

_PREFIX = "resp_"
_BEGINNING = "resp_bGl0ZWxsbT"
_OWN = re.compile(r"litellm:custom_llm_provider:([^;]*);")
_PASSED_THROUGH = frozenset({"openai", "azure"})


def is_incomplete(response_id: str, items: Iterable[bytes | memoryview]) -> bool:
    """Whether the upstream that gave ``response_id`` will not have all of the finished output ``items`` in the next turn."""
    return _rebuilds(response_id) and not all(map(_survives, items))


def same_response(named: str, told: str | None) -> bool:
    """Whether ``told``, which an upstream says it continues, is the response ``named``: that id, or the provider's inside it."""
    if named == told:
        return True
    inside = _inside(named) or ""
    return bool(told) and inside.partition(";response_id:")[2] == told


def _rebuilds(response_id: str) -> bool:
    inside = _inside(response_id)
    if inside is None:
        return False
    found = _OWN.match(inside)
    return found is None or found[1] not in _PASSED_THROUGH


def _inside(response_id: str) -> str | None:
    """What such an id tells, empty if it cannot be read; None for an id of another upstream."""
    if not response_id.startswith(_BEGINNING):
        return None
    try:
        return base64.b64decode(response_id.removeprefix(_PREFIX), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""


def _survives(item: bytes | memoryview) -> bool:
    try:
        opened = open_json(bytes(item))
    except ValueError:
        return False
    if not isinstance(opened, dict):
        return False
    if opened.get("type") == "function_call":
        return True
    return opened.get("type") == "message" and opened.get("phase") is None and _is_text(opened.get("content"))


def _is_text(content: Any) -> bool:
    """Whether it is one part of text that is not empty; several become one, and a refusal is lost."""
    if not isinstance(content, Sequence) or len(content) != 1 or not isinstance(content[0], dict):
        return False
    return content[0].get("type") == "output_text" and bool(content[0].get("text"))
