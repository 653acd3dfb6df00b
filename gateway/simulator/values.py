"""Made-up values: dice that fall the same way for the same context, values for JSON schemas, oddly spelled JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

_AWKWARD = (
    "Zürich",
    "a\u2028b",
    'tab\tand "quotes"',
    "😀 ok",
    "line\nend\n",
    "back\\slash",
    "\x85next",
    "plain",
)
_HARMLESS = {
    "cmd": "true",
    "command": "true",
    "script": "true",
    "path": "README.md",
    "file_path": "README.md",
}
_DEPTH = 8
Choice = TypeVar("Choice")


class Dice:
    """Numbers and texts drawn from a seed; the n-th draw of equal seeds is equal."""

    def __init__(self, *seed: str) -> None:
        self._key = blake2b("\0".join(seed).encode(), digest_size=32).digest()
        self._draws = 0

    def _draw(self) -> bytes:
        self._draws += 1
        return blake2b(self._draws.to_bytes(8, "big"), key=self._key, digest_size=32).digest()

    def below(self, limit: int) -> int:
        """A number from 0 to ``limit`` - 1."""
        return int.from_bytes(self._draw()[:8], "big") % limit

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """One of ``choices``."""
        return choices[self.below(len(choices))]

    def hex(self, digits: int) -> str:
        """A text of hex digits, at most 64."""
        return self._draw().hex()[:digits]

    def blob(self, size: int) -> str:
        """A base64url text, as opaque as encrypted content."""
        raw = b"".join(self._draw() for _ in range(size // 32 + 1))
        return base64.urlsafe_b64encode(raw[:size]).decode()


def value_for(
    schema: Any, dice: Dice, *, name: str = "", mark: str = "", root: Any = None, depth: int = 0
) -> Any:
    """A value that is valid for ``schema`` (the usual subset: types, enum, const, properties, items, anyOf, $ref).

    ``mark`` is put into the first free text, so that the value shows the digest it was made for.
    """
    if not isinstance(schema, Mapping):
        return mark or dice.pick(_AWKWARD)
    root = schema if root is None else root

    def inner(part: Any, key: str, said: str = "") -> Any:
        return value_for(part, dice, name=key, mark=said, root=root, depth=depth + 1)

    if "$ref" in schema:
        return inner(_pointed(root, str(schema["$ref"])), name, mark) if depth < _DEPTH else None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return dice.pick(list(schema["enum"]))
    for union in ("anyOf", "oneOf", "allOf"):
        if schema.get(union):
            return inner(schema[union][0 if depth < _DEPTH else -1], name, mark)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0] if depth < _DEPTH else kind[-1]
    match kind:
        case "object":
            required = schema.get("required", list(schema.get("properties", {})))
            value = {}
            for key, part in schema.get("properties", {}).items():
                if key in required:
                    value[key] = inner(part, key, mark)
                    mark = "" if mark and mark in str(value[key]) else mark
            return value
        case "array":
            wanted = (
                max(int(schema.get("minItems", 1)), 1) if depth < _DEPTH else int(schema.get("minItems", 0))
            )
            return [inner(schema.get("items", {}), name, mark) for _ in range(wanted)]
        case "integer":
            return max(int(schema.get("minimum", 0)), 0) + dice.below(5)
        case "number":
            return float(max(schema.get("minimum", 0), 0)) + dice.below(8) / 2
        case "boolean":
            return dice.below(2) == 1
        case "null":
            return None
        case _:
            return _HARMLESS.get(name) or mark or dice.pick(_AWKWARD)


def odd_json(value: Any, dice: Dice) -> str:
    """``value`` as valid JSON that no serialiser would write like that again: spaces, escapes, key order."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=dice.below(2) == 0)
        case dict():
            pairs = list(value.items())
            if dice.below(2):
                pairs.reverse()
            gap = dice.pick((": ", ":", " : "))
            members = [f"{json.dumps(key)}{gap}{odd_json(part, dice)}" for key, part in pairs]
            return "{" + dice.pick((", ", ",", " ,\t")).join(members) + "}"
        case list():
            return "[" + dice.pick((", ", ",")).join(odd_json(part, dice) for part in value) + "]"
        case _:
            return json.dumps(value)


def _pointed(root: Any, pointer: str) -> Any:
    place = root
    for step in pointer.removeprefix("#").strip("/").split("/"):
        if step and isinstance(place, Mapping):
            place = place.get(step.replace("~1", "/").replace("~0", "~"), {})
    return place
