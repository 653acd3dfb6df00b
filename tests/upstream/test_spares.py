"""Spare sockets on real connections: opened behind the turn, free of what belongs to one request, never to a turn's harm."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from socket_peer import Peer, peer, pool_of, refusing, status, whole_turn
from websockets.asyncio.server import ServerConnection

from gateway.pool import MAIN, Dial, PoolLimits
from gateway.simulator import Options
from gateway.upstream.dial import UpgradeRefused
from gateway.upstream.lease import Lease
from gateway.upstream.socket_pool import SocketPool
from gateway.upstream.waiting import Target
from tests.gateways import Api, running_gateway, running_simulator

WARM = PoolLimits(warm=1)
HEADERS = (
    ("Authorization", "Bearer k"),
    ("User-Agent", "test/1"),
    ("openai-beta", "responses_websockets=v1"),
    ("X-Client-Request-Id", "one-request"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("session-id", "one-session"),
)
PER_REQUEST = ("x-client-request-id", "traceparent", "session-id", "user-agent")


def to(url: str, identity: bytes = b"me") -> Target:
    """Where the turns of these tests go."""
    return Target(url, HEADERS, identity, per_request=PER_REQUEST)


async def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for something that happens in the background."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def turn(pool: SocketPool, seen: Peer, tip: str, identity: bytes = b"me") -> Lease:
    """One whole turn that starts a conversation."""
    return await whole_turn(pool, to(seen.url, identity), tip=tip)


async def test_the_next_conversation_pays_no_handshake() -> None:
    """The first turn has a socket opened beside its own; the second takes it, and has another one opened."""
    async with peer() as seen, pool_of(WARM) as pool:
        first = await turn(pool, seen, "r1")
        await until(lambda: pool.snapshot()["idle"] == 2)
        second = await turn(pool, seen, "s1")
        assert (first.reused, second.reused) == (False, True)
        assert second.socket_id != first.socket_id
        assert pool.holds(b"me", "r1") and pool.holds(b"me", "s1")
        await until(lambda: pool.snapshot()["idle"] == 3)
        assert seen.dials == 3


async def test_none_is_opened_where_nobody_asked_for_it() -> None:
    """By default there are as many sockets as conversations."""
    async with peer() as seen, pool_of() as pool:
        await turn(pool, seen, "r1")
        await turn(pool, seen, "s1")
        assert seen.dials == 2


async def test_its_handshake_is_of_no_request() -> None:
    """It carries the caller's key and settings and the name of the program, but no id of the request at hand."""
    async with peer() as seen, pool_of(WARM) as pool:
        await turn(pool, seen, "r1")
        await until(lambda: len(seen.sockets) == 2)
        own, spare = (each.request.headers for each in seen.sockets if each.request is not None)
        assert own["session-id"] == "one-session"
        assert spare["authorization"] == "Bearer k"
        assert spare["user-agent"] == "test/1"
        assert spare["openai-beta"] == "responses_websockets=v1"
        assert not {"session-id", "traceparent", "x-client-request-id"} & {name.lower() for name in spare}


@pytest.mark.parametrize("code", [400, 401, 403, 404, 426, 500])
async def test_a_refused_one_is_nobodys_trouble(code: int) -> None:
    """Its refusal bars no turn, and is not asked for again with every turn."""

    def refuse_without_session(connection: ServerConnection, request):
        seen.dials += 1
        return None if "session-id" in request.headers else connection.respond(code, "no")

    async with peer(process_request=refuse_without_session) as seen, pool_of(WARM) as pool:
        await turn(pool, seen, "r1")
        await until(
            lambda: pool.snapshot()["dialling"] == 0 and sum(pool.snapshot()["refused"].values()) == 1
        )
        for number in range(3):
            await turn(pool, seen, f"s{number}")
        assert pool.health()["websocket"] == "works"
        assert seen.dials == 5
        assert pool.snapshot()["open"] == 4


async def test_an_upstream_that_refuses_sockets_is_not_asked_for_spare_ones() -> None:
    """Nothing is dialled for later where the dial for now failed."""
    async with refusing(status(404)) as seen, pool_of(WARM) as pool:
        for _ in range(3):
            with pytest.raises(UpgradeRefused):
                await pool.acquire(to(seen.url), [])
        assert seen.dials == 1


