"""Everything the simulated upstream received, in order, for tests to look at. Holds keys and bodies: never log it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.simulator.canonical import Item
from gateway.simulator.context import Digests, items_of

Kind = Literal["request", "create", "frame", "open", "upgrade_refused", "close"]
Outcome = Literal[
    "running", "completed", "failed", "incomplete", "refused", "error", "broken", "cancelled", "answered"
]


@dataclass(kw_only=True, eq=False)
class Entry:
    """One thing that happened. A ``create`` is a request for a response over either transport.

    ``connection`` numbers TCP connections from 1; ``at`` is in seconds of the running loop's clock; header names are lower
    case. Kinds: ``frame`` is a frame that is not a create, ``request`` any other HTTP request.
    """

    kind: Kind
    transport: Literal["http", "ws"]
    connection: int
    at: float
    number: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    method: str = ""
    path: str = ""
    raw: bytes = b""
    body: Any = None
    lane: str | None = None
    overlapped: bool = False
    """It arrived while its lane was still busy."""
    response_id: str | None = None
    digests: Digests | None = None
    """Of the whole effective context that it was answered in."""
    outcome: Outcome = "running"
    status: int | None = None
    """The HTTP status, or that of the refusal."""
    code: str | None = None
    close_code: int | None = None
    closed_by: Literal["client", "server", "lost"] | None = None

    @property
    def items(self) -> list[Item]:
        """The items that this create itself held."""
        given = self.body.get("input") if isinstance(self.body, dict) else None
        return items_of(given) if isinstance(given, str | list) else []

    @property
    def parent(self) -> str | None:
        """The ``previous_response_id`` that this create named."""
        given = self.body.get("previous_response_id") if isinstance(self.body, dict) else None
        return given if isinstance(given, str) else None

    @property
    def key(self) -> str:
        """The bearer key presented."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")


class Journal:
    """The entries of one upstream, oldest first."""

    def __init__(self, limit: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)
        self._count = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> Entry:
        return self._entries[index]

    def add(self, entry: Entry) -> Entry:
        """Append ``entry`` and number it."""
        self._count += 1
        entry.number = self._count
        self._entries.append(entry)
        return entry

    def clear(self) -> None:
        """Drop all entries; connections go on."""
        self._entries.clear()

    def creates(self, transport: Literal["http", "ws"] | None = None) -> list[Entry]:
        """All creates, refused ones included."""
        return [one for one in self if one.kind == "create" and transport in (None, one.transport)]

    def opened(self) -> list[Entry]:
        """All sockets that were accepted."""
        return [one for one in self if one.kind == "open"]

    def closed(self) -> list[Entry]:
        """All sockets that have ended."""
        return [one for one in self if one.kind == "close"]

    def overlaps(self) -> list[Entry]:
        """Creates that arrived on a busy lane; a careful client makes none."""
        return [one for one in self.creates() if one.overlapped]

    def discard(self, entry: Entry) -> None:
        """Take ``entry`` out again."""
        self._entries.remove(entry)
