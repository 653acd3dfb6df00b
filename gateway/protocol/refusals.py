"""What an error of the upstream would have been over plain HTTP: status, headers and body.

Over a socket errors come in several shapes: nested in ``error``, flat, an error inside an error, ``response.failed``, a bare
``detail``; with ``status``, with ``status_code``, or with none, in which case the status follows from type and code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import msgspec

from gateway.errors import error_body
from gateway.protocol.events import open_json
from gateway.protocol.raw import NotSliceable, places, removal, splice


class Cause(Enum):
    """What a refusal means for a second try."""

    NOT_FOUND = auto()
    """The parent is gone. Nothing ran; the whole input without a parent can be sent."""
    CONNECTION_LIMIT = auto()
    """The socket is too old for new work. Nothing ran; another socket can take it."""
    UNSUPPORTED = auto()
    """A field of the request is not taken here. Nothing ran; over plain HTTP the same field may be welcome."""
    OTHER = auto()
    """The upstream's verdict on the request, or its own trouble."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as plain HTTP would have answered it.

    ``body`` is JSON, the upstream's own error object where it sent one. ``headers`` are those that came inside the error
    (rate limits, retry-after), without the ones that belong to one connection or one body. ``stated`` tells that the upstream
    itself gave the status: only such an error may leave its socket usable. ``field`` names the member of the request that is
    not taken, where ``cause`` says so.
    """

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]
    code: str | None
    cause: Cause
    stated: bool = False
    field: str | None = None


_UNREADABLE = Refusal(
    502,
    error_body(
        message="The upstream answered with an error that could not be read.",
        kind="server_error",
        code="upstream_protocol_error",
    ),
    (),
    "upstream_protocol_error",
    Cause.OTHER,
)

_NOT_FOUND_CODE = "previous_response_not_found"
_LIMIT_CODE = "websocket_connection_limit_reached"
_NOT_FOUND_TEXT = re.compile(
    r"previous_response_not_found|\bprevious[ _]response\b.{0,200}?"
    r"\b(?:not[ _](?:be[ _])?found|does not exist|no longer (?:available|exists))",
    re.IGNORECASE | re.DOTALL,
)
# A member of the request itself; what lies deeper means the same on either transport.
_UNSUPPORTED_TEXT = re.compile(r"(?:Unsupported|Unknown) parameter: '?([a-z_]{1,64})(?:'|\.?\Z| )")
_DEPTH = 4
_HTTP_ERRORS = range(400, 600)

_BAD_REQUEST = (
    r"invalid_\w+|unsupported_\w+|\w*_policy\w*|context_length_exceeded|missing_required_parameter|unknown_parameter"
    r"|data_residency_mismatch|image_\w+|empty_image_file|failed_to_download_image|bad_request"
)
_STATUS_BY_NAME = (
    (400, re.compile(r"previous_response_not_found|image_file_not_found|websocket_\w+_limit_reached")),
    (
        429,
        re.compile(
            r"\w*rate_limit\w*|\w*quota\w*|credit_balance_\w+|usage_limit_\w+|too_many_requests|tokens|requests"
        ),
    ),
    (503, re.compile(r"\w*overloaded\w*|\w*service_unavailable\w*|slow_down")),
    (401, re.compile(r"authentication_error|invalid_api_key|invalid_authentication\w*|unauthorized")),
    (403, re.compile(r"permission_\w+|forbidden|unsupported_country_region_territory")),
    (404, re.compile(r"\w*not_found\w*")),
    (400, re.compile(_BAD_REQUEST)),
    (500, re.compile(r"server_error|internal_\w+|api_error|vector_store_timeout")),
)
"""Which status a code or type stands for where the upstream gave none; the first pattern that fits the whole name."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NOT_OURS_TO_COPY = frozenset(
    {
        "connection", "content-encoding", "content-length", "content-type", "date", "keep-alive", "proxy-authenticate",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_OURS = "x-upwire-"


def refusal_of(event: bytes) -> Refusal:
    """The refusal that an ``error``, ``response.error`` or ``response.failed`` event stands for.

    Never raises: what cannot be read gives a 502 of our own.
    """
    try:
        opened = open_json(event)
    except ValueError:
        return _UNREADABLE
    if not isinstance(opened, dict):
        return _UNREADABLE
    layers, path = _layers(opened)
    error = layers[-1]
    code = _first_text(layers, "code")
    message = _first_text(layers, "message") or _first_text(layers, "detail")
    if not path and message is None and code is None:
        return _UNREADABLE
    stated = _stated_status(layers)
    cause = _cause(code, message, stated)
    status = stated or _derived_status(code, error.get("type"), cause)
    field = _unsupported(message, status) if cause is Cause.OTHER else None
    return Refusal(
        status,
        _body(event, path, error, status, message),
        _headers(layers),
        code,
        cause if field is None else Cause.UNSUPPORTED,
        stated is not None,
        field,
    )


def not_found_over_http(status: int, body: bytes) -> bool:
    """Whether a plain HTTP answer says that the parent is unknown, in whichever shape."""
    if status not in (400, 404):
        return False
    refusal = refusal_of(body)
    return refusal.cause is Cause.NOT_FOUND


def _layers(opened: dict[str, Any]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The objects from the event down to the innermost error object, and the keys that lead there."""
    layers = [opened]
    path: tuple[str, ...] = ()
    here = opened
    for _ in range(_DEPTH):
        for key in ("error", "response", "body"):
            inner = here.get(key)
            if isinstance(inner, dict) and (key == "error" or isinstance(inner.get("error"), dict)):
                here, path = inner, (*path, key)
                layers.append(inner)
                break
        else:
            break
    return layers, path


def _first_text(layers: list[dict[str, Any]], name: str) -> str | None:
    for layer in reversed(layers):
        value = layer.get(name)
        if isinstance(value, str) and value:
            return value
    bare = layers[-1].get("error")
    return bare if name == "message" and isinstance(bare, str) and bare else None


def _stated_status(layers: list[dict[str, Any]]) -> int | None:
    for layer in layers:
        for name in ("status", "status_code"):
            value = layer.get(name)
            if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
                value = int(value)
            if isinstance(value, int) and value in _HTTP_ERRORS:
                return int(value)
    return None


def _cause(code: str | None, message: str | None, stated: int | None) -> Cause:
    if code == _NOT_FOUND_CODE:
        return Cause.NOT_FOUND
    if code == _LIMIT_CODE or (message is not None and _LIMIT_CODE in message):
        return Cause.CONNECTION_LIMIT
    if message is not None and stated in (None, 400, 404) and _NOT_FOUND_TEXT.search(message):
        return Cause.NOT_FOUND
    return Cause.OTHER


def _unsupported(message: str | None, status: int) -> str | None:
    found = _UNSUPPORTED_TEXT.match(message) if message is not None and status == 400 else None
    return None if found is None else found[1]


def _derived_status(code: str | None, kind: Any, cause: Cause) -> int:
    if cause is not Cause.OTHER:
        return 400
    for name in (code, kind):
        if isinstance(name, str):
            for status, pattern in _STATUS_BY_NAME:
                if pattern.fullmatch(name):
                    return status
    return 500


def _body(
    event: bytes, path: tuple[str, ...], error: dict[str, Any], status: int, message: str | None
) -> bytes:
    own = _own_error(event, path)
    if own is not None and (message is None or isinstance(error.get("message"), str)):
        return b'{"error":' + own + b"}"
    written = {
        "message": message or "The upstream gave no message.",
        "type": "invalid_request_error" if status < 500 else "server_error",
        "param": None,
        "code": None,
    }
    hidden = {"headers", "status", "status_code", "sequence_number", "stream_id", "detail", "error"}
    kept = {name: value for name, value in error.items() if value is not None and name not in hidden}
    if not path:
        kept = {name: kept[name] for name in ("param", "code") if name in kept}
    try:
        return msgspec.json.encode({"error": {**written, **kept}})
    except (ValueError, msgspec.MsgspecError, RecursionError, OverflowError):
        return error_body(message="The upstream refused the request.", kind="server_error")


def _own_error(event: bytes, path: tuple[str, ...]) -> bytes | None:
    """The upstream's own error object byte for byte, but for the headers inside it."""
    if not path:
        return None
    text = event
    try:
        for key in path:
            place = places(text)[key]
            text = text[place.start : place.end]
        found = places(text)
        return splice(text, [removal(found, "headers")]) if "headers" in found else text
    except (NotSliceable, KeyError):
        return None


def _headers(layers: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    kept: dict[str, tuple[str, str]] = {}
    pairs = [
        (name, str(value).strip())
        for name, value in _header_pairs(layers)
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    ]
    listed = {
        word.strip().lower()
        for name, value in pairs
        if name.lower() == "connection"
        for word in value.split(",")
    }
    for name, text in pairs:
        low = name.lower()
        if low in _NOT_OURS_TO_COPY or low in listed or low.startswith(_OURS):
            continue
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(text):
            continue
        kept.setdefault(low, (name, text))
    return tuple(kept.values())


def _header_pairs(layers: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for layer in reversed(layers):
        headers = layer.get("headers")
        if isinstance(headers, dict):
            for name, value in headers.items():
                yield name, value[0] if isinstance(value, list) and value else value
