"""Scripts: answers that are laid down beforehand instead of derived from the context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gateway.simulator.canonical import Item
from gateway.simulator.context import Context, Digests, items_of
from gateway.simulator.refusal import Refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One admitted create. ``context`` is everything the model is shown; ``ordinal`` counts admitted creates from 0."""

    body: Mapping[str, Any]
    context: Context
    ordinal: int
    transport: Literal["http", "ws"]
    digests_of: Callable[[list[Item]], Digests]
    """The digests that another context would have here, where the ids given out so far are known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A scripted answer. Items without an id are given one."""

    items: tuple[Item, ...]
    response_id: str | None = None
    status: Literal["completed", "incomplete", "failed"] = "completed"
    reason: str | None = None


class Script(Protocol):
    """Decides answers; may keep state, since it is asked once for each admitted create, in order."""

    def reply(self, ask: Ask) -> Reply | None:
        """The answer, or None for the one derived from the context. May raise Refusal."""


class FunctionScript:
    """A script made of one function from what is asked to output items."""

    def __init__(self, function: Callable[[Ask], Iterable[Item] | None]) -> None:
        self._function = function

    def reply(self, ask: Ask) -> Reply | None:
        """What the function says; None for the derived answer."""
        items = self._function(ask)
        return None if items is None else Reply(items=tuple(items))


class TraceScript:
    """Answers a recorded conversation with its recorded items, under their recorded ids.

    A row has the request's ``body`` and a ``reply`` with ``id`` and ``output``. Each create takes the first unused row whose
    request had the same context; if none has, the first unused one, and ``strays`` counts it. Rows without a list of output
    items are left out. When all are used up, creates are refused with 500.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows = [row for row in rows if _is_turn(row)]
        self.strays = 0

    def __len__(self) -> int:
        return len(self._rows)

    def reply(self, ask: Ask) -> Reply:
        """The recorded answer of the row that this create takes."""
        if not self._rows:
            raise Refusal(
                500, "The recorded trace has no further answers.", kind="server_error", code="trace_used_up"
            )
        wanted = ask.context.digests.modulo
        found = next((at for at, row in enumerate(self._rows) if _context_digest(row, ask) == wanted), None)
        if found is None:
            self.strays += 1
            found = 0
        recorded = self._rows.pop(found)["reply"]
        return Reply(items=tuple(recorded["output"]), response_id=recorded.get("id"))


def _is_turn(row: Mapping[str, Any]) -> bool:
    reply = row.get("reply")
    body = row.get("body")
    return (
        isinstance(reply, Mapping)
        and isinstance(reply.get("output"), list)
        and isinstance(body, Mapping)
        and "input" in body
    )


def _context_digest(row: Mapping[str, Any], ask: Ask) -> str | None:
    try:
        return ask.digests_of(items_of(row["body"]["input"])).modulo
    except Refusal:
        return None
