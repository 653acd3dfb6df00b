"""Upstreams that fall silent or stop reading: which silence is patience, and which is death."""

import asyncio
import io
import json
import time

import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.adversity.rig import (
    answered_in,
    asked_for,
    body,
    calling,
    connected,
    finished,
    rig,
    rig_before,
    until,
    user,
)
from tests.raw_http import raw_upstream
from tests.upstream.raw_peer import raw_peer

MB = 1_000_000
FAST = {"ping_interval": 0.05, "ping_timeout": 0.1, "write_timeout": 0.3}
"""Patience in a hundredth of its defaults and less: half a second of silence is that of several minutes."""
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])


@BOTH
async def test_an_upstream_that_stops_reading_in_a_large_frame_is_gone_round(stream):
    """A frame that did not leave us cannot have run: the turn goes over plain HTTP, once, and the client sees nothing of it."""
    asked = [user("x" * 5 * MB)]
    async with rig({"receive_buffer": 16_384}, **FAST) as run:
        run.simulator.faults.add(Fault(actions=f.StopReading(), at=f.OPENED))
        seen = await run.api.create(data=_large(body(asked, stream=stream)))
        assert (seen.status, seen.mode, seen.reason) == (200, "http", "connection_lost")
        assert answered_in(run.simulator, seen) == asked_for(run.simulator, asked)
        assert (len(run.frames), len(run.posts)) == (0, 1)
        stats = await run.at_rest()
        assert stats["connections"]["closed"]["write_timeout"] == 1
        assert stats["recoveries"]["http_fallback"] == 1


@BOTH
@pytest.mark.parametrize(
    "moment", [f.RECEIPT, f.after_deltas(2), f.BEFORE_TERMINAL], ids=["before", "in", "behind"]
)
async def test_an_upstream_that_thinks_for_long_is_waited_for(moment, stream):
    """Silence of many ping timeouts is no death while pings are answered: the turn ends as if nothing had been."""
    async with rig({"reasoning": False}, **FAST) as run:
        run.simulator.faults.add(Fault(actions=f.Silence(0.5), at=moment))
        began = time.monotonic()
        seen = await run.api.create(body([user("think")], stream=stream))
        assert time.monotonic() - began >= 0.5
        assert (seen.status, seen.mode) == (200, "full")
        assert answered_in(run.simulator, seen) == asked_for(run.simulator, [user("think")])
        assert seen.answer["status"] == "completed"
        second = await run.api.create(body([user("think"), *finished(seen), user("go on")], stream=stream))
        assert second.mode == "delta"


@BOTH
async def test_an_upstream_that_takes_the_request_and_says_nothing_holds_up_only_its_client(stream):
    """The turn lives as long as pings are answered and its client waits; other turns of the same client are served beside it."""
    async with rig(**FAST) as run:
        run.simulator.faults.add(Fault(actions=f.Stall()))
        async with calling(run.gateway, body([user("silent")], stream=stream)) as caller:
            await run.simulator.until(lambda journal: journal.creates())
            until_ = time.monotonic() + 0.6
            while time.monotonic() < until_:
                seen = await run.api.create(body([user("other")], stream=stream))
                assert seen.status == 200
                await asyncio.sleep(0.05)
            stats = await run.stats()
            assert (stats["turns"]["in_flight"], stats["connections"]["busy"]) == (1, 1)
            assert not run.simulator.journal.closed()
            caller.leave("fin")
            await run.simulator.until(lambda journal: journal.closed(), 2)
        await run.at_rest()


@BOTH
async def test_a_new_socket_that_answers_no_ping_ends_its_turn_in_time(stream):
    """The request may have run, so it is not sent again: the client is told, soon after the ping timeout."""
    async with rig(**FAST) as run:
        run.simulator.faults.add(Fault(actions=f.Stall(pong=False)))
        began = time.monotonic()
        seen = await run.api.create(body([user("one")], stream=stream))
        assert 0.05 < time.monotonic() - began < 1.0
        assert (seen.status, seen.answer["error"]["code"]) == (502, "upstream_connection_lost")
        assert len(run.simulator.journal.creates()) == 1
        stats = await run.at_rest()
        assert stats["connections"]["closed"]["ping_timeout"] == 1
        await run.simulator.until(lambda journal: journal.closed(), 2)
        assert (await run.api.create(body([user("one")], stream=stream))).status == 200


@BOTH
async def test_a_reused_socket_that_is_dead_costs_one_repeat(stream):
    """A socket that died unseen between two turns answers no ping behind the frame: the turn is sent once more, in full."""
    async with rig(**{**FAST, "ping_interval": 30.0}) as run:
        run.simulator.faults.add(Fault(actions=f.Stall(pong=False), at=f.AFTER_TERMINAL))
        first = await run.api.create(body([user("one")], stream=stream))
        asked = [user("one"), *finished(first), user("two")]
        seen = await run.api.create(body(asked, stream=stream))
        assert (seen.status, seen.mode, seen.reason) == (200, "full", "connection_lost")
        assert answered_in(run.simulator, seen) == asked_for(run.simulator, asked)
        stats = await run.at_rest()
        assert stats["recoveries"]["replay"] == 1


