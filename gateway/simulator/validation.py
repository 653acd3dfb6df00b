"""The checks on a request that come before any state is looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from gateway.simulator.hosted import REQUIRED
from gateway.simulator.options import Options
from gateway.simulator.refusal import Refusal

LANE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_SOCKET_ONLY = ("stream_id", "generate", "type")
_HTTP_ONLY = ("stream", "background", "background_options")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "background": ("a boolean", lambda v: isinstance(v, bool)),
    "generate": ("a boolean", lambda v: isinstance(v, bool)),
    "include": ("an array of strings", lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v)),
    "input": ("a string or an array", lambda v: isinstance(v, str | list)),
    "instructions": ("a string or an array", lambda v: isinstance(v, str | list)),
    "max_output_tokens": ("an integer", _is_int),
    "max_tool_calls": ("an integer", _is_int),
    "metadata": (
        "an object of strings",
        lambda v: isinstance(v, dict) and all(isinstance(x, str) for x in v.values()),
    ),
    "parallel_tool_calls": ("a boolean", lambda v: isinstance(v, bool)),
    "previous_response_id": ("a string", lambda v: isinstance(v, str)),
    "prompt_cache_key": ("a string", lambda v: isinstance(v, str)),
    "reasoning": ("an object", lambda v: isinstance(v, dict)),
    "safety_identifier": ("a string", lambda v: isinstance(v, str)),
    "service_tier": ("a string", lambda v: isinstance(v, str)),
    "store": ("a boolean", lambda v: isinstance(v, bool)),
    "stream": ("a boolean", lambda v: isinstance(v, bool)),
    "stream_options": ("an object", lambda v: isinstance(v, dict)),
    "temperature": ("a number", _is_number),
    "text": ("an object", lambda v: isinstance(v, dict)),
    "tool_choice": ("a string or an object", lambda v: isinstance(v, str | dict)),
    "tools": ("an array of objects", lambda v: isinstance(v, list) and all(isinstance(x, dict) for x in v)),
    "top_p": ("a number", _is_number),
    "truncation": ("'auto' or 'disabled'", lambda v: v in ("auto", "disabled")),
    "user": ("a string", lambda v: isinstance(v, str)),
}


def parse(raw: bytes) -> dict[str, Any]:
    """The object that ``raw`` holds. Raises Refusal if it is not strict UTF-8 JSON with an object on top."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise Refusal(
            400,
            "We could not parse the JSON body of your request. The OpenAI API expects a JSON payload.",
            code="invalid_json",
        ) from None
    if not isinstance(body, dict):
        raise _wrong_type("body", "an object")
    return body


def check(body: dict[str, Any], options: Options, *, socket: bool) -> None:
    """Raise Refusal if ``body`` breaks a rule of its transport or of the fields it has."""
    if socket:
        forbidden = _HTTP_ONLY + (("stream_options",) if options.refuses_stream_options else ())
        for name in forbidden:
            if name in body:
                raise Refusal(400, f"Unsupported parameter: {name}", code="unsupported_parameter", param=name)
    else:
        for name in _SOCKET_ONLY:
            if name in body:
                raise Refusal(400, f"Unknown parameter: '{name}'.", code="unknown_parameter", param=name)
    for name, (wanted, holds) in _TYPES.items():
        if body.get(name) is not None and not holds(body[name]):
            raise _wrong_type(name, wanted)
    if body.get("model") is None:
        raise _missing("model")
    if not isinstance(body["model"], str):
        raise _wrong_type("model", "a string")
    if body["model"] in options.unknown_models:
        message = f"The model '{body['model']}' does not exist or you do not have access to it."
        raise Refusal(404, message, code="model_not_found")
    if body.get("stream_options") is not None and not socket and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise Refusal(400, message, param="stream_options")
    if body.get("previous_response_id") is not None and body.get("conversation") is not None:
        message = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
        raise Refusal(400, message, code="mutually_exclusive_parameters")
    if body.get("max_output_tokens") is not None and body["max_output_tokens"] < 1:
        message = "Invalid 'max_output_tokens': integer below minimum value."
        raise Refusal(400, message, code="integer_below_min_value", param="max_output_tokens")
    _check_input(body)
    for index, tool in enumerate(body.get("tools") or ()):
        if not isinstance(tool.get("type"), str):
            raise _missing(f"tools[{index}].type")
        if tool["type"] in ("function", "custom") and not isinstance(tool.get("name"), str):
            raise _missing(f"tools[{index}].name")


def _check_input(body: dict[str, Any]) -> None:
    given = body.get("input")
    if given is None:
        if any(body.get(name) is not None for name in ("previous_response_id", "conversation", "prompt")):
            return
        raise _missing("input")
    if isinstance(given, str):
        return
    for index, item in enumerate(given):
        place = f"input[{index}]"
        if not isinstance(item, dict):
            raise _wrong_type(place, "an object")
        kind = item.get("type")
        if kind is not None and not isinstance(kind, str):
            raise _wrong_type(f"{place}.type", "a string")
        if kind in (None, "message"):
            if item.get("role") is None:
                if kind is None and isinstance(item.get("id"), str):
                    continue
                raise _missing(f"{place}.role")
            if item["role"] not in ("user", "assistant", "system", "developer"):
                raise Refusal(
                    400, f"Invalid value: '{item['role']}'.", code="invalid_value", param=f"{place}.role"
                )
            if not isinstance(item.get("content"), str | list):
                raise _missing(f"{place}.content")
        elif kind in ("function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output"):
            for name in ("call_id", "output") if kind.endswith("_output") else ("call_id", "name"):
                if item.get(name) is None:
                    raise _missing(f"{place}.{name}")
        elif kind in REQUIRED:
            for name in REQUIRED[kind]:
                if item.get(name) is None:
                    raise _missing(f"{place}.{name}")
        elif kind == "item_reference" and not isinstance(item.get("id"), str):
            raise _missing(f"{place}.id")


def _missing(name: str) -> Refusal:
    message = f"Missing required parameter: '{name}'."
    return Refusal(400, message, code="missing_required_parameter", param=name)


def _wrong_type(name: str, wanted: str) -> Refusal:
    return Refusal(400, f"Invalid type for '{name}': expected {wanted}.", code="invalid_type", param=name)
