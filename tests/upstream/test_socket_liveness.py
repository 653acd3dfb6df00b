"""What counts as a dead socket and what does not; all times scaled down."""

from __future__ import annotations

import asyncio
import time

import pytest
from raw_peer import RawSocket, raw_peer
from socket_peer import FAST, done, peer, pool_of, target

from gateway.pool import Want
from gateway.upstream.inbox import SocketLost

MB = 1024 * 1024


async def test_long_silence_with_pongs_is_no_death() -> None:
    """Nothing but pongs for many ping timeouts, then the answer: the turn gets it."""

    async def think(connection) -> None:
        async for _ in connection:
            await asyncio.sleep(1.2)
            await connection.send(done(1).decode())

    async with peer(think) as seen, pool_of(patience=FAST) as pool:
        lease = await pool.acquire(target(seen.url), [])
        await lease.send(b"{}")
        assert await lease.receive() == [done(1)]
        lease.release(tip="r1", stored=False, reusable=True)
        await asyncio.sleep(0.5)
        assert pool.snapshot()["idle"] == 1


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
async def test_no_pong_and_no_data_is_death(busy: bool) -> None:
    """An upstream that went silent altogether is found out within the ping interval and timeout, busy or idle."""

    async def vanish(raw: RawSocket) -> None:
        await raw.text()
        if not busy:
            raw.write(1, done(1))
        await asyncio.sleep(10)

    async with raw_peer(vanish) as url, pool_of(patience=FAST) as pool:
        lease = await pool.acquire(target(url), [])
        began = time.monotonic()
        await lease.send(b"{}")
        if busy:
            with pytest.raises(SocketLost) as caught:
                await lease.receive()
            assert (caught.value.reason, caught.value.flushed) == ("ping_timeout", True)
        else:
            assert await lease.receive()
            lease.release(tip="r1", stored=False, reusable=True)
            while pool.snapshot()["idle"]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert 0.25 < time.monotonic() - began < 1
        assert pool.snapshot()["closed"]["ping_timeout"] == 1


async def test_data_without_pongs_is_life() -> None:
    """An upstream that streams but never pongs is not cut."""

    async def deaf(raw: RawSocket) -> None:
        await raw.text()
        for number in range(10):
            raw.write(1, done(number))
            await asyncio.sleep(0.1)
        await raw.ponging()

    async with raw_peer(deaf) as url, pool_of(patience=FAST) as pool:
        lease = await pool.acquire(target(url), [])
        await lease.send(b"{}")
        got: list[bytes] = []
        while len(got) < 10:
            got += await lease.receive()
        lease.release(tip="r1", stored=False, reusable=True)


async def test_upstreams_pings_are_answered_while_nobody_receives() -> None:
    """An idle socket answers pings, so that the upstream keeps it."""
    async with peer(ping_interval=0.05, ping_timeout=0.1) as seen, pool_of() as pool:
        lease = await pool.acquire(target(seen.url), [])
        await lease.send(b"{}")
        await lease.receive()
        lease.release(tip="r1", stored=False, reusable=True)
        await asyncio.sleep(0.5)
        assert pool.snapshot()["closed"]["lost"] == 0
        assert seen.closes == []


async def test_slow_but_moving_write_of_a_large_frame_lives() -> None:
    """A frame that takes many write and ping timeouts is not cut while it moves, nor while the network holds its end."""
    size = 20 * MB

    async def slow(raw: RawSocket) -> None:
        head = await raw.reader.readexactly(14)
        assert head[1] & 127 == 127
        taken = 0
        while taken < size:
            data = await raw.reader.read(min(65_536, size - taken))
            taken += len(data)
            last = size - taken < 70_000
            await asyncio.sleep(2 * FAST.ping_timeout if last and data else 0.004)
        raw.write(1, b"%d" % taken)
        await asyncio.sleep(0.1)

    async with raw_peer(slow, receive_buffer=65_536) as url, pool_of(patience=FAST) as pool:
        lease = await pool.acquire(target(url), [])
        began = time.monotonic()
        await lease.send(b"x" * size)
        assert time.monotonic() - began > 2 * FAST.write_timeout
        assert await lease.receive() == [b"%d" % size]
        lease.abort()


async def test_busy_loop_of_our_own_is_not_held_against_the_upstream() -> None:
    """When our event loop stands still for longer than the ping timeout, healthy sockets stay."""

    async def once(connection) -> None:
        async for _ in connection:
            await connection.send(done(1).decode())

    async with peer(once) as seen, pool_of(patience=FAST) as pool:
        lease = await pool.acquire(target(seen.url), [])
        await lease.send(b"{}")
        await lease.receive()
        lease.release(tip="r1", stored=False, reusable=True)
        for _ in range(3):
            await asyncio.sleep(0.05)
            lease = await pool.acquire(target(seen.url), [Want("r1", stored=False)])
            await lease.send(b"{}")
            time.sleep(0.5)  # noqa: ASYNC251
            await lease.receive()
            lease.release(tip="r1", stored=False, reusable=True)
        assert pool.snapshot()["opened"] == 1


async def test_reader_is_never_paused_and_what_waits_is_told() -> None:
    """A turn that does not take its events sees how much waits; pongs still come through and the socket lives."""

    async def flood(connection) -> None:
        async for _ in connection:
            for _ in range(100):
                await connection.send("x" * 100_000)

    async with peer(flood) as seen, pool_of(patience=FAST) as pool:
        lease = await pool.acquire(target(seen.url), [])
        await lease.send(b"{}")
        await asyncio.sleep(1)
        assert lease.waiting_bytes == 100 * 100_000
        assert len(await lease.receive()) == 100
        assert lease.waiting_bytes == 0
        lease.release(tip="r1", stored=False, reusable=True)
