"""One conversation in a storm, as its client keeps it: it grows, is edited, forks, is shortened, and is asked again after a failure."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.laws.sessions import TOOLS, answer_calls
from tests.laws.spelling import habit, spell

OPENERS = ("hello", "hello", "loop 2", "loop 3", "what is it?")
SAYINGS = ("go on", "why?", "zwei\u2028drei", "again", "words 3", "words 20", "loop 1")
LONG = 36
"""Items after which a client shortens its history to a summary."""


@dataclass
class Asked:
    """One request: its name, what its client means by it (all items, first to last), and what became of it."""

    turn: str
    talker: int
    key: str
    body: dict[str, Any]
    context: list[Any]
    hazard: Any = None
    expected: Any = None
    began: float = 0.0
    ended: float = 0.0
    answer: Any = None


class Talker:
    """The client's side of one conversation. The same seed and the same answers give the same requests."""

    def __init__(self, number, seed, *, stored_can_reload=True):
        self.number = number
        self.random = random = Random(f"{seed} talker {number}")
        # Two identities hold conversations that begin, and for a while go on, alike.
        self.key = ("sk-one", "sk-two")[number % 2]
        self.store = random.choice([True, False, None, False])
        self.stream = random.choice([True, True, False, None])
        self.habits = habit(f"{seed} {number // 4}")
        self.chains = stored_can_reload and self.store is not False and number % 5 == 3
        if not stored_can_reload or self.store is False:
            self.habits -= {"references"}
        if self.chains:
            self.habits = frozenset()
        self.stream_options = random.choice([None, None, None, {"include_obfuscation": False}])
        self.settings = {
            "model": "gpt-5",
            "tools": random.choice([TOOLS, TOOLS, []]),
            "instructions": "You help.",
        }
        self.tip = self.last_id = None
        self.count = 0
        self._begin()

    @property
    def may_forget(self):
        """Whether the upstream may forget this conversation and plain HTTP would still take its requests."""
        return "references" not in self.habits

    def _begin(self):
        self.history = [{"role": "user", "content": self.random.choice(OPENERS)}]
        self.before_last = self.behind_tip = 1
        self.tip = None

    def move(self):
        """Change the conversation as its user would; the histories to ask, more than one where it forks."""
        random = self.random
        what = random.choices(
            ["say", "edit", "rewind", "regenerate", "again", "fork", "note", "set"], [60, 6, 4, 4, 3, 8, 4, 4]
        )[0]
        if len(self.history) > LONG:
            self.history = [{"role": "user", "content": f"summary {random.randrange(9)}"}]
            self.before_last, self.tip = 1, None
        if what == "edit":
            own = [
                i
                for i, item in enumerate(self.history)
                if item.get("role") == "user" and "_from_api" not in item
            ]
            at = random.choice(own)
            self.history[at] = {**self.history[at], "content": f"edited {random.randrange(99)}"}
            self.tip = None
        elif what == "rewind":
            own = [i for i, item in enumerate(self.history) if item.get("role") == "user"]
            del self.history[random.choice(own) + 1 :]
            self.tip = None
        elif what == "regenerate":
            first = next(i for i, item in enumerate(self.history) if item.get("role") == "user")
            del self.history[max(self.before_last, first + 1) :]
            self.tip = None
        elif what == "note":
            self.history.insert(
                random.randrange(len(self.history) + 1), {"role": "developer", "content": "note"}
            )
            self.tip = None
        elif what == "set":
            self.settings["instructions"] = f"It is {random.randrange(99)} o'clock."
        answer_calls(self, random.choice(["ok", "", "completed"]))
        if what == "say" and self.history[-1].get("_from_api"):
            self.history.append({"role": "user", "content": random.choice(SAYINGS)})
        if what != "fork":
            return [self.history]
        side = copy.deepcopy(self.history)
        side.append({"role": "user", "content": f"aside {random.randrange(9)}"})
        self.history.append({"role": "user", "content": random.choice(SAYINGS)})
        return [self.history, side]

    def ask(self, history, *, main):
        """The request for a history."""
        self.count += 1
        turn = f"t{self.number}-{self.count}"
        stored = self.store is not False
        items = spell(history, self.habits, stored=stored)
        context = items
        body = {**self.settings, "client_metadata": {"turn": turn}, "input": items}
        if self.chains and main and self.tip is not None:
            new = history[self.behind_tip :]
            if new:
                body["input"] = spell(new, self.habits, stored=stored)
                body["previous_response_id"] = self.tip
                context = [{k: v for k, v in item.items() if k != "_from_api"} for item in history]
        if self.store is not None:
            body["store"] = self.store
        stream = self.stream if self.random.random() < 0.9 else not self.stream
        if stream is not None:
            body["stream"] = stream
        if stream and self.stream_options is not None:
            body["stream_options"] = self.stream_options
        return Asked(turn, self.number, self.key, copy.deepcopy(body), copy.deepcopy(context))

    def take(self, asked):
        """Take an answer to the main line into the history."""
        answer = asked.answer
        if answer.outcome == "completed":
            self.before_last = len(self.history)
            self.history += [{**item, "_from_api": True} for item in answer.output]
            self.behind_tip = len(self.history)
            self.tip = self.last_id = answer.response["id"]
        elif answer.outcome in {"broken", "left"} and self.random.random() < 0.3:
            # Some agents keep what they saw of an answer that broke off.
            text = "".join(e["delta"] for e in answer.events if e["type"] == "response.output_text.delta")
            if text:
                part = {"type": "output_text", "text": text, "annotations": []}
                self.history.append({"type": "message", "role": "assistant", "content": [part]})
                self.tip = None
        elif answer.outcome == "refused":
            self.tip = None
            if (
                b"No tool output" in answer.raw
                or b"Duplicate item" in answer.raw
                or b"not found" in answer.raw
            ):
                self._begin()
