"""Every limit is a setting with a default, and holds exactly: one less, as many, one more."""

import asyncio
import contextlib
import gzip
import io
import json
import time

import pytest

from gateway.settings import Settings
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
    saying,
    until,
    user,
)
from tests.gateways import Api

AROUND = pytest.mark.parametrize("off", [-1, 0, 1], ids=["one less", "as many", "one more"])

LIMITS = (
    "max_in_flight", "sockets_per_identity", "sockets", "conversations", "conversation_items", "conversation_age",
    "max_body", "max_frame", "max_event", "max_header", "max_waiting", "client_timeout", "socket_age", "socket_idle",
    "socket_wait", "dial_timeout", "ping_interval", "ping_timeout", "write_timeout", "drain_timeout",
)  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_is_a_setting_with_a_finite_default(name):
    """Nothing that peers can make grow is without a bound unless somebody says so."""
    assert 0 < getattr(Settings(), name) < float("inf")


@contextlib.asynccontextmanager
async def stalled(run, count, key="sk-test"):
    """So many turns of one client that have been sent upstream and are not answered; ends with them gone."""
    async with contextlib.AsyncExitStack() as stack:
        run.simulator.faults.add(Fault(actions=f.Stall(), times=count))
        before = len(run.simulator.journal.creates())
        callers = [
            await stack.enter_async_context(calling(run.gateway, body([user(f"stalled {n}")]), key=key))
            for n in range(count)
        ]
        await run.simulator.until(lambda journal: len(journal.creates()) == before + count)
        yield callers


@AROUND
async def test_turns_at_once(off):
    """Beyond the limit the answer is 503 with retry-after, at once and before the body is sent; the others go on."""
    limit = 3
    async with rig(max_in_flight=limit) as run:
        async with stalled(run, limit - 1 + off) as callers:
            began = time.monotonic()
            seen = await run.api.create(body([user("one more")]))
            assert time.monotonic() - began < 0.5
            if off <= 0:
                assert seen.status == 200
            else:
                assert (seen.status, seen.answer["error"]["code"]) == (503, "too_many_turns")
                assert seen.answer["error"]["type"] == "service_unavailable_error"
                assert int(seen.headers["retry-after"]) >= 1
                async with connected(run.gateway) as caller:
                    await caller.send(
                        b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sk-test\r\n"
                        b"Content-Length: 100000000\r\n\r\n"
                    )
                    await caller.read_until(b"too_many_turns")
                    assert b"HTTP/1.1 503 " in caller.seen
                assert (await run.api.get("/models")).status == 200
                assert (await run.stats())["turns"]["in_flight"] == limit
            callers[0].leave("rst")

            async def room():
                return (await run.stats())["turns"]["in_flight"] < limit

            await until(room)
            assert (await run.api.create(body([user("again")]))).status == 200
        stats = await run.at_rest()
        assert stats["turns"]["total"] == limit - 1 + off + (2 if off <= 0 else 1)


def most_open(journal):
    """How many sockets were open at most at any time."""
    now = most = 0
    for entry in journal:
        now += {"open": 1, "close": -1}.get(entry.kind, 0)
        most = max(most, now)
    return most


@AROUND
async def test_sockets_of_one_identity(off):
    """A turn beyond the limit waits its time for a socket and then goes over plain HTTP; another client is not concerned."""
    limit = 3
    async with rig(sockets_per_identity=limit, socket_wait=0.05) as run:
        async with stalled(run, limit - 1 + off):
            began = time.monotonic()
            seen = await run.api.create(body([user("one more")]))
            expected = ("full", "new_conversation") if off <= 0 else ("http", "no_socket")
            assert (seen.status, seen.mode, seen.reason) == (200, *expected)
            assert time.monotonic() - began < 1
            assert answered_in(run.simulator, seen) == asked_for(run.simulator, [user("one more")])
            async with Api(run.gateway.url, key="sk-other") as other:
                assert (await other.create(body([user("other")]))).mode == "full"
        await run.at_rest()


@AROUND
async def test_sockets_in_all(off):
    """The sum over all identities has a limit of its own: with all of them busy the turn goes over plain HTTP."""
    limit = 4
    async with rig(sockets=limit, sockets_per_identity=3, socket_wait=0.05) as run:
        async with stalled(run, 2), stalled(run, limit - 3 + off, key="sk-other"):
            async with Api(run.gateway.url, key="sk-third") as third:
                seen = await third.create(body([user("one more")]))
            expected = ("full", "new_conversation") if off <= 0 else ("http", "no_socket")
            assert (seen.status, seen.mode, seen.reason) == (200, *expected)
            assert (await run.stats())["connections"]["open"] <= limit
        assert most_open(run.simulator.journal) <= limit
        await run.at_rest()


@AROUND
async def test_idle_sockets_make_room(off):
    """At the limit in all, the socket that was idle longest is closed for a client that has none."""
    limit = 3
    async with rig(sockets=limit) as run:
        for number in range(limit + off):
            async with Api(run.gateway.url, key=f"sk-{number}") as api:
                seen = await api.create(body([user("one")]))
                assert (seen.status, seen.mode) == (200, "full")
        stats = await run.stats()
        assert stats["connections"]["open"] == min(limit, limit + off)
        assert stats["connections"]["closed"]["evicted"] == max(0, off)


async def known_after(count, **settings):
    """The first of so many conversations, gone on with: its mode, and the statistics."""
    async with rig({"reasoning": False}, saying("answer"), **settings) as run:
        asked = []
        for number in range(count):
            first = [user(f"conversation {number}")]
            seen = await run.api.create(body(first, store=True))
            asked.append([*first, *finished(seen), user("go on")])
        before = await run.stats()
        seen = await run.api.create(body(asked[0], store=True))
        assert answered_in(run.simulator, seen) == asked_for(run.simulator, asked[0])
        return seen, before


