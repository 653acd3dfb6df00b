"""The openai SDK, unmodified: what a program gets from it through the gateway is what it gets directly."""

from __future__ import annotations

import os
import time

import pytest
from pydantic import BaseModel

from gateway.simulator import Options
from tests.faces.pairs import TOOLS, USER, pair, plain
from tests.faces.sdk import Asyncio, Blocking, outcome, sdk_pair

KINDS = [Blocking, Asyncio]
MODEL = {"model": "gpt-5"}


class Said(BaseModel):
    """The form of a parsed answer."""

    said: str


def dumped(value):
    return value.model_dump(mode="json", warnings=False)


async def by_create(client, **fields):
    response = await client.call(lambda c: c.responses.create, **fields)
    return response, [dumped(response), response.output_text]


async def by_stream(client, **fields):
    seen = []
    await client.events(seen, **fields)
    return seen[-1].response, [dumped(event) for event in seen]


async def by_helper(client, **fields):
    seen = []
    final = await client.helper(seen, **fields)
    return final, [dumped(final), *(dumped(event) for event in seen)]


async def by_parse(client, **fields):
    response = await client.call(lambda c: c.responses.parse, **fields)
    return response, [dumped(response)]


async def by_raw(client, **fields):
    raw = await client.call(lambda c: c.responses.with_raw_response.create, **fields)
    response = raw.parse()
    return response, [
        raw.status_code,
        raw.request_id[:4],
        raw.headers["content-type"],
        raw.http_response.http_version,
        dumped(response),
    ]


WAYS = [by_create, by_stream, by_helper, by_parse, by_raw]


async def agent(client, way, **fields):
    """An agent loop as the SDK's users write it: append the output, answer the calls, ask again until there are none."""
    history = [dict(USER)]
    said = []
    for _ in range(20):
        response, seen = await way(client, **MODEL, input=history, tools=TOOLS, **fields)
        said.append(seen)
        calls = [item for item in response.output if item.type in {"function_call", "custom_tool_call"}]
        if not calls:
            return said
        history += [item.model_dump(exclude_none=True, warnings=False) for item in response.output]
        history += [
            {"type": f"{call.type}_output", "call_id": call.call_id, "output": f"result {number}"}
            for number, call in enumerate(calls)
        ]
    raise AssertionError("the loop does not end")


@pytest.mark.parametrize(("way", "store"), [*((way, False) for way in WAYS), (by_stream, True)])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_agent_loop_of_twelve_turns(kind, way, store):
    """Twelve turns with parallel calls: everything that the SDK gives is equal, over one socket, with eleven deltas."""
    options = Options(rounds=11, parallel_calls=2)
    async with pair(options) as sides, sdk_pair(kind, sides) as clients:
        tools = {"include": ["reasoning.encrypted_content"], "store": store}
        began = time.monotonic()
        direct, through = [await agent(client, way, **tools) for client in clients]

        assert len(direct) == 12
        for one, other in zip(direct, through, strict=True):
            assert plain(other) == plain(one)
        frames = sides.behind.journal.creates()
        assert [frame.transport for frame in frames] == ["ws"] * 12
        assert [frame.parent is not None for frame in frames] == [False] + [True] * 11
        assert [len(frame.items) for frame in frames] == [1] + [2] * 11
        assert len(sides.behind.journal.opened()) == 1
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("kind", KINDS)
async def test_parsed_answers(kind):
    """Answers in a form of the program's own are parsed alike, whole and streamed, on a first turn and on a delta."""
    async with pair(Options(rounds=0)) as sides, sdk_pair(kind, sides) as clients:
        got = []
        for client in clients:
            first = await client.call(lambda c: c.responses.parse, **MODEL, input=[USER], text_format=Said)
            history = [USER, *(item.to_dict() for item in first.output), USER]
            seen = []
            second = await client.helper(seen, **MODEL, input=history, text_format=Said)
            assert isinstance(first.output_parsed, Said) and isinstance(second.output_parsed, Said)
            got.append(plain([dumped(first), dumped(second), [dumped(event) for event in seen]]))
        assert got[1] == got[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_lines_of_a_streaming_response(kind):
    """The raw lines that the SDK hands out are the same lines."""
    async with pair() as sides, sdk_pair(kind, sides) as clients:
        (status, one), (other_status, other) = [
            await client.lines(**MODEL, input=[USER]) for client in clients
        ]
        assert (status, other_status) == (200, 200)
        assert [line for line in other if not line.startswith("data")] == [
            line for line in one if not line.startswith("data")
        ]
        assert len(other) == len(one) > 20


@pytest.mark.parametrize("kind", KINDS)
async def test_all_else_of_the_api(kind):
    """Models, stored responses, their items and their deletion are the upstream's own answers."""
    async with pair() as sides, sdk_pair(kind, sides) as clients:
        got = []
        for client in clients:
            listed = await client.call(lambda c: c.models.list)
            made = await client.call(lambda c: c.responses.create, **MODEL, input=[USER])
            kept = await client.call(lambda c: c.responses.retrieve, made.id)
            items = await client.call(lambda c: c.responses.input_items.list, made.id)
            await client.call(lambda c: c.responses.delete, made.id)
            gone = await outcome(client.call(lambda c: c.responses.retrieve, made.id))
            got.append([[one.id for one in listed.data], dumped(made), dumped(kept), len(items.data), gone])
        assert got[0][-1]["raised"] == "NotFoundError"
        assert plain(got[1]) == plain(got[0])


@pytest.mark.parametrize("kind", KINDS)
async def test_twenty_megabytes_up_and_down(kind):
    """A large file goes up and comes down whole through the gateway, in little time."""
    data = os.urandom(20_000_000)
    async with pair() as sides, sdk_pair(kind, sides) as clients:
        began = time.monotonic()
        for client in clients:
            made = await client.call(lambda c: c.files.create, file=("data.bin", data), purpose="assistants")
            assert made.bytes > len(data)
            came = await client.download(made.id)
            start = came.find(b"\r\n\r\n", came.find(b"data.bin")) + 4
            assert came[start : start + len(data)] == data
            assert len(came) == made.bytes
        assert time.monotonic() - began < 20
