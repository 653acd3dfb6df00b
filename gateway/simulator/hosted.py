"""Hosted tools: web search, file search, code interpreter, image generation and MCP, which run on the upstream's side.

A user text ``hosted N`` makes the answer to it use every hosted tool that the request offers N times.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.simulator.canonical import Item
from gateway.simulator.values import Dice, odd_json, value_for

PREFIXES = {
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
}

REQUIRED = {
    "web_search_call": ("id", "status", "action"),
    "file_search_call": ("id", "status", "queries"),
    "code_interpreter_call": ("id", "status", "container_id"),
    "image_generation_call": ("id", "status"),
    "mcp_call": ("id", "name", "arguments", "server_label"),
    "mcp_list_tools": ("id", "server_label", "tools"),
    "mcp_approval_request": ("id", "name", "arguments", "server_label"),
    "mcp_approval_response": ("approval_request_id", "approve"),
}
"""The fields without which such an item is refused in an input."""

_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def hosted_items(body: Mapping[str, Any], context: Iterable[Item], times: int, dice: Dice) -> list[Item]:
    """The hosted calls that stand before the text of an answer, without ids; finished, as the upstream runs them itself.

    What only ``include`` brings (search results, outputs of code, sources) is left out unless it is asked for. An MCP server's
    tools are listed once in a context. A server whose calls need approval gets requests for it, and calls once approved.
    """
    include = frozenset(body.get("include") or ())
    held = list(context)
    listed = {item.get("server_label") for item in held if item.get("type") == "mcp_list_tools"}
    items = _approved(held, dice)
    for tool in body.get("tools") or ():
        kind = str(tool["type"])
        if kind == "mcp":
            label = tool.get("server_label")
            if label not in listed and (times or items):
                items.insert(0, _listing(label))
            items.extend(_mcp(tool, dice) for _ in range(times))
        elif kind.startswith("web_search"):
            items.extend(_web_search(include, dice) for _ in range(times))
        elif kind == "file_search":
            items.extend(_file_search(include, dice) for _ in range(times))
        elif kind == "code_interpreter":
            items.extend(_code(include, dice) for _ in range(times))
        elif kind == "image_generation":
            items.extend(_image(dice) for _ in range(times))
    return items


def announced(item: Item) -> Item:
    """A hosted item as it is when it begins; one that has no status, as approvals, begins as it ends."""
    begun = dict(item)
    for key, nothing in (("tools", []), ("code", ""), ("outputs", None), ("result", None), ("results", None)):
        if key in begun:
            begun[key] = nothing
    if item["type"] == "mcp_call":
        begun |= {"arguments": "", "output": None}
    return begun


def hosted_events(
    place: dict[str, Any], item: Item, tools: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """The events between the beginning and the end of a hosted item. ``place`` names the item; ``tools`` are the request's."""
    kind = item["type"]
    at = f"response.{kind}"
    match kind:
        case "web_search_call" | "file_search_call":
            steps = ("in_progress", "searching", "completed")
            yield from ({"type": f"{at}.{step}", **place} for step in steps)
        case "code_interpreter_call":
            yield {"type": f"{at}.in_progress", **place}
            for piece in item["code"].splitlines(keepends=True):
                yield {"type": f"{at}_code.delta", **place, "delta": piece}
            yield {"type": f"{at}_code.done", **place, "code": item["code"]}
            yield {"type": f"{at}.interpreting", **place}
            yield {"type": f"{at}.completed", **place}
        case "image_generation_call":
            yield {"type": f"{at}.in_progress", **place}
            yield {"type": f"{at}.generating", **place}
            wanted = max((tool.get("partial_images") or 0 for tool in tools), default=0)
            for number in range(wanted):
                shown = {
                    "partial_image_index": number,
                    "partial_image_b64": item["result"][: 4 * (number + 1)],
                }
                yield {"type": f"{at}.partial_image", **place, **shown}
            yield {"type": f"{at}.completed", **place}
        case "mcp_call":
            yield {"type": f"{at}.in_progress", **place}
            yield {"type": f"{at}_arguments.delta", **place, "delta": item["arguments"]}
            yield {"type": f"{at}_arguments.done", **place, "arguments": item["arguments"]}
            yield {"type": f"{at}.{'failed' if item.get('error') else 'completed'}", **place}
        case "mcp_list_tools":
            yield {"type": f"{at}.in_progress", **place}
            yield {"type": f"{at}.completed", **place}


