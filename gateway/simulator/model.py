"""The upstream's mind: admits a create against what is held, answers it, and remembers the response."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from gateway.simulator import hosted
from gateway.simulator.answers import compose
from gateway.simulator.canonical import Item
from gateway.simulator.context import Context, Digests, digest_of, items_of
from gateway.simulator.events import response_object, usage_of
from gateway.simulator.options import Options
from gateway.simulator.records import Held, Owner, Records
from gateway.simulator.refusal import Refusal, parent_not_found
from gateway.simulator.script import Ask, Reply, Script

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "compaction": "cmp",
    **hosted.PREFIXES,
}
Remembered = Callable[[str], Held | None]


@dataclass(kw_only=True, slots=True)
class Turn:
    """An admitted create with its whole answer, not yet delivered."""

    body: dict[str, Any]
    owner: Owner
    parent: Held | None
    context: Context
    """What the answer was made in: the parent's context and the new items."""
    answer: tuple[Item, ...]
    begun: dict[str, Any]
    ended: dict[str, Any]
    unseen: int
    """Bytes of context that the upstream did not hold."""
    warm_up: bool = False


class Model:
    """Admits and answers creates for one upstream; delivery, and the memory of sockets, are elsewhere."""

    def __init__(self, options: Options, records: Records, script: Script | None) -> None:
        self._options = options
        self._records = records
        self._script = script
        self._nonce = secrets.token_hex(4)
        self._count = 0
        self._admitted = 0

    def draft(self, body: dict[str, Any]) -> dict[str, Any]:
        """A response to ``body`` that has an id and nothing else yet."""
        return response_object(body, f"resp_{self._unique()}", int(time.time()))

    def admit(
        self,
        body: dict[str, Any],
        owner: Owner,
        draft: dict[str, Any],
        *,
        size: int,
        transport: Literal["http", "ws"],
        remembered: Remembered,
    ) -> Turn:
        """Check ``body`` against what is held and answer it; raises Refusal.

        ``remembered`` looks into the memory of the connection; ``size`` is that of the body or frame in bytes.
        """
        parent, from_memory = self._parent(body, owner, remembered)
        draft["previous_response_id"] = parent.id if parent else None
        warm_up = body.get("generate") is False
        base = parent.context if parent else Context()
        new = items_of(body.get("input"))
        if parent and not new and not warm_up and not parent.warm_up and self._options.refuses_empty_delta:
            raise Refusal(
                400, "A continuation needs at least one new input item.", param="input", code="empty_input"
            )
        context = base.extended(
            new, origin=self._records.origin, resolve=lambda name: self._records.referenced(name, owner)
        )
        self._check_reasoning(new, context, owner)
        if not warm_up:
            context.require_outputs()
        reply = Reply(items=()) if warm_up else self._reply(body, context, transport)
        if reply.response_id is not None:
            draft["id"] = reply.response_id
        answer = self._identified(reply, draft["id"], context)
        turn = Turn(
            body=body, owner=owner, parent=parent, context=context, answer=answer, begun=draft, ended={},
            unseen=size if from_memory or parent is None else size + base.size, warm_up=warm_up,
        )  # fmt: skip
        turn.ended = self._ended(turn, reply)
        return turn

    def remember(self, turn: Turn, response: dict[str, Any]) -> Held:
        """Keep a response that has ended as ``response`` says; call it before the terminal event is sent."""
        output = tuple(response.get("output") or ())
        stored = turn.body.get("store") is not False and not self._options.zero_retention
        held = Held(
            id=response["id"],
            owner=turn.owner,
            context=turn.context.extended(output, origin=self._records.origin, checked=False),
            response=response,
            input=tuple(items_of(turn.body.get("input"))),
            status=response["status"],
            stored=stored and response["status"] != "failed",
            previous=turn.parent.id if turn.parent else None,
            warm_up=turn.warm_up,
        )
        self._records.keep(held)
        return held

    def _parent(self, body: dict[str, Any], owner: Owner, remembered: Remembered) -> tuple[Held | None, bool]:
        name = body.get("previous_response_id")
        if name is None or self._options.ignores_parents:
            return None, False
        held = remembered(name)
        if held is not None and held.owner == owner and self._records.alive(name):
            return held, True
        held = self._records.load(name, owner)
        if held is None:
            raise parent_not_found(name)
        return held, False

    def _check_reasoning(self, new: list[Item], context: Context, owner: Owner) -> None:
        for item in new:
            name = item.get("id")
            if not isinstance(name, str):
                continue
            bare = item.get("type") == "reasoning" and item.get("encrypted_content") is None
            if self._options.strict_reasoning_ids and bare and self._records.referenced(name, owner) is None:
                message = (
                    f"Item with id '{name}' not found. Items are not persisted when `store` is set to false."
                )
                raise Refusal(404, message, param="input")
            issued = self._records.issued(name)
            needed = issued.reasoning_before if issued and self._options.reasoning_pairs else None
            if needed is not None and needed not in context.ids:
                what = f"Item '{name}' of type '{item.get('type', 'message')}'"
                raise Refusal(
                    400,
                    f"{what} was provided without its required 'reasoning' item: '{needed}'.",
                    param="input",
                )

    def _reply(self, body: dict[str, Any], context: Context, transport: Literal["http", "ws"]) -> Reply:
        ordinal = self._admitted
        self._admitted += 1
        if self._script is not None:
            ask = Ask(
                body=body, context=context, ordinal=ordinal, transport=transport, digests_of=self._digests_of
            )  # fmt: skip
            reply = self._script.reply(ask)
            if reply is not None:
                return reply
        made = compose(body, context, self._options)
        status: Literal["completed", "incomplete"] = (
            "incomplete" if made.status == "incomplete" else "completed"
        )
        return Reply(items=made.items, status=status, reason=made.reason)

    def _digests_of(self, items: list[Item]) -> Digests:
        def resolve(name: str) -> Item | None:
            issued = self._records.issued(name)
            return issued.item if issued else None

        return digest_of(items, origin=self._records.origin, resolve=resolve)

    def _identified(self, reply: Reply, response_id: str, context: Context) -> tuple[Item, ...]:
        answer: list[Item] = []
        reasoning: str | None = None
        for index, made in enumerate(reply.items):
            item = made
            if "id" not in item:
                prefix = _PREFIXES.get(str(item.get("type")), "item")
                item = {"id": f"{prefix}_{self._unique()}", **item}
            self._records.issue(item, f"{context.modulo.hex()}/{index}", response_id, reasoning)
            reasoning = item.get("id") if item.get("type") == "reasoning" else None
            answer.append(item)
        return tuple(answer)

    def _ended(self, turn: Turn, reply: Reply) -> dict[str, Any]:
        usage = usage_of(turn.context.size, turn.answer)
        ended = {**turn.begun, "status": reply.status, "output": list(turn.answer), "usage": usage}
        if reply.status == "completed":
            ended["completed_at"] = int(time.time())
        elif reply.status == "incomplete":
            ended["incomplete_details"] = {"reason": reply.reason or "max_output_tokens"}
        else:
            ended["error"] = {"code": "server_error", "message": "The scripted answer failed."}
        return ended

    def _unique(self) -> str:
        self._count += 1
        return f"{self._nonce}{self._count:08x}{secrets.token_hex(17)}"
