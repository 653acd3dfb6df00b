"""What counts in an item, and when a resent item equals a held one.

Two items are equal when all their keys are equal, but for a closed list of alterations that clients are known to make and that
mean nothing. An unknown key, part or type is compared exactly. The levels above ``exact`` add relations that go one way
(the client may lack what the upstream holds, never the reverse) and are not transitive, so one digest cannot decide them:
a few small facts are kept per item, and items are compared pair by pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any

import orjson

from gateway.conversation.canonical import Ambiguous, canonical_text, read_exactly, write_canonically
from gateway.conversation.digests import Digester


class Level(IntEnum):
    """How alike a resent history must be."""

    EXACT = 0
    EQUIVALENT = 1
    LENIENT = 2


class Unreadable(ValueError):
    """The item is not even text in UTF-8; the request that holds it can only go as it came."""


class Kind(IntEnum):
    """How an item takes part in matching."""

    ITEM = auto()
    REASONING = auto()
    EMPTY = auto()  # an assistant message without text: some clients insert one, some drop it
    REFERENCE = auto()


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """What is remembered of one item: digests, never its text.

    ``core`` covers what every level compares. ``phase`` digests the message's phase. ``identifier`` digests the
    item's ``id``. ``content`` and ``rest`` are set for reasoning only: its plaintext, and all that ``exact`` compares beyond
    ``core``.
    """

    kind: Kind
    core: bytes
    phase: bytes | None = None
    identifier: bytes | None = None
    content: bytes | None = None
    rest: bytes | None = None


KNOWN_TYPES = frozenset({
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "computer_call_output",
    "image_generation_call", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
    "apply_patch_call", "apply_patch_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request",
    "mcp_approval_response", "tool_search_call", "tool_search_output", "additional_tools", "program", "program_output",
    "compaction", "configuration_update", "compaction_trigger", "item_reference",
})  # fmt: skip
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
_KNOWN_PARTS = _TEXT_PARTS | {
    "refusal", "summary_text", "reasoning_text", "input_image", "input_file", "input_audio", "computer_screenshot",
}  # fmt: skip
_CLIENT_EXTRAS = ("created_by", "parsed_arguments", "internal_chat_message_metadata_passthrough")
_TEXT_EXTRAS = ("annotations", "logprobs", "parsed")


def facts_of(item: bytes, digester: Digester) -> ItemFacts:
    """The facts of one raw item; one without a canonical form is compared byte for byte. Raises Unreadable."""
    try:
        value = read_exactly(item)
        if not isinstance(value, dict):
            return _opaque(item, digester)
        return _facts(value, digester)
    except Ambiguous:
        return _opaque(item, digester)


def equal(client: ItemFacts, held: ItemFacts, level: Level) -> bool:
    """Whether the client's item stands for the held one at this level. Not symmetric above ``exact``."""
    if client.core != held.core or client.kind is not held.kind:
        return False
    if level is Level.EXACT:
        return client.phase == held.phase and client.rest == held.rest
    return client.content == held.content and (client.phase is None or client.phase == held.phase)


def refers_to(client: ItemFacts, held: ItemFacts) -> bool:
    """Whether the client's item is an ``item_reference`` to the held one."""
    return (
        client.kind is Kind.REFERENCE
        and held.kind is not Kind.REFERENCE
        and client.identifier == held.identifier
    )


def _opaque(item: bytes, digester: Digester) -> ItemFacts:
    try:
        item.decode()
    except UnicodeDecodeError:
        raise Unreadable("not UTF-8") from None
    return ItemFacts(Kind.ITEM, digester.digest(b"raw", item))


def _facts(value: dict[str, Any], digester: Digester) -> ItemFacts:
    kind = _type_of(value)
    identifier = value.get("id")
    name = digester.digest(b"id", identifier.encode()) if isinstance(identifier, str) else None
    if kind == "item_reference" and name is not None and value.keys() <= {"type", "id"}:
        return ItemFacts(Kind.REFERENCE, digester.digest(b"reference", name), identifier=name)
    if not isinstance(kind, str) or kind not in KNOWN_TYPES:
        return ItemFacts(Kind.ITEM, digester.digest(b"item", write_canonically(value)), identifier=name)
    item = _normal_item(value, kind)
    if kind == "reasoning" and ("encrypted_content" in item or "id" in item):
        return _reasoning_facts(item, name, digester)
    phase: bytes | None = None
    if kind == "message" and "phase" in item:
        phase = digester.digest(b"phase", write_canonically(item.pop("phase")))
    empty = kind == "message" and _says_nothing(item)
    core = digester.digest(b"item", write_canonically(item))
    return ItemFacts(Kind.EMPTY if empty else Kind.ITEM, core, phase, name)


def _type_of(value: dict[str, Any]) -> Any:
    kind = value.get("type")
    if kind is None:
        if "role" in value:
            return "message"
        if value.keys() <= {"type", "id"}:
            return "item_reference"
    return kind


def _reasoning_facts(item: dict[str, Any], name: bytes | None, digester: Digester) -> ItemFacts:
    """Reasoning is what its encrypted content says, or, without one, what its id stands for; the summary is for people."""
    rest = digester.digest(
        b"rest", write_canonically({k: item[k] for k in ("summary", "content") if k in item})
    )
    item.pop("summary", None)
    plain = item.pop("content", None)
    content = digester.digest(b"content", write_canonically(plain)) if plain else None
    return ItemFacts(
        Kind.REASONING, digester.digest(b"reasoning", write_canonically(item)), None, name, content, rest
    )


def _normal_item(value: dict[str, Any], kind: str) -> dict[str, Any]:
    item = {key: field for key, field in value.items() if field is not None}
    for extra in _CLIENT_EXTRAS:
        item.pop(extra, None)
    item["type"] = kind
    if item.get("status") == "completed" and not kind.endswith("_output"):
        del item["status"]
    if "role" in item or "call_id" in item or "encrypted_content" in item:
        item.pop("id", None)
    if "arguments" in item:
        item["arguments"] = _normal_arguments(item["arguments"])
    if isinstance(item.get("content"), str) and "role" in item:
        part = "output_text" if item["role"] == "assistant" else "input_text"
        item["content"] = [{"type": part, "text": item["content"]}]
    for key in ("content", "summary", "output"):
        if isinstance(item.get(key), list):
            item[key] = [_normal_part(part) for part in item[key]]
    return item


def _normal_part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _KNOWN_PARTS:
        return part
    normal = {key: field for key, field in part.items() if field is not None}
    if kind in _TEXT_PARTS:
        for extra in _TEXT_EXTRAS:
            normal.pop(extra, None)
    if normal.get("detail") == "auto":
        del normal["detail"]
    return normal


def _normal_arguments(text: Any) -> dict[str, Any]:
    """Each kind under a name of its own, so that no object that a client sends passes for what stands for a text."""
    if not isinstance(text, str):
        return {"value": text}
    try:
        return {"json": orjson.Fragment(canonical_text(text.encode()))}
    except (Ambiguous, UnicodeEncodeError):
        return {"raw": text}


def _says_nothing(item: dict[str, Any]) -> bool:
    if item.get("role") != "assistant" or not item.keys() <= {"type", "role", "content"}:
        return False
    content = item.get("content", [])
    return isinstance(content, list) and all(
        isinstance(part, dict)
        and part.get("type") == "output_text"
        and part.get("text") == ""
        and len(part) == 2
        for part in content
    )
