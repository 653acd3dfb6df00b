"""Faults that others met: separators inside texts, notes before the last user message, silence that is not death."""

import asyncio
import json
import time

import openai
import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import answers, body, call, output, said, scene, user
from tests.gateways import Api, running_gateway
from tests.raw_http import raw_upstream
from tests.upstream.raw_peer import raw_peer

# -- B35

ODD = "".join(f"[{mark}]" for mark in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r\n\n\r")
ARGUMENTS = json.dumps({"text": ODD}, ensure_ascii=False)


@pytest.mark.parametrize("way", ["ws to sse", "ws to json", "http sse", "http json"])
async def test_b35_separators_inside_texts_split_nothing(way):
    """The SDK reads the same text and arguments on each way, and the turn can be continued: nothing of it was lost on us."""
    stream = way.endswith("sse")
    extra = {"x-upwire-mode": "http"} if way.startswith("http") else {}
    async with scene(answers([said(ODD), call("c1", ARGUMENTS)], [said("done")])) as run:
        async with openai.AsyncOpenAI(base_url=run.gateway.url, api_key="sk-test", max_retries=0) as client:
            made = await client.responses.create(
                model="gpt-5", input=[user("u1")], stream=stream, extra_headers=extra
            )
            if stream:
                events = [event async for event in made]
                assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == ODD
                assert (
                    "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
                    == ARGUMENTS
                )
                made = events[-1].response
        assert made.output_text == ODD
        assert made.output[1].arguments == ARGUMENTS
        history = [user("u1"), *(item.to_dict() for item in made.output)]
        second = await run.api.create(body([*history, output("c1")], store=True))

        assert (second.mode, run.frames[-1].parent) == ("delta", made.id)
        assert run.frames[-1].items == [output("c1")]


async def test_b35_what_is_passed_on_is_the_same_bytes():
    """Over plain HTTP the stream is relayed byte for byte, while the observer understands it."""
    response = {"id": "resp_1", "status": "completed", "output": [{"id": "msg_1", **said(ODD)}]}
    events = [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
        {"type": "response.completed", "response": response},
    ]
    stream = b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event, ensure_ascii=False).encode())
        for event in events
    )
    start = stream.index("\u2028".encode())

    async def play(connection, _request):
        await connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(stream)
        )
        for piece in (stream[: start + 1], stream[start + 1 : start + 2], stream[start + 2 :]):
            await connection.send(piece)
            await asyncio.sleep(0.01)

    async with (
        raw_upstream(play) as upstream,
        running_gateway(upstream.base) as gateway,
        Api(gateway.url) as api,
    ):
        seen = await api.create(
            body([user("u1")], stream=True, store=True), headers={"x-upwire-mode": "http"}
        )
        known = (await api.session.get(gateway.root + "/stats")).json()
        assert (await known)["conversations"]["known"] == 1
    assert seen.raw == stream


# -- B37


def note(text):
    """What a developer adds to a conversation."""
    return {"type": "message", "role": "developer", "content": text}


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
async def test_b37_the_delta_is_everything_behind_the_answer(store):
    """A note before the last user message goes with it, one among old items makes a full turn, one at the end a delta of one."""
    async with scene(answers(*([said(f"a{n}")] for n in range(1, 5)))) as run:
        first = await run.api.create(body([user("u1")], store=store))
        grown = [user("u1"), *first.answer["output"], note("n1"), user("u2")]
        second = await run.api.create(body(grown, store=store))
        appended = [*grown, *second.answer["output"], note("n2")]
        third = await run.api.create(body(appended, store=store))
        inserted = [user("u1"), note("n3"), *first.answer["output"], user("u2")]
        fourth = await run.api.create(body(inserted, store=store))

        assert [seen.mode for seen in (first, second, third, fourth)] == ["full", "delta", "delta", "full"]
        assert [frame.items for frame in run.frames] == [
            [user("u1")],
            [note("n1"), user("u2")],
            [note("n2")],
            inserted,
        ]
        assert run.frames[3].parent is None


# -- B39

FAST = {"ping_interval": 0.05, "ping_timeout": 0.15}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("mode", ["auto", "http"])
async def test_b39_a_long_silence_with_pongs_is_no_death(mode, stream):
    """The upstream says nothing for many liveness limits, before and inside the answer, and the client gets all of it."""
    async with scene(answers([said("thought")]), mode=mode, **FAST) as run:
        run.simulator.faults.add(Fault(actions=f.Silence(0.5)), Fault(at=f.CREATED, actions=f.Silence(0.3)))
        seen = await run.api.create(body([user("u1")], stream=stream))

        assert (seen.status, seen.answer["status"]) == (200, "completed")
        assert len(run.simulator.journal.creates()) == 1


async def test_b39_no_pong_and_no_data_is_found_out():
    """An upstream that vanishes after taking the frame costs the client the liveness limit, not for ever."""

    async def vanish(raw):
        await raw.text()
        await asyncio.Event().wait()

    async with (
        raw_peer(vanish) as url,
        running_gateway(url.replace("ws", "http").removesuffix("/responses"), **FAST) as gateway,
        Api(gateway.url) as api,
    ):
        began = time.monotonic()
        lost = await api.create(body([user("u1")]))
        assert (lost.status, lost.answer["error"]["code"]) == (502, "upstream_connection_lost")
        assert 0.1 < time.monotonic() - began < 1.5


async def test_b39_our_own_pause_is_not_held_against_the_upstream():
    """While the loop stands still for three liveness limits at a time one turn waits and one socket idles; both live on."""
    async with scene(answers(*([said(f"a{n}")] for n in range(3))), **FAST) as run:
        idle = await run.api.create(body([user("u1")]), headers={"x-team": "1"})
        run.simulator.faults.add(Fault(actions=f.Silence(1.0)))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(run.api.create(body([user("u2")])))
            await run.simulator.until(lambda journal: len(journal.creates()) == 2)
            for _ in range(2):
                time.sleep(0.45)  # noqa: ASYNC251 (what a large body can do to the loop)
                await asyncio.sleep(0.02)
        assert waiting.result().status == 200
        again = await run.api.create(
            body([user("u1"), *idle.answer["output"], user("u3")]), headers={"x-team": "1"}
        )
        assert again.mode == "delta"
        assert run.simulator.journal.closed() == []