@contextlib.asynccontextmanager
async def gated() -> AsyncIterator[tuple[Peer, asyncio.Event]]:
    """An upstream that accepts one socket, and others when the gate is opened."""
    gate = asyncio.Event()

    async def held(_connection: ServerConnection, _request: object) -> None:
        seen.dials += 1
        if seen.dials > 1:
            await gate.wait()

    async with peer(process_request=held) as seen:
        yield seen, gate


async def test_draining_waits_for_none_that_opens() -> None:
    """What is being dialled for no turn is given up, and the drain ends at once."""
    async with gated() as (seen, gate), pool_of(WARM) as pool:
        await turn(pool, seen, "r1")
        await until(lambda: seen.dials == 2)
        assert pool.snapshot()["dialling"] == 1
        async with asyncio.timeout(2):
            assert await pool.drain(10)
        assert pool.snapshot()["dialling"] == 0
        gate.set()


async def test_one_that_the_upstream_closes_is_replaced_at_the_next_turn() -> None:
    """Its end harms no conversation, and no dial is repeated while nobody asks for anything."""
    async with peer() as seen, pool_of(WARM) as pool:
        await turn(pool, seen, "r1")
        await until(lambda: pool.snapshot()["idle"] == 2)
        await seen.sockets[1].close(1001)
        await until(lambda: pool.snapshot()["idle"] == 1)
        assert pool.holds(b"me", "r1")
        assert seen.dials == 2
        await turn(pool, seen, "s1")
        await until(lambda: pool.snapshot()["idle"] == 3)
        assert seen.dials == 4


async def test_a_turn_at_the_limit_gets_the_one_that_opens() -> None:
    """A turn that may open no socket of its own waits for the spare one."""
    limits = PoolLimits(warm=1, sockets_per_identity=2, socket_wait=5)
    async with gated() as (seen, gate), pool_of(limits) as pool:
        first = await pool.acquire(to(seen.url), [])
        await until(lambda: seen.dials == 2)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(pool.acquire(to(seen.url), []))
            await asyncio.sleep(0)
            gate.set()
        second = waiting.result()
        assert second.reused and second.socket_id != first.socket_id
        assert seen.dials == 2
        first.abort()
        second.abort()


async def test_none_probes_an_upstream() -> None:
    """If the upstream is doubted again before a spare socket is dialled, it is left to a turn to find out."""
    async with peer() as seen, pool_of(WARM) as pool:
        first = await pool.acquire(to(seen.url), [])
        openings = pool._lines.openings(MAIN)
        openings._upgrades.refused(seen.url, 403, "status", 0.0)
        assert not openings.is_proven(seen.url)
        probe = Dial(1_000, None, None)
        openings.begin(to(seen.url), probe)
        waiting = asyncio.ensure_future(openings.barred(to(seen.url)))  # noqa: TID251
        await asyncio.sleep(0.05)
        assert seen.dials == 1
        openings.give_up(to(seen.url), probe)
        async with asyncio.timeout(2):
            await waiting
        first.abort()


async def test_through_a_gateway_each_identity_has_its_own() -> None:
    """First turns of later conversations open nothing while they run; another key never gets what was opened for the first."""
    async with (
        running_simulator(Options()) as simulator,
        running_gateway(simulator.url, warm=1) as gateway,
        Api(gateway.url) as api,
    ):

        async def stats() -> dict[str, int]:
            async with api.session.get(gateway.root + "/stats") as answer:
                return (await answer.json())["connections"]

        async def ready(count: int) -> None:
            async with asyncio.timeout(5):
                while (await stats())["idle"] != count:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

        def body(text: str) -> dict[str, object]:
            return {"model": "gpt-5", "store": False, "stream": True, "input": text}

        for number in range(1, 4):
            seen = await api.create(body(f"question {number}"))
            assert (seen.status, seen.mode) == (200, "full")
            await ready(number + 1)
        assert (await stats())["reused"] == 2
        used = [entry.connection for entry in simulator.journal.creates("ws")]
        assert len(set(used)) == 3
        other = await api.create(body("question 1"), headers={"authorization": "Bearer sk-other"})
        assert other.status == 200
        await ready(6)
        assert (await stats())["reused"] == 2
