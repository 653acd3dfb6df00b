"""Clients that leave, at every moment of a turn and in every way that TCP has."""

import asyncio
import io
import json

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
    said,
    saying,
    until,
    user,
)
from tests.raw_http import raw_upstream

WAYS = ("fin", "rst", "half")
MOMENTS = {
    "before the first event": f.RECEIPT,
    "after the first event": f.CREATED,
    "in the middle": f.after_deltas(2),
    "before the last event": f.BEFORE_TERMINAL,
}


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_client_that_leaves_takes_its_socket_along(moment, how, stream, store):
    """The upstream sees the socket closed, everything is at rest again, and the conversation goes on from its last whole turn."""
    async with rig({"reasoning": False}) as run:
        asked = [user("one")]
        first = await run.api.create(body(asked, stream=stream, store=store))
        base = [*asked, *finished(first)]
        run.simulator.faults.add(Fault(actions=f.Stall(), at=MOMENTS[moment]))

        async with calling(run.gateway, body([*base, user("left")], stream=stream, store=store)) as caller:
            await run.simulator.until(lambda journal: len(journal.creates()) == 2)
            left = run.frames[1]
            if stream and moment != "before the first event":
                await caller.read_until(b"response.created")
            if stream and moment == "in the middle":
                await caller.read_until(b".delta")
            caller.leave(how)
            await run.simulator.until(lambda journal: journal.closed(), 2)
            stats = await run.at_rest()

        assert stats["turns"]["cancelled"] == 1
        assert stats["connections"]["closed"]["client_left"] == 1
        assert (stats["connections"]["open"], run.simulator.open_sockets) == (0, 0)
        await run.tasks_at_rest()

        following = [*base, user("next")]
        second = await run.api.create(body(following, stream=stream, store=store))
        assert (second.status, second.mode, second.reason) == (
            (200, "delta", None) if store else (200, "full", "parent_lost")
        )
        assert answered_in(run.simulator, second) == asked_for(run.simulator, following)
        assert left.response_id is None or left.response_id.encode() not in second.raw
        third = [*following, *finished(second), user("after that")]
        last = await run.api.create(body(third, stream=stream, store=store))
        assert last.mode == "delta"
        assert answered_in(run.simulator, last) == asked_for(run.simulator, third)


