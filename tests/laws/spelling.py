"""How clients spell what they were answered: every alteration that real clients were seen to make, free to combine."""

from __future__ import annotations

import json
from random import Random

ALTERATIONS = (
    "key_order", "nulls", "extras", "no_id", "no_status", "no_annotations", "empty_annotations", "no_logprobs", "no_phase",
    "arguments_spaced", "arguments_escaped", "text_for_parts", "untyped", "new_ids", "references", "reasoning_omitted",
    "reasoning_without_id", "summary_last", "summary_none", "empty_message", "earlier_id_lost", "content_null",
)  # fmt: skip


def spell(history, alterations, *, stored):
    """The history as a client with these habits would resend it; ``history`` marks what the API made with ``_from_api``."""
    items = []
    for index, entry in enumerate(history):
        if "_from_api" not in entry:
            items.append(entry)
            continue
        item = {key: value for key, value in entry.items() if key != "_from_api"}
        if item.get("type") == "reasoning" and "reasoning_omitted" in alterations:
            continue
        if stored and "references" in alterations and item.get("type") in {"reasoning", "message"}:
            items.append({"type": "item_reference", "id": item["id"]})
            continue
        if "empty_message" in alterations and item.get("type") == "function_call" and index % 2 == 0:
            items.append({"role": "assistant", "content": ""})
        items.append(_alter(item, alterations))
    return items


def _alter(item, alterations):
    kind = item.get("type")
    item = dict(item)
    if "no_status" in alterations:
        item.pop("status", None)
    if kind == "message":
        _alter_message(item, alterations)
    if kind == "reasoning":
        _alter_reasoning(item, alterations)
    if kind in {"function_call", "custom_tool_call"}:
        if "no_id" in alterations or "earlier_id_lost" in alterations:
            item.pop("id", None)
        if "nulls" in alterations:
            item.update({"caller": None, "namespace": None, "async_": None})
        if "extras" in alterations and kind == "function_call":
            item["parsed_arguments"] = {"a": 1}
        if kind == "function_call":
            item["arguments"] = _respell(item["arguments"], alterations)
    if "extras" in alterations:
        item["internal_chat_message_metadata_passthrough"] = {"turn_id": "t", "create_time": 1.5}
    if "key_order" in alterations:
        item = dict(sorted(item.items(), reverse=True))
    return item


def _alter_message(item, alterations):
    parts = [dict(part) for part in item["content"]]
    for part in parts:
        if "no_annotations" in alterations:
            part.pop("annotations", None)
        elif "empty_annotations" in alterations:
            part["annotations"] = []
        if "no_logprobs" in alterations:
            part.pop("logprobs", None)
        if "extras" in alterations:
            part["parsed"] = None
    item["content"] = parts
    if "no_phase" in alterations:
        item.pop("phase", None)
    if "no_id" in alterations:
        item.pop("id", None)
    elif "new_ids" in alterations:
        item["id"] = "msg_0000" + item["id"][-6:]
    if "text_for_parts" in alterations and len(parts) == 1 and parts[0]["type"] == "output_text":
        item["content"] = parts[0]["text"]
    if "untyped" in alterations:
        item.pop("type", None)


def _alter_reasoning(item, alterations):
    if "reasoning_without_id" in alterations and item.get("encrypted_content"):
        item.pop("id", None)
    if "summary_none" in alterations:
        item["summary"] = []
    elif "summary_last" in alterations:
        item["summary"] = item.get("summary", [])[-1:] or [{"type": "summary_text", "text": ""}]
    if "content_null" in alterations:
        item["content"] = None
    if "nulls" in alterations:
        item.setdefault("encrypted_content", None)
        item.setdefault("status", None)


def _respell(arguments, alterations):
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    if "arguments_spaced" in alterations:
        return json.dumps(value, ensure_ascii="arguments_escaped" in alterations)
    if "arguments_escaped" in alterations:
        return json.dumps(value, separators=(",", ":"))
    return arguments


def habit(seed):
    """A random set of habits, from none to many."""
    random = Random(seed)
    return frozenset(random.sample(ALTERATIONS, random.choice([0, 1, 1, 2, 3, 5, 8])))