@AROUND
async def test_conversations_kept(off):
    """One more than may be kept costs the one that was not used for longest, which is sent in full again."""
    limit = 3
    seen, before = await known_after(limit + off, conversations=limit)
    assert (seen.mode, seen.reason) == (("delta", None) if off <= 0 else ("full", "new_conversation"))
    assert before["conversations"]["known"] == min(limit, limit + off)
    assert before["conversations"]["evicted"] == max(0, off)


@AROUND
async def test_items_kept(off):
    """With two items each, three conversations need room for six."""
    seen, before = await known_after(3, conversation_items=6 - off)
    assert (seen.mode, seen.reason) == (("delta", None) if off <= 0 else ("full", "new_conversation"))
    assert before["conversations"]["known"] == (3 if off <= 0 else 2)


@pytest.mark.parametrize(("age", "kept"), [(60.0, True), (0.1, False)])
async def test_conversations_end_with_their_age(age, kept):
    """A conversation that was not used for the time is not known any more, also if nobody asks for one meanwhile."""
    async with rig({"reasoning": False}, conversation_age=age) as run:
        first = await run.api.create(body([user("one")], store=True))

        async def known():
            return (await run.stats())["conversations"]["known"]

        if not kept:

            async def none_known():
                return not await known()

            await until(none_known)
        assert await known() == int(kept)
        asked = [user("one"), *finished(first), user("two")]
        second = await run.api.create(body(asked, store=True))
        assert second.mode == ("delta" if kept else "full")


@pytest.mark.parametrize("coding", ["identity", "gzip", "chunked"])
@AROUND
async def test_bytes_of_a_body(off, coding):
    """Decoded bytes count, however they were sent; one too many is 413 and goes nowhere."""
    limit = 20_000
    raw = json.dumps(body([user("")])).encode()
    raw = json.dumps(body([user("x" * (limit + off - len(raw)))])).encode()
    assert len(raw) == limit + off
    async with rig(max_body=limit) as run:
        headers = {"content-encoding": "gzip"} if coding == "gzip" else {}
        data = gzip.compress(raw) if coding == "gzip" else raw
        seen = await run.api.create(data=_in_pieces(data) if coding == "chunked" else data, headers=headers)
        if off <= 0:
            assert seen.status == 200
        else:
            assert (seen.status, seen.answer["error"]["code"]) == (413, "body_too_large")
            assert not run.simulator.journal.creates()
        assert (await run.stats())["turns"]["total"] == int(off <= 0)


async def _in_pieces(data):
    for at in range(0, len(data), 7000):
        yield data[at : at + 7000]


@AROUND
async def test_bytes_of_a_frame(off):
    """A frame of as many bytes as the limit goes over plain HTTP; what fits within it as a delta does not."""
    limit = 30_000
    async with rig() as run:
        await run.api.create(body([user("x" * 1000)]))
        overhead = len(run.frames[0].raw) - 1000
    async with rig({"max_frame": limit, "reasoning": False}, max_frame=limit) as run:
        asked = [user("x" * (limit + off - overhead))]
        seen = await run.api.create(body(asked))
        expected = ("full", "new_conversation") if off < 0 else ("http", "too_large")
        assert (seen.status, seen.mode, seen.reason) == (200, *expected)
        assert answered_in(run.simulator, seen) == asked_for(run.simulator, asked)
        assert (len(run.frames), len(run.posts)) == ((1, 0) if off < 0 else (0, 1))
        if off < 0:
            second = [*asked, *finished(seen), user("x" * 1000)]
            assert (await run.api.create(body(second))).mode == "delta"


@pytest.mark.parametrize("where", ["header", "target"])
@AROUND
async def test_bytes_of_a_header_and_of_the_request_line(off, where):
    """One byte more than the limit is 431 in the API's shape, and nothing of it is shown."""
    limit = 8000
    async with rig(max_header=limit) as run, connected(run.gateway) as caller:
        raw = json.dumps(body([user("one")])).encode()
        name, target = b"x-padding", b"/v1/responses?p="
        padding = limit + off - len(name if where == "header" else target)
        if where == "header":
            head = b"POST /v1/responses HTTP/1.1\r\n" + name + b": " + b"s" * padding
        else:
            head = b"POST " + target + b"s" * padding + b" HTTP/1.1"
        await caller.send(
            head
            + b"\r\nHost: 127.0.0.1\r\nAuthorization: Bearer k\r\nContent-Length: %d\r\n\r\n" % len(raw)
            + raw
        )
        if off <= 0:
            await caller.read_until(b"event: response.completed")
            assert caller.seen.startswith(b"HTTP/1.1 200 ")
        else:
            seen = await caller.rest()
            assert seen.split(maxsplit=2)[1] == b"431"
            assert b"headers_too_large" in seen
            assert b"sss" not in seen


async def test_a_header_larger_than_its_usual_limits_reaches_the_upstream():
    """What the gateway takes by default it can also pass on, over a socket and over plain HTTP."""
    size = 12_000
    async with rig() as run:
        for mode in ({}, {"x-upwire-mode": "http"}):
            seen = await run.api.create(body([user("one")]), headers={"x-large": "s" * size, **mode})
            assert seen.status == 200
        assert [len(entry.headers["x-large"]) for entry in run.simulator.journal.creates()] == [size, size]


async def test_a_large_body_is_refused_while_it_is_sent():
    """A body whose length says that it is too large is not read, and its sender gets to know why."""
    async with rig(max_body=1000) as run:
        seen = await asyncio.wait_for(run.api.create(data=io.BytesIO(b"x" * 30_000_000)), 5)
        assert (seen.status, seen.answer["error"]["code"]) == (413, "body_too_large")
