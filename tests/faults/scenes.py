"""What the tests of reported faults share: a gateway before a simulated upstream, items as clients send them, clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass

import aiohttp

from gateway.simulator import FunctionScript, Options
from tests.gateways import Api, running_gateway, running_simulator

TOOLS = [
    {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}},
    {"type": "custom", "name": "run"},
]


@dataclass
class Scene:
    """A simulated upstream, a gateway before it, and a client of the gateway."""

    simulator: object
    gateway: object
    api: Api

    @property
    def frames(self):
        """All creates that came over sockets."""
        return self.simulator.journal.creates("ws")

    @property
    def posts(self):
        """All creates that came over plain HTTP."""
        return self.simulator.journal.creates("http")

    async def stats(self):
        """What ``/stats`` says now."""
        async with self.api.session.get(self.gateway.root + "/stats") as answer:
            return await answer.json()

    async def until_idle(self, seconds=3.0):
        """Wait until no socket is busy; the statistics that say so."""
        async with asyncio.timeout(seconds):
            found = await self.stats()
            while found["connections"]["busy"] or found["turns"]["in_flight"]:
                await asyncio.sleep(0.005)
                found = await self.stats()
        return found


@contextlib.asynccontextmanager
async def scene(reply=None, *, options=None, **settings):
    """Everything running. ``reply`` gives the output items for what is asked, or None for the derived answer."""
    script = None if reply is None else FunctionScript(reply)
    async with running_simulator(Options(**(options or {})), script) as simulator:
        async with running_gateway(simulator.url, **settings) as gateway, Api(gateway.url) as api:
            yield Scene(simulator, gateway, api)


def answers(*rows):
    """A script that gives these output items one after the other, then derived answers."""
    waiting = list(rows)
    return lambda _ask: waiting.pop(0) if waiting else None


def body(items, **fields):
    """A request as an agent sends it: streamed and not stored, unless told otherwise."""
    return {"model": "gpt-5", "store": False, "stream": True, "input": items, **fields}


def user(text):
    """A user item."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def said(text, **more):
    """An assistant message as the API makes it."""
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"type": "message", "status": "completed", "role": "assistant", "content": [part], **more}


def call(call_id, arguments="{}", **more):
    """A function call as the API makes it."""
    return {
        "type": "function_call", "status": "completed", "name": "look_up", "call_id": call_id, "arguments": arguments, **more,
    }  # fmt: skip


def output(call_id, text="ok", kind="function_call_output", **more):
    """The output of a call."""
    return {"type": kind, "call_id": call_id, "output": text, **more}


def finished(seen):
    """The items of an answer, as the client got them one by one or in one piece."""
    if seen.events:
        return [event["item"] for event in seen.events if event["type"] == "response.output_item.done"]
    return seen.answer["output"]


def held(simulator, seen):
    """What the upstream holds behind an answer, without the ids and delivery fields that it added."""
    return [bare(item) for item in simulator.context_of(seen.answer["id"])]


def bare(item):
    """An item without what the API adds to it."""
    kept = {key: value for key, value in item.items() if key not in {"id", "status"}}
    if isinstance(kept.get("content"), list):
        kept["content"] = [
            {key: value for key, value in part.items() if key not in {"annotations", "logprobs"}}
            for part in kept["content"]
        ]
    return kept


async def read_broken(response):
    """The events of a stream that was broken off, and whether it was."""
    raw, broken = b"", False
    try:
        async for piece in response.content.iter_any():
            raw += piece
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, ConnectionError):
        broken = True
    events = [json.loads(part.partition(b"data: ")[2]) for part in raw.split(b"\n\n") if part]
    return events, broken


async def post_broken(api, sent):
    """Status, events and whether the body was broken off."""
    async with api.session.post(api.url + "/responses", json=sent, headers=api.headers) as response:
        return response.status, *await read_broken(response)


async def leave_after(api, sent, deltas):
    """Post, read that many delta events, and hang up in the middle of the answer."""
    async with api.session.post(api.url + "/responses", json=sent, headers=api.headers) as response:
        raw = b""
        while raw.count(b".delta\n") < deltas:
            piece = await response.content.readany()
            assert piece, "the answer ended before the client left"
            raw += piece
        response.close()
