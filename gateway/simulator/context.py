"""The effective context of a response: what the model would be shown, item by item, with the rules an upstream checks.

A context shares everything with the one it continues, so that a long conversation costs its new items only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gateway.simulator.canonical import (
    Item,
    Origin,
    both_forms,
    digest,
    is_tool_call,
    is_tool_output,
    no_origin,
    strict_form,
)
from gateway.simulator.refusal import Refusal

_HINT = re.compile(r"\b(loop|words|hosted) (\d{1,6})\b")
Resolve = Callable[[str], Item | None]


@dataclass(frozen=True, slots=True)
class Digests:
    """Digests of one context, 16 hex digits each, and the number of items that count at the ``modulo`` level."""

    strict: str
    modulo: str
    loose: str
    items: int


@dataclass(frozen=True, slots=True)
class Context:
    """An immutable list of items with its digests. ``extended`` is the only way to a longer one."""

    before: Context | None = None
    own: tuple[Item, ...] = ()
    strict: bytes = b""
    modulo: bytes = b""
    loose: bytes = b""
    items: int = 0
    size: int = 0
    ids: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    open_calls: tuple[tuple[str, str], ...] = ()
    rounds: int = 0
    hints: dict[str, int] = field(default_factory=dict)
    after: str = "nothing"
    """What the last item that counts is: nothing, user, output, or other."""

    def __iter__(self) -> Iterator[Item]:
        links = []
        link: Context | None = self
        while link is not None:
            links.append(link)
            link = link.before
        for one in reversed(links):
            yield from one.own

    @property
    def digests(self) -> Digests:
        """Short printable digests of all items so far."""
        return Digests(self.strict.hex()[:16], self.modulo.hex()[:16], self.loose.hex()[:16], self.items)

    def extended(
        self,
        items: Iterable[Item],
        *,
        origin: Origin = no_origin,
        resolve: Resolve | None = None,
        checked: bool = True,
    ) -> Context:
        """The context of this one's items and ``items`` behind them.

        ``resolve`` gives the item that an ``item_reference`` names. With ``checked`` the rules for ids and tool outputs are
        enforced; raises Refusal.
        """
        growing = _Growing(self, origin, resolve, checked=checked)
        for item in items:
            growing.add(item)
        return growing.done()

    def require_outputs(self) -> None:
        """Refuse if a tool call still waits for its output."""
        if self.open_calls:
            call_id, kind = self.open_calls[0]
            what = "function call" if kind == "function_call" else kind.replace("_", " ")
            raise Refusal(400, f"No tool output found for {what} {call_id}.", param="input")


class _Growing:
    def __init__(self, base: Context, origin: Origin, resolve: Resolve | None, *, checked: bool) -> None:
        self._base = base
        self._origin = origin
        self._resolve = resolve
        self._checked = checked
        self._own: list[Item] = []
        self._ids = set(base.ids)
        self._calls = set(base.calls)
        self._open = dict(base.open_calls)
        self._strict, self._modulo, self._loose = base.strict, base.modulo, base.loose
        self._items, self._size = base.items, base.size
        self._rounds, self._hints, self._after = base.rounds, base.hints, base.after

    def add(self, sent: Item) -> None:
        item = sent
        if sent.get("type") == "item_reference" or set(sent) == {"id"}:
            item = self._referenced(sent)
        self._claim(item.get("id"))
        self._pair(item)
        self._own.append(item)
        strict, modulo = both_forms(item, self._origin)
        if item is not sent:
            strict = strict_form({"type": "item_reference", **sent}, self._origin)
        self._strict = digest(self._strict + strict)
        if modulo is not None:
            self._modulo = digest(self._modulo + modulo)
            if item.get("type") != "reasoning":
                self._loose = digest(self._loose + modulo)
            self._items += 1
            self._size += len(modulo)
            self._note(item)

    def done(self) -> Context:
        return Context(
            before=self._base,
            own=tuple(self._own),
            strict=self._strict,
            modulo=self._modulo,
            loose=self._loose,
            items=self._items,
            size=self._size,
            ids=frozenset(self._ids),
            calls=frozenset(self._calls),
            open_calls=tuple(self._open.items()),
            rounds=self._rounds,
            hints=self._hints,
            after=self._after,
        )

    def _note(self, item: Item) -> None:
        if is_tool_output(item):
            self._rounds += self._after != "output"
            self._after = "output"
        elif item.get("role") == "user":
            self._hints = {word: int(number) for word, number in _HINT.findall(text_of(item))}
            self._rounds, self._after = 0, "user"
        else:
            self._after = "other"

    def _referenced(self, reference: Item) -> Item:
        name = str(reference.get("id"))
        self._refuse_duplicate(name)
        item = self._resolve(name) if self._resolve else None
        if item is None:
            raise Refusal(404, f"Item with id '{name}' not found.", param="input")
        return item

    def _claim(self, name: Any) -> None:
        if isinstance(name, str):
            self._refuse_duplicate(name)
            self._ids.add(name)

    def _refuse_duplicate(self, name: str) -> None:
        if self._checked and name in self._ids:
            raise Refusal(
                400,
                f"Duplicate item found with id {name}. Remove duplicate items from your input and try again.",
                param="input",
            )

    def _pair(self, item: Item) -> None:
        if is_tool_call(item):
            self._calls.add(item["call_id"])
            self._open[item["call_id"]] = item["type"]
        elif is_tool_output(item):
            name = item.get("call_id") or item.get("id")
            if not isinstance(name, str):
                return
            if self._checked and item.get("call_id") and name not in self._calls:
                raise Refusal(
                    400, f"No tool call found for function call output with call_id {name}.", param="input"
                )
            self._open.pop(name, None)


def text_of(message: Item) -> str:
    """All text of a message, parts joined."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(
        part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def items_of(value: str | list[Item] | None) -> list[Item]:
    """The items that an ``input`` field stands for: a string is one user message."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": "user", "content": [{"type": "input_text", "text": value}]}]
    return value


def digest_of(
    value: str | list[Item], *, origin: Origin = no_origin, resolve: Resolve | None = None
) -> Digests:
    """The digests that an answer to this whole ``input`` quotes; nothing is refused but unknown references."""
    return Context().extended(items_of(value), origin=origin, resolve=resolve, checked=False).digests
