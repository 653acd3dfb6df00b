"""What the simulated upstream answers real clients with: chosen by the shape of the conversation, so that runs compare.

Tools of real agents report what differs from run to run (times, process numbers), so their answers cannot depend on it.
"""

from __future__ import annotations

import hashlib
import json

from gateway.simulator import Fault, Options, Reply
from gateway.simulator.answers import compose
from gateway.simulator.faults import Stall, after_deltas

STALL = "stall"
"""A user text with this word is answered with the beginning of a text, and then nothing more."""


def user_text(items):
    """The text of the last user message."""
    said = [item for item in items if item.get("role") == "user"]
    content = said[-1].get("content", "") if said else ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def stalls(arrival):
    """Whether a request asks for the answer that never ends; requests without tools (for titles, say) do not."""
    given = (arrival.body or {}).get("input")
    return isinstance(given, list) and STALL in user_text(given)[:400]


def stall_fault():
    """Makes answers to such requests stop after two pieces of text, for as long as the client waits."""
    return Fault(actions=Stall(), at=after_deltas(2), matches=stalls, times=None)


class Stalling:
    """Answers what stalls with a text of its own; all else is derived from the context by the simulator."""

    def reply(self, ask):
        """A message without reasoning, so that the second delta is one of text."""
        if STALL in user_text(list(ask.context))[:400]:
            return Reply(
                items=(_message("Let me think about this for a while, it is long.", "final_answer"),)
            )
        return None


class Structured(Stalling):
    """Derived answers in which nothing is said beside calls: a client that parses texts takes no commentary."""

    def reply(self, ask):
        """The derived answer, without messages if there are calls."""
        stalling = super().reply(ask)
        if stalling is not None:
            return stalling
        items = compose(ask.body, ask.context, Options()).items
        calling = any(item["type"] == "function_call" for item in items)
        return Reply(items=tuple(item for item in items if not (calling and item["type"] == "message")))


class AgentAnswers(Stalling):
    """Answers an agent: as many tool rounds as a user's ``loop N`` asks for, two calls in the second.

    ``tools`` maps the names of the agent's tools to argument texts, each with one ``%d`` for the number of the call.
    """

    def __init__(self, tools):
        self._tools = tools

    def reply(self, ask):
        """Reasoning, a commentary or final text, and calls; a function of the conversation's shape."""
        stalling = super().reply(ask)
        if stalling is not None:
            return stalling
        items = [item for item in ask.context if _counts(item)]
        shape = hashlib.sha256(json.dumps([_shape(item) for item in items]).encode()).hexdigest()
        offered = [tool.get("name") for tool in ask.body.get("tools") or ()]
        usable = [name for name in self._tools if name in offered]
        thought = _reasoning(shape, ask.body)
        wanted = ask.context.hints.get("loop", 0)
        if not usable or ask.context.rounds >= wanted:
            return Reply(items=(thought, _message(f"Done {len(items)} {shape[:12]}.\n", "final_answer")))
        first = sum(1 for item in items if str(item.get("type")).endswith("_call"))
        number = 2 if ask.context.rounds == 1 else 1
        calls = [self._call(usable[n % len(usable)], first + n, shape) for n in range(number)]
        said = [_message(f"Step {ask.context.rounds + 1}…", "commentary")] if ask.context.rounds == 0 else []
        return Reply(items=(thought, *said, *calls))

    def _call(self, name, number, shape):
        return {
            "type": "function_call",
            "status": "completed",
            "name": name,
            "call_id": f"call_{shape[:16]}{number:04d}",
            "arguments": self._tools[name] % number,
        }


def _counts(item):
    """Reasoning and empty messages may be held that a client leaves out, by the level: no answer may depend on them."""
    empty = item.get("role") == "assistant" and not _said(item)
    return item.get("type") != "reasoning" and not empty


def _said(item):
    content = item.get("content") or ()
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _shape(item):
    kind, role = item.get("type"), item.get("role")
    if role is not None:
        return ["message", role, _said(item) if role == "assistant" else ""]
    return [kind, item.get("call_id"), item.get("name")]


def _reasoning(shape, body):
    summary = [{"type": "summary_text", "text": f"**Part {n}**\n{shape[n : n + 8]}"} for n in (1, 2)]
    sealed = body.get("store") is False or "reasoning.encrypted_content" in (body.get("include") or ())
    blob = {"encrypted_content": "gAAAAA" + shape} if sealed else {}
    return {"type": "reasoning", "summary": summary, **blob}


def _message(text, phase):
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"type": "message", "status": "completed", "role": "assistant", "phase": phase, "content": [part]}
