"""Sessions: several conversations that grow, change, branch and repeat, played by one client against one base URL.

A session is a list of moves, plain data. The same moves played against two upstreams with the same seed are the same session,
although all ids differ; so a run through the gateway can be compared with a direct one, answer by answer.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.laws.spelling import ALTERATIONS, spell

TOOLS = [
    {
        "type": "function",
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
    {"type": "custom", "name": "run", "description": "runs a line"},
]
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
OPENERS = ("hello", "loop 2", "loop 3", "", "what is it?\n")
_IDS = re.compile(r"\b(resp|msg|rs|fc|ctc|item)_[0-9A-Za-z_-]+")
_STRICT = re.compile(r"strict=[0-9a-f]{16}")

conversation_numbers = st.integers(0, 2)
texts = st.sampled_from(["go on", "why?", "", "zwei\u2028drei", "again"])
settings = st.sampled_from(
    [
        ("instructions", "Be brief."), ("instructions", "Be long."), ("temperature", 0.5), ("tools", []), ("tools", TOOLS[:1]),
        ("reasoning", {"effort": "low"}), ("metadata", {"a": "b"}), ("model", "gpt-5-mini"), ("truncation", "auto"),
        ("x_new", {"n": 12345678901234567890, "f": 1.0}), ("user", "u1"), ("max_output_tokens", 4), ("include", ["x"]),
        ("text", {"format": {"type": "json_object"}}), ("instructions", None), ("previous_response_id", None),
    ]
)  # fmt: skip
moves = st.one_of(
    st.tuples(st.just("say"), conversation_numbers, texts),
    st.tuples(st.just("say"), conversation_numbers, texts),
    st.tuples(st.just("work"), conversation_numbers, st.sampled_from(["ok", "", "completed", "incomplete"])),
    st.tuples(st.just("work"), conversation_numbers, st.just("ok")),
    st.tuples(st.just("say"), conversation_numbers, texts),
    st.tuples(st.just("interrupt"), conversation_numbers, texts),
    st.tuples(st.just("edit"), conversation_numbers, st.integers(0, 9)),
    st.tuples(st.just("rewind"), conversation_numbers, st.integers(0, 5)),
    st.tuples(st.just("regenerate"), conversation_numbers, st.none()),
    st.tuples(st.just("fork"), conversation_numbers, texts),
    st.tuples(st.just("again"), conversation_numbers, st.none()),
    st.tuples(st.just("drop_tail"), conversation_numbers, st.integers(1, 3)),
    st.tuples(st.just("parallel"), conversation_numbers, texts),
    st.tuples(st.just("chain"), conversation_numbers, texts),
    st.tuples(st.just("note"), conversation_numbers, st.integers(0, 9)),
    st.tuples(st.just("image"), conversation_numbers, st.none()),
    st.tuples(st.just("unknown"), conversation_numbers, st.integers(0, 3)),
    st.tuples(st.just("text"), conversation_numbers, texts),
    st.tuples(st.just("empty"), conversation_numbers, st.none()),
    st.tuples(st.just("set"), conversation_numbers, settings),
    st.tuples(
        st.just("spell"), conversation_numbers, st.frozensets(st.sampled_from(ALTERATIONS), max_size=4)
    ),
    st.tuples(st.just("stream"), conversation_numbers, st.sampled_from([True, False, None])),
)


@st.composite
def sessions(draw):
    """A session: how each conversation starts, and up to 14 moves."""
    starts = [
        {
            "opener": draw(st.sampled_from(OPENERS)),
            "store": draw(st.sampled_from([True, False, None, False])),
            "stream": draw(st.sampled_from([True, False, None])),
            "tools": draw(st.sampled_from([TOOLS, TOOLS, []])),
            "habits": draw(st.frozensets(st.sampled_from(ALTERATIONS), max_size=3)),
        }
        for _ in range(3)
    ]
    return starts, draw(st.lists(moves, min_size=4, max_size=16))


@dataclass
class Outcome:
    """What the client saw of one request, and the request's own items."""

    status: int
    answer: Any
    sent: list[Any]
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    def seen(self, *, mask_strict):
        """The answer without ids and, above exact, without the digest of what the upstream holds to the letter."""
        text = _IDS.sub(r"\1_*", json.dumps(self.answer, sort_keys=True))
        return self.status, _STRICT.sub("strict=*", text) if mask_strict else text


class Conversation:
    """One conversation as its client keeps it."""

    def __init__(self, start):
        self.history = [{"role": "user", "content": start["opener"]}]
        self.settings = {"model": "gpt-5", "tools": start["tools"], "instructions": "You help."}
        self.store = start["store"]
        self.stream = start["stream"]
        self.habits = start["habits"]
        self.last_body = None
        self.last_id = None
        self.before_last = 1

    def body(self, history=None):
        """The request body for a history."""
        body = {k: v for k, v in self.settings.items() if v != "absent"}
        if self.store is not None:
            body["store"] = self.store
        if self.stream is not None:
            body["stream"] = self.stream
        body["input"] = spell(
            self.history if history is None else history, self.habits, stored=self.store is not False
        )
        return body


