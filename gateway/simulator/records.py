"""What the upstream remembers: every response it gave, whose it is, and which of them can be loaded again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.simulator.canonical import Item
from gateway.simulator.context import Context


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose responses: nothing of one owner exists for another."""

    key: str
    organization: str = ""
    project: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """One finished response with the context that a continuation of it starts from."""

    id: str
    owner: Owner
    context: Context
    response: dict[str, Any]
    input: tuple[Item, ...]
    status: str
    stored: bool
    previous: str | None = None
    warm_up: bool = False


@dataclass(frozen=True, slots=True)
class Issued:
    """An item that was given out: its final form, where it came from, and the response that holds it."""

    item: Item
    origin: str
    response_id: str
    reasoning_before: str | None = None


class Records:
    """All responses and items of one upstream. Memory of sockets is kept by the connections and only points in here."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._issued: dict[str, Issued] = {}
        self._gone: set[str] = set()

    def keep(self, held: Held) -> None:
        """Take in a finished response; its input items that have ids can be referenced later."""
        self._held[held.id] = held
        for item in held.input:
            name = item.get("id")
            if isinstance(name, str) and name not in self._issued and item.get("type") != "item_reference":
                self._issued[name] = Issued(item, "", held.id)

    def issue(self, item: Item, origin: str, response_id: str, reasoning_before: str | None) -> None:
        """Note an item of an answer under its id."""
        if isinstance(item.get("id"), str):
            self._issued[item["id"]] = Issued(item, origin, response_id, reasoning_before)

    def origin(self, name: str) -> str | None:
        """Where the item with this id came from, if it was given out here."""
        issued = self._issued.get(name)
        return (issued.origin or None) if issued else None

    def issued(self, name: str) -> Issued | None:
        """The item that was given out under this id."""
        return self._issued.get(name)

    def held(self, response_id: str) -> Held | None:
        """Any response ever finished, for looking at, not for serving."""
        return self._held.get(response_id)

    def alive(self, response_id: str) -> bool:
        """Whether the response was neither deleted nor forgotten."""
        return response_id not in self._gone

    def load(self, response_id: str, owner: Owner) -> Held | None:
        """The persisted copy of a response; a chain of which one response is gone cannot be put together again."""
        held = self._held.get(response_id)
        if held is None or held.owner != owner or not held.stored:
            return None
        link: str | None = response_id
        while link is not None:
            if link in self._gone:
                return None
            link = self._held[link].previous if link in self._held else None
        return held

    def referenced(self, name: str, owner: Owner) -> Item | None:
        """The stored item that an ``item_reference`` of this owner names."""
        issued = self._issued.get(name)
        if issued is None or self.load(issued.response_id, owner) is None:
            return None
        return issued.item

    def forget(self, response_id: str) -> None:
        """From now on the response is unknown, in memory and in storage."""
        self._gone.add(response_id)

    def forget_all(self) -> None:
        """Forget every response given so far."""
        self._gone.update(self._held)
