"""The response object and the full event stream that delivers an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.simulator import hosted
from gateway.simulator.canonical import Item
from gateway.simulator.options import Options

TERMINAL = frozenset({"response.completed", "response.failed", "response.incomplete"})
Event = dict[str, Any]
_PIECES = re.compile(r"\S+\s*|\s+")
_DETAILED = ("message", "reasoning", "function_call", "custom_tool_call")


def response_object(body: Mapping[str, Any], response_id: str, created_at: int) -> dict[str, Any]:
    """The response to ``body`` as it is when it begins; the caller fills in how it goes on."""
    # The body was not checked yet.
    reasoning, text = (
        value if isinstance(value := body.get(name), dict) else {} for name in ("reasoning", "text")
    )
    tier = body.get("service_tier")
    conversation = body.get("conversation")
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "background": bool(body.get("background")),
        "completed_at": None,
        **(
            {"conversation": {"id": conversation} if isinstance(conversation, str) else conversation}
            if conversation
            else {}
        ),
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "model": body.get("model"),
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": {"effort": "medium", "summary": None, **reasoning},
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": "default" if tier in (None, "auto") else tier,
        "store": body.get("store") is not False,
        "temperature": 1.0 if body.get("temperature") is None else body["temperature"],
        "text": {"format": {"type": "text"}, "verbosity": "medium", **text},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": body.get("top_logprobs") or 0,
        "top_p": 1.0 if body.get("top_p") is None else body["top_p"],
        "truncation": body.get("truncation") or "disabled",
        "usage": None,
        "user": body.get("user"),
        "metadata": body.get("metadata") or {},
    }


def usage_of(input_size: int, output: tuple[Item, ...]) -> dict[str, Any]:
    """Token counts, at four bytes a token; a function of context and answer like everything else."""
    given = input_size // 4 + 1
    made = sum(len(str(item)) for item in output) // 8
    thought = made // 2 if any(item.get("type") == "reasoning" for item in output) else 0
    return {
        "input_tokens": given,
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": given + made,
    }


def terminal_output(output: list[Item], options: Options) -> dict[str, Any]:
    """The ``output`` member of a terminal event, which some upstreams leave short."""
    match options.terminal_output:
        case "filled":
            return {"output": output}
        case "empty":
            return {"output": []}
        case "null":
            return {"output": None}
        case "first":
            return {"output": output[:1]}
        case "missing":
            return {}


def response_events(
    begun: dict[str, Any], ended: dict[str, Any], options: Options, *, set_up: bool
) -> Iterator[Event]:
    """All events from ``response.created`` to the terminal one, without sequence numbers.

    ``begun`` is the response at its start, ``ended`` at its end with all its items. ``set_up`` tells whether items and parts
    are announced before their deltas.
    """
    if options.notices:
        yield {"type": "codex.rate_limits", "plan_type": "pro", "rate_limits": {"allowed": True}}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(ended["output"]):
        if options.keepalives:
            yield {"type": "keepalive"}
        for event in _item_events(index, item, begun["tools"]):
            if set_up or not event["type"].endswith(".added"):
                yield event
        if options.notices:
            yield {"type": "responsesapi.websocket_timing", "timing": {"index": index}}
    output = ended["output"]
    closing = {key: value for key, value in ended.items() if key != "output"} | terminal_output(
        output, options
    )
    yield {"type": f"response.{ended['status']}", "response": closing}


def _item_events(index: int, item: Item, tools: list[Any]) -> Iterator[Event]:
    kind = item.get("type")
    place = {"item_id": item.get("id"), "output_index": index}
    yield {"type": "response.output_item.added", "output_index": index, "item": _announced(item)}
    match kind:
        case "message":
            for at, part in enumerate(item.get("content") or ()):
                yield from _part_events(place, at, part)
        case "reasoning":
            for at, part in enumerate(item.get("summary") or ()):
                yield from _summary_events({**place, "summary_index": at}, part)
            for at, part in enumerate(item.get("content") or ()):
                for piece in _pieces(part["text"]):
                    yield {
                        "type": "response.reasoning_text.delta",
                        **place,
                        "content_index": at,
                        "delta": piece,
                    }
                yield {
                    "type": "response.reasoning_text.done",
                    **place,
                    "content_index": at,
                    "text": part["text"],
                }
        case "function_call":
            text = item["arguments"]
            for piece in _slices(text):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
            done = {"arguments": text, "name": item.get("name")}
            yield {"type": "response.function_call_arguments.done", **place, **done}
        case "custom_tool_call":
            text = item["input"]
            for piece in _slices(text):
                yield {"type": "response.custom_tool_call_input.delta", **place, "delta": piece}
            yield {"type": "response.custom_tool_call_input.done", **place, "input": text}
        case str() if kind in hosted.PREFIXES:
            yield from hosted.hosted_events(place, item, tools)
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _announced(item: Item) -> Item:
    """An item as it is when it begins: nothing said yet, and encrypted content that is not the final one."""
    begun = hosted.announced(item) if item.get("type") in hosted.PREFIXES else dict(item)
    if "status" in begun:
        begun["status"] = "in_progress"
    for key, nothing in (("content", []), ("summary", []), ("arguments", ""), ("input", "")):
        if key in begun and item.get("type") in _DETAILED:
            begun[key] = nothing
    if isinstance(begun.get("encrypted_content"), str):
        begun["encrypted_content"] = begun["encrypted_content"][: len(begun["encrypted_content"]) // 2] + "=="
    return begun


def _part_events(place: Event, at: int, part: Item) -> Iterator[Event]:
    where = {**place, "content_index": at}
    if part.get("type") == "refusal":
        yield {"type": "response.content_part.added", **where, "part": {**part, "refusal": ""}}
        for piece in _pieces(part["refusal"]):
            yield {"type": "response.refusal.delta", **where, "delta": piece}
        yield {"type": "response.refusal.done", **where, "refusal": part["refusal"]}
    else:
        yield {
            "type": "response.content_part.added",
            **where,
            "part": {**part, "text": "", "annotations": []},
        }
        for piece in _pieces(part["text"]):
            yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
        for number, note in enumerate(part.get("annotations") or ()):
            extra = {"annotation_index": number, "annotation": note}
            yield {"type": "response.output_text.annotation.added", **where, **extra}
        yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}


def _summary_events(place: Event, part: Item) -> Iterator[Event]:
    empty = {"type": "summary_text", "text": ""}
    yield {"type": "response.reasoning_summary_part.added", **place, "part": empty}
    for piece in _pieces(part["text"]):
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **place, "part": part}


def _pieces(text: str) -> list[str]:
    return _PIECES.findall(text)


def _slices(text: str, size: int = 9) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]
