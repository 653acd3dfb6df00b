"""The output of a response, put together from what was streamed and what its terminal event lists.

The terminal list can be absent, null, empty, partial, or hold an unfinished copy of an item that was streamed finished. A
finished streamed item outranks the terminal copy; items that only the terminal list has are added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.protocol.events import open_json
from gateway.protocol.raw import NotSliceable, split_array


@dataclass(frozen=True, slots=True)
class Output:
    """``items`` raw and in order. ``as_sent`` tells that the terminal list says just that, so its bytes can be kept.

    ``contradicts`` tells that stream and terminal list cannot both be right, or that something was streamed which neither
    finished: what the upstream holds is then not known.
    """

    items: tuple[bytes, ...]
    as_sent: bool
    contradicts: bool


_SPELLING = frozenset({"id", "encrypted_content", "annotations", "logprobs", "created_by", "parsed"})
"""Keys in which two copies of one item may differ without saying anything else to the model."""


def assemble(
    finished: Sequence[tuple[int, bytes]], terminal: bytes | None, touched: Collection[int] = ()
) -> Output:
    """The output of a response.

    ``finished`` are the raw items of the item-finished events with their output index, in order of arrival; ``terminal`` the
    raw value of the terminal event's ``output``, None if it has none; ``touched`` every output index that any event named.
    """
    streamed = sorted(finished, key=lambda entry: entry[0])
    own = tuple(item for _, item in streamed)
    if terminal is not None and terminal == b"[" + b",".join(own) + b"]":
        return Output(own, as_sent=True, contradicts=len(touched) > len(own))
    if terminal is None or terminal == b"null":
        return Output(own, as_sent=False, contradicts=len(touched) > len(own))
    try:
        listed = split_array(terminal)
    except NotSliceable:
        return Output(own, as_sent=False, contradicts=True)
    pairs = _pair(streamed, listed)
    order = [pairs[at] for at in range(len(listed)) if at in pairs]
    same = all(_same(own[mine], listed[theirs]) for theirs, mine in pairs.items()) and order == sorted(order)
    if same and len(order) == len(own):
        items = tuple(own[pairs[at]] if at in pairs else item for at, item in enumerate(listed))
    else:
        items = own + tuple(item for at, item in enumerate(listed) if at not in pairs)
    as_sent = len(items) == len(listed) and all(
        _equal(mine, theirs) for mine, theirs in zip(items, listed, strict=True)
    )
    return Output(items, as_sent=as_sent, contradicts=not same or len(touched) > len(items))


def _pair(streamed: Sequence[tuple[int, bytes]], listed: Sequence[bytes]) -> dict[int, int]:
    """Which listed item (by position) is the copy of which streamed one, from the surest sign to the weakest."""
    mine = [_opened(item) for _, item in streamed]
    theirs = [_opened(item) for item in listed]
    indexes = [index for index, _ in streamed]
    pairs: dict[int, int] = {}
    taken: set[int] = set()

    def match(alike: Callable[[int, int], bool]) -> None:
        for there in range(len(listed)):
            if there in pairs:
                continue
            for here in range(len(streamed)):
                if here not in taken and alike(here, there):
                    pairs[there] = here
                    taken.add(here)
                    break

    if not streamed:
        return pairs
    match(lambda here, there: _agree(mine[here], theirs[there], "id"))
    match(lambda here, there: _agree(mine[here], theirs[there], "type", "call_id"))
    match(lambda here, there: _agree(mine[here], theirs[there], "call_id"))
    match(lambda here, there: _meaning(mine[here]) == _meaning(theirs[there]))
    match(lambda here, there: indexes[here] == there)
    return pairs


def _agree(mine: Any, theirs: Any, *names: str) -> bool:
    if not isinstance(mine, dict) or not isinstance(theirs, dict):
        return False
    return all(isinstance(mine.get(name), str) and mine[name] == theirs.get(name) for name in names)


def _same(mine: bytes, theirs: bytes) -> bool:
    return mine == theirs or _meaning(_opened(mine)) == _meaning(_opened(theirs))


def _equal(mine: bytes, theirs: bytes) -> bool:
    return mine == theirs or _opened(mine) == _opened(theirs)


def _opened(item: bytes) -> Any:
    try:
        return open_json(item)
    except ValueError:
        return item


def _meaning(value: Any) -> Any:
    """An item or part without what is spelling; nothing inside tool data other than the known keys is left out."""
    if isinstance(value, list):
        return [_meaning(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, entry in value.items():
        if entry is None or name in _SPELLING or (name == "status" and entry == "completed"):
            continue
        kept[name] = (
            [_meaning(part) for part in entry]
            if name in {"content", "summary"} and isinstance(entry, list)
            else entry
        )
    return kept
