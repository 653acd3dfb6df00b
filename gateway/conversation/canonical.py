"""Canonical JSON: one spelling for each value, so that equal values have equal digests.

Numbers stay as written (1, 1.0 and 1e0 are different, integers of any size are exact), keys are sorted, and an object with a
duplicate key has no canonical form, because readers disagree about which of the two counts.
"""

from __future__ import annotations

import json
from typing import Any

import orjson


class Ambiguous(ValueError):
    """The text is no strict JSON, or has a duplicate key: it can only be compared byte for byte."""


def read_exactly(text: bytes) -> Any:
    """The value of a JSON text with its numbers as written (as ``orjson.Fragment`` where they could change); raises Ambiguous."""
    try:
        value = orjson.loads(text)
        again = orjson.dumps(value)
        if again == text or (_says_as_much(again, text) and _has_one_spelling_of_numbers(value, text)):
            return value
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_as_written,
            parse_float=_as_written,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError, TypeError):
        raise Ambiguous("no canonical form") from None


def write_canonically(value: Any) -> bytes:
    """The canonical bytes of a value from ``read_exactly``; raises Ambiguous for strings that are no Unicode text."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, RecursionError):
        raise Ambiguous("no canonical form") from None


def canonical_text(text: bytes) -> bytes:
    """The canonical bytes of a JSON text; raises Ambiguous."""
    return write_canonically(read_exactly(text))


def _says_as_much(again: bytes, text: bytes) -> bool:
    """Whether ``text`` has no key twice, given its value written ``again``: of two equal keys the first was lost, quotes and all."""
    return again.count(b'"') == text.count(b'"') and (b"\\" not in text or b"\\u0022" not in text)


_PLAIN = frozenset({str, bool, type(None)})


def _has_one_spelling_of_numbers(value: Any, text: bytes) -> bool:
    """Whether each number of the value can be written in one way only: whole numbers can, but for a zero with a sign."""
    waiting = [value]
    for container in waiting:
        kind = type(container)
        for inner in container.values() if kind is dict else container if kind is list else (container,):
            kind = type(inner)
            if kind in _PLAIN:
                continue
            if kind is int:
                if inner == 0 and b"-0" in text:
                    return False
            elif kind is float:
                return False
            else:
                waiting.append(inner)
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Ambiguous("duplicate key")
    return value


def _as_written(number: str) -> orjson.Fragment:
    return orjson.Fragment(number)


def _refuse(_: str) -> Any:
    raise Ambiguous("not a JSON number")
