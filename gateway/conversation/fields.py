"""The fields of a request beside its input, and whether a change in them still allows a delta.

``previous_response_id`` carries items only. Every other field is sent on every turn as the client wrote it, so most changes
are harmless. A few change what the held context means, or could be inherited from the parent when they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.conversation.canonical import Ambiguous, canonical_text
from gateway.conversation.digests import Digester
from gateway.protocol.raw import Member

# Left out of every comparison: the input itself, and what says how the answer travels.
_NOT_SETTINGS = frozenset({"input", "previous_response_id", "stream", "background"})
# What clients change on every request without meaning the model (a client's own bookkeeping).
_BOOKKEEPING = frozenset({"client_metadata", "stream_options", "access_programs"})
# A change of one of these changes what the held items mean, or how the API treats them.
_BINDING = ("model", "store", "context_management", "safety_identifier", "user")
# The documented defaults: writing one is the same as leaving the field out.
_DEFAULTS: dict[str, tuple[bytes, ...]] = {
    "store": (b"true",),
    "truncation": (b'"disabled"',),
    "parallel_tool_calls": (b"true",),
    "temperature": (b"1", b"1.0"),
    "top_p": (b"1", b"1.0"),
    "top_logprobs": (b"0",),
    "tool_choice": (b'"auto"',),
    "service_tier": (b'"auto"',),
    "tools": (b"[]",),
    "include": (b"[]",),
    "metadata": (b"{}",),
    "text": (b"{}", b'{"format":{"type":"text"}}'),
    "reasoning": (b"{}",),
}

_LONG = 512
_MOST_LONG = 1024


@dataclass(frozen=True, slots=True)
class FieldFacts:
    """What is remembered of a request's fields.

    ``names`` are the fields that say something else than their default; ``binding`` digests the values that must not change,
    ``every`` all values but the client's own bookkeeping. ``truncates`` is set when the API may drop items by itself.
    """

    names: frozenset[str]
    binding: bytes
    every: bytes
    truncates: bool


class FieldReader:
    """Gives the facts of requests' fields; long values (tools, instructions) that come again are known by their bytes."""

    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self._long: dict[bytes, bytes] = {}

    def facts(self, members: Iterable[Member]) -> FieldFacts:
        """The facts of all fields of one request."""
        values: dict[str, bytes] = {}
        for member in members:
            if member.name not in _NOT_SETTINGS and member.value != b"null":
                value = self._canonical(member)
                if value != b"null" and value not in _DEFAULTS.get(member.name, ()):
                    values[member.name] = value
        digest = self._digester.digest
        binding = [values.get(name, b"") for name in _BINDING]
        binding.append(_reasoning_context(values.get("reasoning")))
        every = [
            part for name in sorted(values.keys() - _BOOKKEEPING) for part in (name.encode(), values[name])
        ]
        return FieldFacts(frozenset(values), digest(*binding), digest(*every), "truncation" in values)

    def _canonical(self, member: Member) -> bytes:
        """The canonical text of a value, or what stands for it where it is long."""
        if len(member.value) < _LONG or member.name == "reasoning":
            return _canonical(bytes(member.value))
        spelling = self._digester.raw(member.value)
        known = self._long.get(spelling)
        if known is None:
            if len(self._long) >= _MOST_LONG:
                self._long.clear()
            known = b"long:" + self._digester.digest(_canonical(bytes(member.value)))
            self._long[spelling] = known
        return known


def field_facts(members: Iterable[Member], digester: Digester) -> FieldFacts:
    """The facts of all fields of one request, by a reader that remembers nothing."""
    return FieldReader(digester).facts(members)


def allows_delta(parent: FieldFacts, request: FieldFacts, *, any_change: bool) -> bool:
    """Whether ``request`` may continue ``parent`` as a delta; with ``any_change`` every difference forbids it."""
    if request.truncates or parent.binding != request.binding or not parent.names <= request.names:
        return False
    return not any_change or parent.every == request.every


def _canonical(value: bytes) -> bytes:
    try:
        return canonical_text(value)
    except Ambiguous:
        return b"raw:" + value


def _reasoning_context(reasoning: bytes | None) -> bytes:
    if reasoning is None:
        return b""
    try:
        value: Any = orjson.loads(reasoning)
    except orjson.JSONDecodeError:
        return reasoning
    context = value.get("context") if isinstance(value, dict) else None
    return b"" if context is None else orjson.dumps(context)