def _web_search(include: frozenset[str], dice: Dice) -> Item:
    query = f"weather {dice.hex(6)}"
    action: Item = {"type": "search", "query": query, "queries": [query]}
    if "web_search_call.action.sources" in include:
        action["sources"] = [{"type": "url", "url": f"https://example.com/{dice.hex(8)}"}]
    return {"type": "web_search_call", "status": "completed", "action": action}


def _file_search(include: frozenset[str], dice: Dice) -> Item:
    name = dice.hex(8)
    found = {
        "file_id": f"file-{name}",
        "filename": f"{name}.md",
        "score": 0.9731,
        "text": "Zürich\u2028is dry.\n",
    }
    results = [{**found, "attributes": {}}] if "file_search_call.results" in include else None
    return {
        "type": "file_search_call",
        "status": "completed",
        "queries": [f"weather {dice.hex(6)}"],
        "results": results,
    }


def _code(include: frozenset[str], dice: Dice) -> Item:
    shown = "code_interpreter_call.outputs" in include
    return {
        "type": "code_interpreter_call",
        "status": "completed",
        "code": f"x = 0x{dice.hex(4)}\nprint(x / 3)\n",
        "container_id": f"cntr_{dice.hex(24)}",
        "outputs": [{"type": "logs", "logs": f"{dice.below(9000)}.333\n"}] if shown else None,
    }


def _image(dice: Dice) -> Item:
    return {
        "type": "image_generation_call",
        "status": "completed",
        "background": "opaque",
        "output_format": "png",
        "quality": "low",
        "result": base64.b64encode(dice.blob(48).encode()).decode(),
        "revised_prompt": f"A quiet lake, {dice.hex(4)}",
        "size": "1024x1024",
    }


def _listing(label: Any) -> Item:
    tool = {"annotations": None, "description": "Looks it up", "input_schema": _SCHEMA, "name": "look_up"}
    return {"type": "mcp_list_tools", "server_label": label, "tools": [tool], "error": None}


def _mcp(tool: Mapping[str, Any], dice: Dice) -> Item:
    asked = {"name": "look_up", "arguments": odd_json(value_for(_SCHEMA, dice), dice)}
    if tool.get("require_approval", "always") != "never":
        return {"type": "mcp_approval_request", **asked, "server_label": tool.get("server_label")}
    return _mcp_call(asked, tool.get("server_label"), None, dice)


def _mcp_call(asked: Mapping[str, Any], label: Any, approval: str | None, dice: Dice) -> Item:
    return {
        "type": "mcp_call",
        "status": "completed",
        "approval_request_id": approval,
        "arguments": asked["arguments"],
        "error": None,
        "name": asked["name"],
        "output": f"found {dice.hex(8)}\n",
        "server_label": label,
    }


def _approved(held: list[Item], dice: Dice) -> list[Item]:
    """The calls that the newest items of a context have just approved."""
    requests = {item.get("id"): item for item in held if item.get("type") == "mcp_approval_request"}
    done = {item.get("approval_request_id") for item in held if item.get("type") == "mcp_call"}
    calls = []
    for item in held:
        name = item.get("approval_request_id")
        if (
            item.get("type") == "mcp_approval_response"
            and item.get("approve")
            and name in requests.keys() - done
        ):
            calls.append(_mcp_call(requests[name], requests[name]["server_label"], name, dice))
    return calls