BIG = 12_000_000
"""More than the kernel's buffers of both ends hold, so that a client that does not read keeps us writing."""


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("how", WAYS)
async def test_a_client_that_leaves_behind_the_last_event_ends_a_turn_that_is_over(how, stream):
    """When the upstream is done and we still write, the socket stays, the response is known, and writing ends at once."""
    text = "x" * (BIG // 4 if stream else BIG // 2)
    async with rig(script=saying(text), max_waiting=8 * BIG) as run:
        sent = body([user("one")], stream=stream)
        async with calling(run.gateway, sent) as caller:
            await run.simulator.until(
                lambda journal: [c for c in journal.creates() if c.outcome == "completed"]
            )

            async def still_writing():
                if stream:
                    await caller.take(200_000)
                found = await run.stats()
                return found["connections"]["idle"] == 1 and found["turns"]["in_flight"] == 1

            await until(still_writing)
            caller.leave(how)
            stats = await run.at_rest()

        assert stats["connections"]["open"] == 1
        assert stats["turns"]["total"] == 1
        await run.tasks_at_rest()

        following = [user("one"), said(text), user("two")]
        second = await run.api.create(data=io.BytesIO(json.dumps(body(following, stream=stream)).encode()))
        assert second.mode == "delta"
        assert answered_in(run.simulator, second) == asked_for(run.simulator, following)


@pytest.mark.parametrize("how", WAYS)
async def test_a_client_that_does_not_read_may_still_leave(how):
    """A client whose buffers are full in mid-stream is noticed when it leaves, also if all it says is that it will send no more."""
    async with rig() as run:
        run.simulator.faults.add(Fault(actions=(f.huge_event(BIG), f.Stall()), at=f.CREATED))
        async with calling(run.gateway, body([user("one")])) as caller:
            await run.simulator.until(lambda journal: journal.creates())

            async def writing():
                return (await run.stats())["turns"]["in_flight"] == 1

            await until(writing)
            await asyncio.sleep(0.1)
            caller.leave(how)
            await run.simulator.until(lambda journal: journal.closed(), 2)
            assert (await run.at_rest())["turns"]["cancelled"] == 1
        await run.tasks_at_rest()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("how", WAYS)
async def test_a_client_that_leaves_the_queue_for_a_socket_leaves_nothing_in_it(how, stream):
    """With every socket busy, a waiting turn whose client goes is never sent, and the next in the queue is served."""
    async with rig(sockets_per_identity=1, socket_wait=30.0) as run:
        run.simulator.faults.add(Fault(actions=f.Silence(0.2)))
        async with (
            calling(run.gateway, body([user("busy")], stream=stream)) as first,
            calling(run.gateway, body([user("waiting")], stream=stream)) as caller,
        ):
            await run.simulator.until(lambda journal: len(journal.creates()) == 1)

            async def queued():
                return (await run.stats())["turns"]["in_flight"] == 2

            await until(queued)
            caller.leave(how)

            async def gone():
                return (await run.stats())["turns"]["in_flight"] == 1

            await until(gone, 0.15)
            third = await run.api.create(body([user("third")], stream=stream))
            await first.read_until(b"completed")
        assert third.status == 200
        assert answered_in(run.simulator, third) == asked_for(run.simulator, [user("third")])
        assert [frame.items for frame in run.frames] == [[user("busy")], [user("third")]]
        stats = await run.at_rest()
        assert (stats["turns"]["cancelled"], stats["connections"]["opened"]) == (1, 1)
        await run.tasks_at_rest()


@pytest.mark.parametrize("after", ["the connection", "the request"])
@pytest.mark.parametrize("how", WAYS)
async def test_a_client_that_leaves_while_we_dial_ends_the_dial(how, after):
    """An upstream that accepts and does not answer the upgrade sees its connection closed, and nothing is counted as a socket."""
    heard, closed = asyncio.Event(), asyncio.Event()

    async def silent(connection, _request):
        heard.set()
        assert await connection.reader.read() == b""
        closed.set()

    async with raw_upstream(silent) as upstream, rig_before(upstream.base, socket_wait=30.0) as run:
        async with calling(run.gateway, body([user("one")])) as caller:
            await asyncio.wait_for(heard.wait() if after == "the request" else upstream.accepted.wait(), 2)
            caller.leave(how)
            await asyncio.wait_for(closed.wait(), 2)
            stats = await run.at_rest()
        assert stats["turns"]["cancelled"] == 1
        assert (stats["connections"]["open"], stats["connections"]["opened"]) == (0, 0)
        await until(lambda: upstream.connections == 1)
        await asyncio.wait_for(
            until(lambda: not upstream.serving or all(t.done() for t in upstream.serving)), 2
        )


async def test_those_who_wait_for_the_same_dial_go_on_without_its_client():
    """When the client leaves whose turn was trying a new upstream for all, another one tries."""
    async with rig() as run:
        run.simulator.faults.add(Fault(actions=f.Stall(), at=f.UPGRADE))
        async with calling(run.gateway, body([user("first")])) as caller:
            await run.simulator.until(lambda journal: len(journal) == 1)
            async with asyncio.TaskGroup() as group:
                others = [group.create_task(run.api.create(body([user(f"other {n}")]))) for n in range(5)]

                async def waiting():
                    return (await run.stats())["turns"]["in_flight"] == 6

                await until(waiting)
                caller.leave("rst")
        for number, other in enumerate(others):
            seen = other.result()
            assert (seen.status, seen.mode) == (200, "full")
            assert answered_in(run.simulator, seen) == asked_for(run.simulator, [user(f"other {number}")])
        assert not run.posts
        await run.at_rest()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("how", WAYS)
async def test_a_client_that_leaves_a_turn_over_plain_http_ends_the_request(how, stream):
    """What holds for sockets holds for the way round them: the upstream's request is cut off."""
    async with rig(mode="http") as run:
        run.simulator.faults.add(Fault(actions=f.Stall(), at=f.after_deltas(2) if stream else f.RECEIPT))
        async with calling(run.gateway, body([user("one")], stream=stream)) as caller:
            await run.simulator.until(lambda journal: journal.creates())
            if stream:
                await caller.read_until(b".delta")
            caller.leave(how)
            await run.simulator.until(lambda journal: journal.creates()[0].outcome != "running", 2)
            stats = await run.at_rest()
        assert stats["turns"]["cancelled"] == 1
        await run.tasks_at_rest()


@pytest.mark.parametrize("how", WAYS)
async def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_turn(how):
    """Half a body is never sent upstream, nor counted."""
    raw = json.dumps(body([user("x" * 5000)])).encode()
    async with rig() as run:
        async with connected(run.gateway) as caller:
            head = f"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\n\r\n"
            await caller.send(head.encode() + raw[:3000])
            await until(lambda: len(run.gateway.gateway.requests) == 1)
            caller.leave(how)
            stats = await run.at_rest()
        assert stats["turns"]["total"] == 0
        assert not run.simulator.journal.creates()
        await run.tasks_at_rest()


@pytest.mark.parametrize("how", WAYS)
async def test_others_on_the_same_key_notice_nothing(how):
    """Eight clients of one identity, every second one leaving in the middle: the others get their own answers, whole."""
    options = {"token_pace": 0.001, "reasoning": False}
    async with rig(options) as run:

        async def stays(number):
            asked = [user(f"stays {number} words 20")]
            for _ in range(3):
                seen = await run.api.create(body(asked))
                assert seen.kinds[-1] == "response.completed"
                assert answered_in(run.simulator, seen) == asked_for(run.simulator, asked)
                assert [event["sequence_number"] for event in seen.events] == list(range(len(seen.events)))
                asked = [*asked, *finished(seen), user("go on words 20")]

        async def leaves(number):
            for turn in range(4):
                async with calling(run.gateway, body([user(f"leaves {number} {turn} words 200")])) as caller:
                    await caller.read_until(b".delta")
                    caller.leave(how)

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(stays(number))
                group.create_task(leaves(number))
        stats = await run.at_rest()
        assert stats["turns"]["cancelled"] == 16
        assert not run.simulator.journal.overlaps()
        await run.tasks_at_rest()
