"""The items of one response as its stream announces and finishes them."""

from __future__ import annotations

from typing import Any

from gateway.protocol.assembly import Output, assemble
from gateway.protocol.ending import raw_at, slice_at, text_at
from gateway.protocol.events import Head
from gateway.protocol.raw import NotSliceable, places, split_array

_NEED_ITEM = frozenset(
    f"response.{what}.delta"
    for what in (
        "output_text",
        "refusal",
        "reasoning_text",
        "reasoning_summary_text",
        "function_call_arguments",
        "custom_tool_call_input",
        "mcp_call_arguments",
        "code_interpreter_call_code",
    )
)
_NEED_PART = frozenset({"response.output_text.delta", "response.refusal.delta"})
_NOWHERE = -1
"""Stands for an index that the upstream did not give."""


class StreamedItems:
    """Keeps the finished items raw, and which indexes were announced, so that gaps in either are seen."""

    def __init__(self) -> None:
        self.missing_setup = False
        self.held_bytes = 0
        self._finished: list[tuple[int, bytes]] = []
        self._added: set[int] = set()
        self._parts: set[tuple[int, int]] = set()
        self._touched: set[int] = set()

    def note(self, head: Head, event: bytes) -> None:
        """Take in one event. Raises NotSliceable if an item event cannot be opened."""
        kind = head.type
        if kind in _NEED_ITEM:
            self._delta(head)
        elif kind == "response.content_part.added":
            self._parts.add((_index(head.output_index), _index(head.content_index)))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            place = places(event).get("item")
            index = _index(head.output_index)
            self._touched.add(index)
            if place is None:
                return
            item = slice_at(event, place)
            if kind == "response.output_item.done":
                self._done(index, item)
            else:
                self._added.add(index)
                self._parts.update((index, at) for at in range(_parts_in(item)))

    def assemble(self, terminal: bytes | None) -> Output:
        """The output, given the terminal event's raw ``output`` (None: absent)."""
        return assemble(self._finished, terminal, self._touched)

    def _delta(self, head: Head) -> None:
        index = _index(head.output_index)
        self._touched.add(index)
        part_missing = head.type in _NEED_PART and (index, _index(head.content_index)) not in self._parts
        if index not in self._added or part_missing:
            self.missing_setup = True

    def _done(self, index: int, item: bytes) -> None:
        if index == _NOWHERE:
            index = max((at for at, _ in self._finished), default=_NOWHERE) + 1
        for at, (known, earlier) in enumerate(self._finished):
            if known == index and _same_item(earlier, item):
                self.held_bytes -= len(earlier)
                del self._finished[at]
                break
        self._finished.append((index, item))
        self.held_bytes += len(item)


def _index(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else _NOWHERE


def _parts_in(item: bytes) -> int:
    try:
        content = raw_at(item, places(item), "content")
        return 0 if content is None else len(split_array(content))
    except NotSliceable:
        return 0


def _same_item(one: bytes, other: bytes) -> bool:
    if one == other:
        return True
    try:
        named = text_at(one, places(one), "id")
        return named is not None and named == text_at(other, places(other), "id")
    except NotSliceable:
        return False
