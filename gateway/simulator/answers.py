"""What the simulated model answers: a pure function of the effective context and of the settings it would see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from gateway.simulator.canonical import Item
from gateway.simulator.context import Context, Digests
from gateway.simulator.hosted import hosted_items
from gateway.simulator.options import Options
from gateway.simulator.values import Dice, odd_json, value_for

_UNSEEN = frozenset(
    {
        "background", "background_options", "client_metadata", "generate", "include", "input", "metadata",
        "previous_response_id", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
        "safety_identifier", "service_tier", "store", "stream", "stream_id", "stream_options", "type", "user",
    }
)  # fmt: skip
"""Fields that steer delivery, storage or accounting; a model is not shown them."""

_FILLER = ("alpha", "beta", "Zürich", "naïve", "😀", "“quoted”", "x\u2028y", "delta-4", "\\n", "{}", "end.")
_ENDINGS = ("", "\n", " 👩‍💻", "\u2028", ".", "\r\n\n")


@dataclass(frozen=True, slots=True)
class Answer:
    """Output items without ids, and how the response ends."""

    items: tuple[Item, ...]
    status: str = "completed"
    reason: str | None = None


def settings_digest(body: Mapping[str, Any]) -> str:
    """A digest of all request fields that a model would be shown or steered by, apart from the items."""
    seen = {key: value for key, value in body.items() if key not in _UNSEEN and value is not None}
    return blake2b(orjson.dumps(seen, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def mark_of(digests: Digests, settings: str) -> str:
    """The text by which an answer shows the context that it was given for."""
    found = f"strict={digests.strict} modulo={digests.modulo}"
    return f"ctx {found} settings={settings} items={digests.items}"


def compose(body: Mapping[str, Any], context: Context, options: Options) -> Answer:
    """The answer to ``body`` in ``context``, which holds the new items already.

    Only the printed strict digest depends on more than the ``modulo`` form of the context.
    """
    digests, settings = context.digests, settings_digest(body)
    dice = Dice(options.seed, context.modulo.hex(), settings)
    encrypted = body.get("store") is False or "reasoning.encrypted_content" in (body.get("include") or ())
    items: list[Item] = []
    thinks = dice.below(4) > 0
    if thinks if options.reasoning is None else options.reasoning:
        items.append(_reasoning(dice, encrypted=encrypted))
    phased = dice.below(4) > 0
    if "hosted" in context.hints or context.after == "other":
        times = context.hints.get("hosted", 0) if context.after == "user" else 0
        items.extend(hosted_items(body, context, times, dice))
    offered = _offered(body)
    if offered and _wants_calls(body, context, options, dice):
        if dice.below(2):
            items.append(
                _message(f"I will call a tool first{dice.pick(_ENDINGS)}", "commentary" if phased else None)
            )
        many = (1 + dice.below(2)) if options.parallel_calls is None else options.parallel_calls
        number = 1 if body.get("parallel_tool_calls") is False else many
        items.extend(_call(dice.pick(offered), dice, options) for _ in range(number))
        return Answer(tuple(items))
    text = _final_text(body, dice, mark_of(digests, settings), context.hints.get("words", options.words))
    phase = "final_answer" if phased else None
    limit = body.get("max_output_tokens")
    words = text.split(" ")
    if limit is not None and len(words) > limit:
        cut = _message(" ".join(words[:limit]), phase)
        cut["status"] = "incomplete"
        return Answer((*items, cut), "incomplete", "max_output_tokens")
    return Answer((*items, _message(text, phase)))


def _final_text(body: Mapping[str, Any], dice: Dice, mark: str, words: int) -> str:
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        return orjson.dumps(value_for(form.get("schema"), dice, mark=mark)).decode()
    if form.get("type") == "json_object":
        return orjson.dumps({"ctx": mark}).decode()
    return mark + "".join(f" {dice.pick(_FILLER)}" for _ in range(words)) + dice.pick(_ENDINGS)


def _wants_calls(body: Mapping[str, Any], context: Context, options: Options, dice: Dice) -> bool:
    by_chance = dice.below(4)
    choice = body.get("tool_choice")
    if choice == "none":
        return False
    if choice == "required" or (isinstance(choice, dict) and choice.get("type") in ("function", "custom")):
        return True
    wanted = context.hints.get("loop", options.rounds)
    if wanted is not None:
        return context.rounds < wanted
    if context.after == "output":
        return by_chance == 0 and context.rounds < 4
    return by_chance < 2


def _offered(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for tool in body.get("tools") or ():
        if tool["type"] in ("function", "custom"):
            found.append(tool)
        elif tool["type"] == "namespace":
            inner = tool.get("tools") or ()
            found.extend({**part, "namespace": tool.get("name")} for part in inner if isinstance(part, dict))
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        allowed = choice.get("tools") if choice.get("type") == "allowed_tools" else [choice]
        names = {one.get("name") for one in allowed or () if isinstance(one, dict)}
        found = [tool for tool in found if tool.get("name") in names]
    return found


def _reasoning(dice: Dice, *, encrypted: bool) -> Item:
    summary = [
        {"type": "summary_text", "text": f"**Step {n + 1}**\n{dice.hex(12)}"} for n in range(dice.below(3))
    ]
    item: Item = {"type": "reasoning", "summary": summary}
    blob = "gAAAAA" + dice.blob(96)
    return {**item, "encrypted_content": blob} if encrypted else item


def _message(text: str, phase: str | None) -> Item:
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    item: Item = {"type": "message", "status": "completed", "content": [part]}
    if phase is not None:
        item["phase"] = phase
    return {**item, "role": "assistant"}


def _call(tool: Mapping[str, Any], dice: Dice, options: Options) -> Item:
    name = str(tool.get("name"))
    call_id = f"call_{dice.hex(24)}"
    item: Item
    if tool["type"] == "custom":
        text = options.arguments.get(name, f"print('{dice.hex(8)}')\n# Zürich\n")
        item = {
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": call_id,
            "input": text,
            "name": name,
        }
    else:
        value = value_for(tool.get("parameters") or {"type": "object"}, dice)
        text = options.arguments.get(name) or odd_json(value, dice)
        item = {
            "type": "function_call",
            "status": "completed",
            "arguments": text,
            "call_id": call_id,
            "name": name,
        }
    return {**item, "namespace": tool["namespace"]} if "namespace" in tool else item
