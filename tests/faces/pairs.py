"""Two upstreams that answer alike, one talked to directly and one through a gateway, and what must be equal between them."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.simulator import Options, Simulator
from tests.gateways import Api, Running, running_gateway, running_simulator

FUNCTION = {
    "type": "function",
    "name": "look_up",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
}
CUSTOM = {"type": "custom", "name": "run", "description": "runs a line"}
TOOLS = [FUNCTION, CUSTOM]
USER = {"role": "user", "content": "hello"}

_IDS = re.compile(r"\b(?:resp|msg|rs|fc|ctc|item)_[0-9A-Za-z_-]{16,}")
_TIMES = re.compile(r'"(created_at|completed_at)": ?[0-9.]+')


def plain(value):
    """A JSON value without what two runs never share: ids become their rank of appearance, times a star."""
    ranks: dict[str, str] = {}
    text = _IDS.sub(
        lambda found: ranks.setdefault(found[0], f"{found[0].partition('_')[0]}_{len(ranks)}"),
        json.dumps(value, sort_keys=True, default=str),
    )
    return json.loads(_TIMES.sub(r'"\1": "*"', text))


@dataclass
class Pair:
    """A direct upstream with its client, and a gateway before an equal upstream with its client."""

    direct: Simulator
    behind: Simulator
    gateway: Running
    one: Api
    other: Api

    def arm(self, fault):
        """The same failure on both sides."""
        for upstream in (self.direct, self.behind):
            upstream.faults.add(replace(fault))

    async def both(self, body, **kwargs):
        """The same request to both sides."""
        return await self.one.create(body, **kwargs), await self.other.create(body, **kwargs)


@contextlib.asynccontextmanager
async def pair(options=None, *, key="sk-test", **settings):
    """A running pair; ``settings`` are the gateway's."""
    options = options or Options()
    async with (
        running_simulator(options) as direct,
        running_simulator(options) as behind,
        running_gateway(behind.url, **settings) as gateway,
        Api(direct.url, key=key) as one,
        Api(gateway.url, key=key) as other,
    ):
        yield Pair(direct, behind, gateway, one, other)


@dataclass
class Dialogue:
    """One conversation held with both sides at once; each side resends its own answers."""

    sides: Pair
    fields: dict[str, Any]
    histories: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))

    async def say(self, *items, **changed):
        """Append items, ask both sides, and append what they answered. A call gets its output by ``answer_calls`` first."""
        seen = []
        for api, history in zip((self.sides.one, self.sides.other), self.histories, strict=True):
            history.extend(items)
            answer = await api.create({"model": "gpt-5", **self.fields, **changed, "input": history})
            if answer.status == 200 and answer.answer.get("status") == "completed":
                history.extend(answer.answer["output"])
            seen.append(answer)
        return tuple(seen)

    def answer_calls(self):
        """Give every open call an output, on both sides."""
        for history in self.histories:
            done = {item.get("call_id") for item in history if item.get("type", "").endswith("_output")}
            for call in [item for item in history if item.get("type") in _CALLS]:
                if call["call_id"] not in done:
                    history.append({"type": _CALLS[call["type"]], "call_id": call["call_id"], "output": "ok"})


_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}

# Over a socket these do not come; on a refusal those that the upstream put into its error do.
ONLY_OVER_HTTP = re.compile(r"x-ratelimit-.*|openai-.*|cf-.*|set-cookie|server|cache-control")


def same_face(one, other):
    """Assert that what came through the gateway is what came directly, but for the differences that are allowed."""
    assert other.status == one.status
    assert other.headers.get("content-type") == one.headers.get("content-type")
    assert other.kinds == one.kinds
    assert plain(other.events) == plain(one.events)
    assert plain(other.answer) == plain(one.answer)
    if one.answer is None:
        assert other.raw == one.raw
    gained = other.headers.keys() - one.headers.keys()
    assert gained <= {"x-upwire-mode", "x-upwire-reason", "x-request-id", "server-timing"}
    lost = {name for name in one.headers.keys() - other.headers.keys() if not ONLY_OVER_HTTP.fullmatch(name)}
    assert not lost
