"""Faults that others met: sockets that reach their greatest age, and sockets that die under a turn."""

import asyncio
import fcntl
import io
import json
import struct
import termios

import pytest

from gateway.pool import Dial, Pool, PoolLimits, Use
from gateway.settings import Settings
from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import answers, bare, body, finished, held, said, scene, user

HOUR = 3600.0


async def agent(run, seconds, pause, **fields):
    """Turns of one growing conversation, one after the other with a pause; the answers."""
    loop = asyncio.get_running_loop()
    history, seen, until = [user("start")], [], loop.time() + seconds
    while loop.time() < until:
        answer = await run.api.create(body(history, **fields))
        assert answer.status == 200
        assert answer.kinds[-1] == "response.completed"
        assert held(run.simulator, answer)[:-1] == [bare(item) for item in history]
        seen.append(answer)
        history = [*history, *finished(answer), user(f"turn {len(seen)}")]
        await asyncio.sleep(pause)
    return seen


def ages(run):
    """The age of its socket at which each frame arrived."""
    opened = {entry.connection: entry.at for entry in run.simulator.journal.opened()}
    return [frame.at - opened[frame.connection] for frame in run.frames]


@pytest.mark.parametrize("store", [False, True])
async def test_b21_sockets_are_rotated_before_the_limit(store):
    """A conversation moves from socket to socket without an error, and no frame meets a socket near its limit."""
    limit, retired = 1.0, 0.6
    async with scene(
        lambda ask: [said(f"answer {ask.ordinal}")], options={"max_age": limit}, socket_age=retired
    ) as run:
        seen = await agent(run, 3.0, 0.1, store=store)

        assert len(run.frames) == len(seen)
        assert not run.posts
        assert max(ages(run)) < 0.9 * limit
        sockets = [frame.connection for frame in run.frames]
        assert len(set(sockets)) >= 3
        first = [n == 0 or sockets[n] != sockets[n - 1] for n in range(len(sockets))]
        for new, answer, frame in zip(first, seen, run.frames, strict=True):
            # What is not stored cannot be loaded on a new socket; what is stored can.
            full = new if not store else frame is run.frames[0]
            assert answer.mode == ("full" if full else "delta")
        assert {answer.reason for answer in seen[1:]} <= {None, "parent_lost"}
        stats = await run.stats()
        assert stats["connections"]["closed"]["age"] >= 2


@pytest.mark.parametrize("store", [False, True])
async def test_b21_a_limit_met_unprepared_is_hidden(store):
    """An upstream whose limit is lower than we think refuses by name; the turn goes on over a new socket, unseen."""
    async with scene(lambda ask: [said(f"answer {ask.ordinal}")], options={"max_age": 0.5}) as run:
        seen = await agent(run, 1.5, 0.05, store=store)
        refused = [frame for frame in run.frames if frame.outcome == "refused"]
        assert refused
        assert {frame.code for frame in refused} == {"websocket_connection_limit_reached"}
        assert len(run.frames) == len(seen) + len(refused)
        assert not run.posts
        assert all(answer.kinds.count("response.created") == 1 for answer in seen)
        stats = await run.stats()
        assert stats["recoveries"]["reconnect"] == len(refused)


async def test_b21_a_socket_closed_between_turns_costs_one_delta():
    """An upstream that ends its old sockets with a close frame while nothing runs is met by a full turn on a new one."""
    async with scene(answers([said("a")], [said("b")], [said("c")])) as run:
        first = await run.api.create(body([user("u1")]))
        await run.simulator.close_sockets(1001, "going away")
        await run.simulator.until(lambda journal: journal.closed())
        asked = [user("u1"), *finished(first), user("u2")]
        second = await run.api.create(body(asked))
        assert (second.status, second.mode, second.reason) == (200, "full", "parent_lost")
        third = await run.api.create(body([*asked, *finished(second), user("u3")]))
        assert third.mode == "delta"


@pytest.mark.parametrize(("age", "used"), [(3299.9, True), (3300.0, False), (3300.1, False), (HOUR, False)])
async def test_b21_the_default_age_leaves_a_margin_before_the_hour(age, used):
    """With the default settings a socket takes no turn from 55 minutes on, five before the API would refuse it."""
    limits = PoolLimits()
    assert limits.socket_age == Settings().socket_age == HOUR - 300
    pool = Pool(limits)
    dialled = pool.reserve(b"me", (), 0.0, upstream="ws://upstream")
    assert isinstance(dialled, Dial)
    pool.opened(dialled.socket_id, 0.0)
    pool.release(dialled.socket_id, age - 1.0, tip=None, stored=False)
    found = pool.reserve(b"me", (), age, upstream="ws://upstream")
    assert isinstance(found, Use if used else Dial)


