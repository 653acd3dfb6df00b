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


_SEALED = "encrypted_content"
_PART_LISTS = frozenset({"content", "summary"})
_SPELLING = frozenset({"id", _SEALED, "annotations", "logprobs", "created_by", "parsed"})
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
    match(lambda here, there: _alike(mine[here], theirs[there]))
    match(lambda here, there: indexes[here] == there)
    return pairs


def _agree(mine: Any, theirs: Any, *names: str) -> bool:
    if not isinstance(mine, dict) or not isinstance(theirs, dict):
        return False
    return all(isinstance(mine.get(name), str) and mine[name] == theirs.get(name) for name in names)


def _same(mine: bytes, theirs: bytes) -> bool:
    return mine == theirs or _alike(_opened(mine), _opened(theirs))


def _alike(mine: Any, theirs: Any) -> bool:
    """Whether two copies say the same. What is encrypted can be written anew, but then its id must vouch for it."""
    try:
        if _meaning(mine) != _meaning(theirs):
            return False
    except RecursionError:
        return False
    if not isinstance(mine, dict) or _agree(mine, theirs, "id"):
        return True
    sealed = mine.get(_SEALED), theirs.get(_SEALED)
    return None in sealed or sealed[0] == sealed[1]


def _equal(mine: bytes, theirs: bytes) -> bool:
    try:
        return mine == theirs or bool(_exact(_opened(mine)) == _exact(_opened(theirs)))
    except RecursionError:
        return False


def _opened(item: bytes) -> Any:
    try:
        return open_json(item)
    except ValueError:
        return item


def _meaning(item: Any) -> Any:
    """An item or part without what is spelling. Tool data, schemas and the like are compared as they are."""
    if not isinstance(item, dict):
        return _exact(item)
    kept: dict[str, Any] = {}
    for name, value in item.items():
        if value is None or name in _SPELLING or (name == "status" and value == "completed"):
            continue
        if name in _PART_LISTS and isinstance(value, list):
            if value:
                kept[name] = [_meaning(part) for part in value]
        else:
            kept[name] = _exact(value)
    return kept


def _exact(value: Any) -> Any:
    """A value for which ``==`` is the equality of JSON: in Python 1, 1.0 and True are one."""
    if isinstance(value, dict):
        return {name: _exact(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_exact(entry) for entry in value]
    return (type(value), value) if isinstance(value, int | float) else value
