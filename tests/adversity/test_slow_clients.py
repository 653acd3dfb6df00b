"""Clients that read slowly or not at all: bounded in bytes and in time, and nobody else's concern."""

import asyncio
import io
import os
import time
from pathlib import Path

import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from gateway.upstream.inbox import Inbox
from tests.adversity.rig import body, calling, connected, rig, saying, until, user

MB = 1_000_000
PIECE = f.huge_event(MB)
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident():
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


async def test_a_client_that_does_not_read_is_dropped_at_the_limit_of_bytes():
    """Of 300 MB for a client that reads nothing only a few are ever held; then its socket is closed, and the others never wait."""
    async with rig(max_waiting=2 * MB) as run:
        run.simulator.faults.add(Fault(actions=(PIECE,) * 300, at=f.CREATED))
        before = most = resident()
        async with calling(run.gateway, body([user("stuck")])):
            await run.simulator.until(lambda journal: journal.creates())
            while not run.simulator.journal.closed():
                began = time.monotonic()
                seen = await run.api.create(body([user("other words 3")]))
                assert seen.kinds[-1] == "response.completed"
                assert time.monotonic() - began < 1
                most = max(most, resident())
            stats = await run.at_rest()
        assert stats["turns"]["cancelled"] == 1
        assert stats["connections"]["closed"]["client_left"] == 1
        assert run.frames[0].outcome == "cancelled"
        assert most - before < 60 * MB
        await run.tasks_at_rest()


async def test_a_client_that_reads_nothing_does_not_stop_the_socket_from_being_read():
    """While a client is stuck below the limit, its socket still answers the upstream's pings, so it is not closed for it."""
    async with rig({"ping_interval": 0.3}, max_waiting=100 * MB) as run:
        run.simulator.faults.add(Fault(actions=(*(PIECE,) * 30, f.Silence(0.9)), at=f.CREATED))
        async with calling(run.gateway, body([user("one")])) as caller:
            await run.simulator.until(
                lambda journal: [c for c in journal.creates() if c.outcome == "completed"]
            )
            assert not run.simulator.journal.closed()
            await caller.read_until(b"event: response.completed")
        assert (await run.at_rest())["turns"]["cancelled"] == 0
        assert not run.simulator.journal.closed()


@pytest.mark.parametrize("size", [3 * MB, 20 * MB])
async def test_a_client_that_reads_gets_an_event_larger_than_what_may_wait(size):
    """The limit is for what a client leaves; one large event that is taken at once passes, whatever its size."""
    async with rig(max_waiting=MB) as run:
        run.simulator.faults.add(Fault(actions=(f.huge_event(size), f.huge_event(size)), at=f.CREATED))
        seen = await run.api.create(body([user("one")]))
        assert seen.kinds[-1] == "response.completed"
        assert [len(event["padding"]) for event in seen.events if "padding" in event] == [size, size]


@pytest.mark.parametrize(
    ("sizes", "dropped"),
    [
        ([1] * 101, False),
        ([1] * 102, False),
        ([1] * 103, True),
        ([5000], False),
        ([5000, 5000], False),
        ([5000, 5000, 100], False),
        ([5000, 5000, 101], True),
        ([100, 5000, 5000], False),
        ([101, 5000, 5000], True),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_how_much_may_wait(sizes, dropped, at_once):
    """A client is dropped, once, when more waits than the limit and two events of the largest size."""
    drops = []
    inbox = Inbox()
    inbox.limit, inbox.on_overflow = 100, lambda: drops.append(inbox.size)
    events = [b"x" * size for size in sizes]
    for batch in [events] if at_once else [[event] for event in events]:
        inbox.put(batch)
    assert bool(drops) is dropped
    inbox.put([b"x"] * 300)
    inbox.put([b"x"] * 30_000)
    assert len(drops) == 1
    inbox.take()
    assert inbox.size == 0


STUCK = {
    "a stream": ({"stream": True}, {}),
    "a JSON body": ({"stream": False}, {}),
    "a stream over plain HTTP": ({"stream": True}, {"mode": "http"}),
    "a JSON body over plain HTTP": ({"stream": False}, {"mode": "http"}),
}


@pytest.mark.parametrize("what", STUCK)
async def test_a_client_that_takes_nothing_for_too_long_is_dropped(what):
    """Also far below the limit of bytes a client that takes nothing ends with the time for it, and frees what it held."""
    fields, settings = STUCK[what]
    async with rig(script=saying("x" * 8 * MB), client_timeout=0.3, max_waiting=1000 * MB, **settings) as run:
        began = time.monotonic()
        async with calling(run.gateway, body([user("one")], **fields)) as caller:
            await run.simulator.until(lambda journal: journal.creates())

            async def running():
                return (await run.stats())["turns"]["in_flight"]

            await until(running)
            await run.at_rest(3)
            assert time.monotonic() - began >= 0.3
            seen = await caller.rest()
            assert b"response.completed" not in seen[-9000:]
            assert not seen.endswith((b"0\r\n\r\n", b"}"))
        await run.tasks_at_rest()


async def test_a_download_that_nobody_takes_is_dropped():
    """What is passed through has the same end."""
    async with rig(client_timeout=0.3) as run:
        async with run.api.session.post(
            run.api.url + "/files", data=io.BytesIO(bytes(12 * MB)), headers=run.api.headers
        ) as made:
            name = (await made.json())["id"]
        async with connected(run.gateway) as caller:
            await caller.send(
                f"GET /v1/files/{name}/content HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer k\r\n\r\n".encode()
            )
            await until(lambda: len(run.gateway.gateway.requests) == 1)
            await until(lambda: len(run.gateway.gateway.requests) == 0, 2)
            assert len(await caller.rest()) < 12 * MB
        await run.tasks_at_rest()


@pytest.mark.parametrize("what", STUCK)
async def test_a_slow_client_that_takes_something_is_not_dropped(what):
    """However long it takes for the whole, a client that reads on gets it."""
    fields, settings = STUCK[what]
    each = 2 * MB if fields["stream"] else 10 * MB
    async with rig(script=saying("x" * each), client_timeout=0.25, max_waiting=1000 * MB, **settings) as run:
        began = time.monotonic()
        async with calling(run.gateway, body([user("one")], **fields)) as caller:
            while len(caller.seen) < 10 * MB:
                await caller.take(10 * MB // 12)
                await asyncio.sleep(0.05)
            await caller.read_until(b"event: response.completed" if fields["stream"] else b'"usage"')
        assert time.monotonic() - began > 0.5
        assert (await run.at_rest())["turns"]["cancelled"] == 0