def unread(simulator):
    """Bytes that wait in the kernel for a simulated upstream that stopped reading."""
    count = 0
    for connection in simulator._sockets:
        raw = connection._request.transport.get_extra_info("socket")
        count += struct.unpack("i", fcntl.ioctl(raw.fileno(), termios.FIONREAD, b"\0" * 4))[0]
    return count


async def until_unread(simulator, size):
    """Wait until so many bytes have arrived unread."""
    async with asyncio.timeout(5):
        while unread(simulator) < size:  # noqa: ASYNC110 (the kernel announces nothing)
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("stream", [True, False])
async def test_b22_a_reset_at_the_frame_ends_the_wait_at_once(stream):
    """A new socket that is reset when the frame has arrived is a 502 within a second, and the turn is not run twice."""
    async with scene() as run:
        run.simulator.faults.add(Fault(actions=f.Abort()))
        async with asyncio.timeout(1):
            answer = await run.api.create(body([user("u1")], stream=stream))
        assert (answer.status, answer.answer["error"]["code"]) == (502, "upstream_connection_lost")
        assert len(run.simulator.journal.creates()) == 1
        assert (await run.until_idle())["connections"]["open"] == 0
        following = await run.api.create(body([user("u1")], stream=stream))
        assert following.status == 200


async def test_b22_a_reused_socket_that_was_dead_is_repeated_once_at_once():
    """A reset of a reused socket that never answered the frame, nor the ping behind it, costs one repeat and no second."""
    async with scene(answers([said("a")], [said("b")])) as run:
        run.simulator.faults.add(Fault(actions=f.StopReading(), at=f.AFTER_TERMINAL))
        first = await run.api.create(body([user("u1")]))
        asked = [user("u1"), *finished(first), user("u2")]
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(2):
            running = tasks.create_task(run.api.create(body(asked)))
            await until_unread(run.simulator, 100)
            run.simulator.reset_connections()
        second = running.result()
        assert (second.status, second.mode, second.reason) == (200, "full", "connection_lost")
        assert second.kinds.count("response.created") == 1
        assert (run.frames[-1].parent, run.frames[-1].items) == (None, asked)
        stats = await run.until_idle()
        assert stats["recoveries"] == {"full_resend": 0, "reconnect": 0, "http_fallback": 0, "replay": 1}


def large(items):
    """A body of 5 MB."""
    return io.BytesIO(json.dumps(body([*items, user("x" * 5_000_000)])).encode())


@pytest.mark.parametrize("reused", [False, True], ids=["new", "reused"])
async def test_b22_an_upstream_that_stops_reading_ends_the_write_in_time(reused):
    """A frame that stays stuck ends at the write timeout; it never got there whole, so the turn goes over HTTP instead."""
    async with scene(options={"receive_buffer": 32_768}, write_timeout=0.4) as run:
        items = []
        if reused:
            run.simulator.faults.add(Fault(actions=f.StopReading(), at=f.AFTER_TERMINAL))
            first = await run.api.create(body([user("words 1")]))
            items = [user("words 1"), *finished(first)]
        else:
            run.simulator.faults.add(Fault(actions=f.StopReading(), at=f.OPENED))
        started = asyncio.get_running_loop().time()
        async with asyncio.timeout(5):
            answer = await run.api.create(data=large(items))
        assert asyncio.get_running_loop().time() - started < 3
        assert (answer.status, answer.mode, answer.reason) == (200, "http", "connection_lost")
        assert answer.kinds[-1] == "response.completed"
        assert len(run.posts) == 1
        stats = await run.until_idle()
        assert stats["connections"]["closed"]["write_timeout"] == 1
        assert stats["connections"]["open"] == 0


async def test_b22_a_reset_in_the_middle_of_a_large_frame_ends_the_write_at_once():
    """No timeout has to pass when the connection breaks while the frame is being written."""
    async with scene(options={"receive_buffer": 32_768}) as run:
        run.simulator.faults.add(Fault(actions=f.StopReading(), at=f.OPENED))
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(5):
            running = tasks.create_task(run.api.create(data=large([])))
            await run.simulator.until(lambda journal: journal.opened())
            await until_unread(run.simulator, 10_000)
            run.simulator.reset_connections()
            reset_at = asyncio.get_running_loop().time()
            answer = await running
            assert asyncio.get_running_loop().time() - reset_at < 2
        assert (answer.status, answer.mode, answer.reason) == (200, "http", "connection_lost")
        assert len(run.simulator.journal.creates()) == 1