class Client:
    """Plays a session. ``post`` sends a body and gives status, headers, parsed answer and event types."""

    def __init__(self, post, starts):
        self.post = post
        self.conversations = [Conversation(start) for start in starts]
        self.outcomes = []

    async def play(self, moves):
        """All moves, and before them one request of each conversation, at the same time."""
        await asyncio.gather(*(self.send(c, c.body()) for c in self.conversations[:2]))
        for name, number, value in moves:
            await getattr(self, "move_" + name)(self.conversations[number], value)

    async def send(self, conversation, body, *, grow=True):
        """Send a body; the answer's items become part of the history."""
        body = copy.deepcopy(body)
        slot = len(self.outcomes)
        self.outcomes.append(None)
        # The last one that was asked, not the last one that was answered: which that is may differ between two runs.
        conversation.last_body = body
        status, headers, answer, events = await self.post(body)
        self.outcomes[slot] = Outcome(status, _visible(answer), _list(body["input"]), body, headers, events)
        if status == 200 and isinstance(answer, dict) and answer.get("status") == "completed" and grow:
            conversation.before_last = len(conversation.history)
            conversation.history += [{**item, "_from_api": True} for item in answer["output"]]
            conversation.last_id = answer["id"]

    async def move_say(self, c, text):
        answer_calls(c, "ok")
        c.history.append({"role": "user", "content": text})
        await self.send(c, c.body())

    async def move_interrupt(self, c, text):
        """The user speaks while calls are open: the API refuses that, and the turn after it must be right."""
        c.history.append({"role": "user", "content": text})
        await self.send(c, c.body())

    async def move_work(self, c, output):
        answer_calls(c, output)
        await self.send(c, c.body())

    async def move_edit(self, c, where):
        own = [i for i, item in enumerate(c.history) if "_from_api" not in item and "content" in item]
        at = own[where % len(own)] if own else None
        if at is not None:
            c.history[at] = {**c.history[at], "content": [{"type": "input_text", "text": f"edited {where}"}]}
        await self.send(c, c.body())

    async def move_rewind(self, c, where):
        users = [
            i for i, item in enumerate(c.history) if item.get("role") == "user" and "_from_api" not in item
        ]
        if users:
            del c.history[users[where % len(users)] + 1 :]
        await self.send(c, c.body())

    async def move_regenerate(self, c, _):
        del c.history[c.before_last :]
        await self.send(c, c.body())

    async def move_fork(self, c, text):
        twin = copy.deepcopy(c)
        answer_calls(twin, "ok")
        twin.history.append({"role": "user", "content": text})
        await self.send(twin, twin.body())
        self.conversations[(self.conversations.index(c) + 1) % 3] = twin

    async def move_again(self, c, _):
        if c.last_body is not None:
            await self.send(c, c.last_body, grow=False)

    async def move_drop_tail(self, c, count):
        del c.history[max(1, len(c.history) - count) :]
        await self.send(c, c.body())

    async def move_parallel(self, c, text):
        answer_calls(c, "ok")
        one = [*c.history, {"role": "user", "content": text}]
        other = [*c.history, {"role": "user", "content": text + "?"}]
        await asyncio.gather(*(self.send(c, c.body(h), grow=False) for h in (one, other, one)))

    async def move_chain(self, c, text):
        body = c.body([{"role": "user", "content": text}])
        # Over plain HTTP a response that is not stored can never be named; over a socket it can, as the API documents.
        body["previous_response_id"] = (
            c.last_id if c.last_id is not None and c.store is not False else "resp_unknown"
        )
        await self.send(c, body, grow=False)

    async def move_note(self, c, where):
        c.history.insert(where % (len(c.history) + 1), {"role": "developer", "content": f"note {where}"})
        await self.send(c, c.body())

    async def move_image(self, c, _):
        answer_calls(c, "ok")
        c.history.append({"role": "user", "content": [{"type": "input_text", "text": "see"}, IMAGE]})
        await self.send(c, c.body())

    async def move_unknown(self, c, number):
        c.history.append({"type": "x_future_item", "payload": {"n": number, "nothing": None}})
        await self.send(c, c.body())

    async def move_text(self, c, text):
        body = c.body()
        body["input"] = text
        await self.send(c, body, grow=False)

    async def move_empty(self, c, _):
        body = c.body()
        body["input"] = []
        await self.send(c, body, grow=False)

    async def move_set(self, c, setting):
        name, value = setting
        if name == "previous_response_id" or value is not None:
            c.settings[name] = value
        else:
            c.settings.pop(name, None)
        await self.send(c, c.body())

    async def move_spell(self, c, habits):
        c.habits = habits
        answer_calls(c, "ok")
        c.history.append({"role": "user", "content": "and?"})
        await self.send(c, c.body())

    async def move_stream(self, c, value):
        c.stream = value
        answer_calls(c, "ok")
        c.history.append({"role": "user", "content": "next"})
        await self.send(c, c.body())


def answer_calls(conversation, output):
    """Give every open call an output; ``completed`` and ``incomplete`` are statuses of an output that says ok."""
    for call in _open_calls(conversation.history):
        kind = "custom_tool_call_output" if call["type"] == "custom_tool_call" else "function_call_output"
        status = {"status": output} if output in {"completed", "incomplete"} else {}
        conversation.history.append(
            {"type": kind, "call_id": call["call_id"], "output": "ok" if status else output, **status}
        )


def _open_calls(history):
    answered = {item.get("call_id") for item in history if item.get("type", "").endswith("_output")}
    return [
        item
        for item in history
        if item.get("type") in {"function_call", "custom_tool_call"} and item["call_id"] not in answered
    ]


def _list(given):
    return given if isinstance(given, list) else [{"type": "message", "role": "user", "content": given}]


def _visible(answer):
    """The parts of an answer that must be equal however it came."""
    if not isinstance(answer, dict) or "output" not in answer:
        return answer
    return {
        key: answer.get(key)
        for key in ("status", "output", "model", "error", "incomplete_details", "previous_response_id")
    }