async def test_a_stream_whose_upstream_falls_dead_ends_as_a_failure():
    """In mid-stream the end comes with the ping timeout, as one failure event and a body without end."""
    async with rig({"reasoning": False}, **FAST) as run:
        run.simulator.faults.add(Fault(actions=f.Stall(pong=False), at=f.after_deltas(2)))
        async with calling(run.gateway, body([user("one")])) as caller:
            await caller.read_until(b".delta")
            began = time.monotonic()
            seen = await caller.rest()
            assert time.monotonic() - began < 1.0
        assert seen.count(b"event: response.failed") == 1
        assert b"upstream_connection_lost" in seen
        assert not seen.endswith(b"0\r\n\r\n")
        stats = await run.at_rest()
        assert (stats["turns"]["failed"], stats["connections"]["open"]) == (1, 0)


async def test_an_idle_socket_that_answers_no_ping_is_closed_before_a_turn_needs_it():
    """Sockets are pinged between turns too, so the next turn opens a new one and repeats nothing."""
    async with rig(**FAST) as run:
        run.simulator.faults.add(Fault(actions=f.Stall(pong=False), at=f.AFTER_TERMINAL))
        first = await run.api.create(body([user("one")]))

        async def closed():
            return (await run.stats())["connections"]["closed"]["ping_timeout"] == 1

        await until(closed)
        second = await run.api.create(body([user("one"), *finished(first), user("two")]))
        assert (second.mode, second.reason) == ("full", "parent_lost")
        assert (await run.at_rest())["recoveries"]["replay"] == 0


@BOTH
async def test_a_large_frame_that_is_taken_slowly_is_not_given_up(stream):
    """15 MB that take many ping timeouts to be read, without any pong, are no death: only write progress counts meanwhile."""
    items = [user("x" * 15 * MB)]
    took = []

    async def slow(raw):
        began = time.monotonic()
        await raw.reader.readexactly(14)
        left = 15 * MB
        while left > 0:
            left -= len(await raw.reader.read(500_000))
            await asyncio.sleep(0.01)
        took.append(time.monotonic() - began)
        response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
        raw.write(1, json.dumps({"type": "response.created", "response": response}).encode())
        ended = {**response, "status": "completed"}
        raw.write(1, json.dumps({"type": "response.completed", "response": ended}).encode())
        await raw.reader.read()

    async with (
        raw_peer(slow) as url,
        rig_before(url.replace("ws:", "http:").removesuffix("/responses"), **FAST) as run,
    ):
        seen = await run.api.create(data=_large(body(items, stream=stream)))
        assert (seen.status, seen.mode, seen.answer["id"]) == (200, "full", "resp_1")
        assert took[0] > 5 * FAST["ping_timeout"]
        stats = await run.at_rest()
        assert (stats["connections"]["opened"], sum(stats["recoveries"].values())) == (1, 0)


@BOTH
@pytest.mark.parametrize("answers", [True, False], ids=["then answers", "for ever"])
async def test_an_upstream_that_does_not_answer_the_upgrade_is_asked_over_plain_http(answers, stream):
    """The dial ends with its timeout; if plain HTTP is silent as well, the turn waits for as long as its client does."""
    posts = []
    reply = b'{"id": "resp_1", "object": "response", "status": "completed", "output": []}'

    async def play(connection, request):
        if request.line.startswith("GET"):
            await connection.reader.read()
            return
        posts.append(request)
        if answers:
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(reply), reply))
        else:
            await connection.reader.read()

    async with raw_upstream(play) as upstream, rig_before(upstream.base, dial_timeout=0.2) as run:
        async with calling(run.gateway, body([user("one")], stream=stream)) as caller:
            if answers:
                await caller.read_until(reply)
                assert b"x-upwire-reason: upgrade_refused" in caller.seen
            else:
                await until(lambda: posts)
                assert (await run.stats())["turns"]["in_flight"] == 1
                caller.leave("rst")
        await run.at_rest()
        assert len(posts) == 1


async def test_a_client_of_a_silent_upstream_that_sends_nothing_more_is_not_dropped():
    """A client with nothing to take is not one that takes nothing."""
    async with rig(client_timeout=0.1) as run:
        run.simulator.faults.add(Fault(actions=f.Silence(0.6), at=f.CREATED))
        async with connected(run.gateway):
            seen = await run.api.create(body([user("one")]))
        assert seen.kinds[-1] == "response.completed"


def _large(sent):
    """A body in a form that the client's library sends without holding up the loop."""
    return io.BytesIO(json.dumps(sent).encode())
