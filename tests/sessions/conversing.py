"""A client that keeps a history and resends it, as tools do, and looks at each turn whether the upstream held the same."""

from __future__ import annotations

import contextlib

from gateway.simulator import Options
from tests.gateways import Api, running_gateway, running_simulator

CALL = {
    "type": "function",
    "name": "look_up",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}


class Conversation:
    """One conversation of one client. ``settings`` go with every request; ``history`` may be changed between turns."""

    def __init__(self, api, upstream, **settings):
        self.api = api
        self.upstream = upstream
        self.settings = {"model": "gpt-5", "instructions": "You help.", **settings}
        self.history = []

    async def send(self, *items, **fields):
        """One request with new items behind the history; the answer joins it. Strings are user texts."""
        self.history += [
            {"role": "user", "content": item} if isinstance(item, str) else item for item in items
        ]
        body = {**self.settings, **fields, "input": self.history}
        seen = await self.api.create(body)
        assert seen.status == 200, seen.answer
        assert seen.answer["status"] == "completed"
        self.compare(seen.answer["id"])
        self.history = [*self.history, *seen.answer["output"]]
        return seen

    def compare(self, response_id):
        """The upstream answered in the context that this history stands for."""
        held = self.entry(response_id).digests
        asked = self.upstream.digest_of(self.history)
        assert (held.modulo, held.items) == (asked.modulo, asked.items)

    def entry(self, response_id):
        """What the upstream received for a response."""
        return next(one for one in self.upstream.journal.creates() if one.response_id == response_id)

    def outputs(self, seen):
        """The outputs of all calls in an answer, as the tool gives them."""
        calls = [item for item in seen.answer["output"] if item["type"] == "function_call"]
        return [
            {"type": "function_call_output", "call_id": call["call_id"], "output": f"it is {n}"}
            for n, call in enumerate(calls)
        ]

    async def loop(self, text, **fields):
        """A user turn with all its tool rounds; gives what was seen of each request."""
        found = [await self.send(text, **fields)]
        while outputs := self.outputs(found[-1]):
            found.append(await self.send(*outputs, **fields))
        return found


def outcomes(*seen):
    """What became of each turn: ``delta``, or the reason why not."""
    return [one.reason or one.mode for one in seen]


@contextlib.asynccontextmanager
async def session(options=None, script=None, **settings):
    """An upstream, a gateway and a client of it; gives a function that begins a conversation, and upstream and gateway."""
    async with (
        running_simulator(options or Options(), script) as upstream,
        running_gateway(upstream.url, **settings) as gateway,
        Api(gateway.url) as api,
    ):
        yield lambda **more: Conversation(api, upstream, **more), upstream, gateway
