"""Lending real sockets: reuse, parents, waiting, giving up, draining."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from socket_peer import Peer, answer_each, done, peer, pool_of, swallow, target, whole_turn

from gateway.pool import Closed, Fate, PoolLimits, Want
from gateway.upstream.inbox import SocketLost
from gateway.upstream.lease import Lease
from gateway.upstream.socket_pool import NoSocket, SocketPool


async def turn(pool: SocketPool, seen: Peer, *wants: Want, tip: str, identity: bytes = b"me") -> Lease:
    """One whole turn."""
    return await whole_turn(pool, target(seen.url, identity), *wants, tip=tip)


async def test_second_turn_continues_on_the_socket_that_holds_its_parent() -> None:
    """A released socket is found again by its newest response, and counted as reused."""
    async with peer() as seen, pool_of() as pool:
        first = await turn(pool, seen, tip="r1")
        second = await turn(pool, seen, Want("r1", stored=False), tip="r2")
        assert (first.reused, second.reused) == (False, True)
        assert second.socket_id == first.socket_id
        assert second.parent == Want("r1", stored=False)
        assert pool.holds(b"me", "r2") and not pool.holds(b"me", "r1") and not pool.holds(b"you", "r2")
        counts = pool.snapshot()
        assert (counts["opened"], counts["reused"], counts["idle"]) == (1, 1, 1)
        assert seen.dials == 1


async def test_headers_of_the_turn_that_opens_the_socket_go_up() -> None:
    """The handshake carries the client's own headers and nothing of the library's."""
    async with peer() as seen, pool_of() as pool:
        await turn(pool, seen, tip="r1")
        request = seen.sockets[0].request
        assert request is not None
        assert request.headers["authorization"] == "Bearer k"
        assert request.headers.get_all("user-agent") == ["test/1"]
        assert "sec-websocket-extensions" not in request.headers


async def test_identities_never_share_a_socket() -> None:
    """An idle socket of another identity is no choice."""
    async with peer() as seen, pool_of() as pool:
        first = await turn(pool, seen, tip="r1")
        second = await turn(pool, seen, Want("r1", stored=True), tip="r2", identity=b"you")
        assert second.socket_id != first.socket_id
        assert seen.dials == 2


async def test_busy_parent_is_not_waited_for() -> None:
    """While the parent's socket runs a turn another socket is dialled and the fate says why."""
    async with peer() as seen, pool_of() as pool:
        await turn(pool, seen, tip="r1")
        busy = await pool.acquire(target(seen.url), [Want("r1", stored=False)])
        other = await pool.acquire(target(seen.url), [Want("r1", stored=False)])
        assert (other.parent, other.fate) == (None, Fate.BUSY)
        busy.abort()
        other.abort()


async def test_waiting_turn_gets_the_released_socket_and_then_gives_up() -> None:
    """At the limit a turn waits for a release, first come first served, and no longer than the socket wait."""
    limits = PoolLimits(sockets_per_identity=1, socket_wait=0.15)
    async with peer() as seen, pool_of(limits) as pool:
        held = await pool.acquire(target(seen.url), [])
        order: list[int] = []

        async def wait(number: int) -> None:
            lease = await pool.acquire(target(seen.url), [])
            order.append(number)
            lease.release(tip=None, stored=False, reusable=True)

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(wait(number))
            await asyncio.sleep(0)
            held.release(tip="r1", stored=False, reusable=True)
        assert order == [0, 1, 2]
        held = await pool.acquire(target(seen.url), [])
        with pytest.raises(NoSocket):
            await pool.acquire(target(seen.url), [])
        held.abort()


async def test_abort_closes_at_once_and_the_upstream_sees_it() -> None:
    """A client that leaves while the upstream is silent ends its socket; the lease then only says that it is over."""
    async with peer(swallow) as seen, pool_of() as pool:
        lease = await pool.acquire(target(seen.url), [])
        await lease.send(b"{}")
        receiving = asyncio.ensure_future(lease.receive())  # noqa: TID251
        await asyncio.sleep(0)
        lease.abort()
        lease.abort()
        lease.release(tip="r1", stored=False, reusable=True)
        with pytest.raises(SocketLost, match="ours"):
            await receiving
        await asyncio.wait_for(seen.closed.wait(), 2)
        assert seen.closes == [1000]
        assert pool.snapshot()["closed"]["client_left"] == 1
        assert not pool.holds(b"me", "r1")


async def test_events_after_release_never_reach_the_next_turn() -> None:
    """An event for nobody retires the socket; a transport notice does not."""

    async def late(connection) -> None:
        async for frame in connection:
            await connection.send(done(1).decode())
            if b"notice" in (frame if isinstance(frame, bytes) else frame.encode()):
                await connection.send('{"type":"codex.rate_limits"}')
            else:
                await asyncio.sleep(0.05)
                await connection.send('{"type":"response.output_text.delta"}')

    async with peer(late) as seen, pool_of() as pool:
        first = await pool.acquire(target(seen.url), [])
        await first.send(b'"notice"')
        await first.receive()
        first.release(tip="r1", stored=False, reusable=True)
        await asyncio.sleep(0.05)
        second = await pool.acquire(target(seen.url), [Want("r1", stored=False)])
        assert second.socket_id == first.socket_id
        await second.send(b'"stray"')
        assert await second.receive() == [done(1)]
        second.release(tip="r2", stored=False, reusable=True)
        await asyncio.wait_for(seen.closed.wait(), 2)
        assert pool.snapshot()["closed"]["error"] == 1
        third = await pool.acquire(target(seen.url), [Want("r2", stored=False)])
        assert (third.parent, third.fate) == (None, Fate.LOST)
        third.abort()


async def test_left_over_events_at_release_retire_the_socket() -> None:
    """What a turn did not take is judged like an event for nobody."""
    async with peer() as seen, pool_of() as pool:
        lease = await pool.acquire(target(seen.url), [])
        await lease.send(b"{}")
        frames = await lease.receive()
        while len(frames) < 2:
            frames += await lease.receive()
        await lease.send(b"{}")
        while lease.waiting_bytes < len(done(2)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        lease.release(tip="r1", stored=False, reusable=True)
        assert pool.snapshot()["closed"]["error"] == 1


async def test_unusable_socket_is_closed_and_an_aged_one_teaches_the_limit() -> None:
    """Release decides: not reusable closes with an error, aged with age and a lower limit from then on."""
    now = [1000.0]
    async with peer() as seen, pool_of(clock=lambda: now[0]) as pool:
        lease = await pool.acquire(target(seen.url), [])
        lease.release(tip=None, stored=False, reusable=False)
        lease = await pool.acquire(target(seen.url), [])
        now[0] += 20
        lease.release(tip=None, stored=False, reusable=False, aged=True)
        lease = await pool.acquire(target(seen.url), [])
        now[0] += 16
        lease.release(tip="r1", stored=False, reusable=True)
        closed = pool.snapshot()["closed"]
        assert (closed["error"], closed["age"]) == (1, 2)
        assert not pool.holds(b"me", "r1")


async def test_drain_closes_idle_sockets_politely_and_busy_ones_when_released() -> None:
    """Draining refuses new turns, sends close frames, and ends when the last turn has ended."""
    async with peer() as seen, pool_of() as pool:
        busy = await pool.acquire(target(seen.url), [])
        await turn(pool, seen, tip="r1")
        draining = asyncio.ensure_future(pool.drain(5))  # noqa: TID251
        await asyncio.sleep(0)
        assert pool.snapshot()["idle"] == 0
        with pytest.raises(NoSocket):
            await pool.acquire(target(seen.url), [])
        await busy.send(b"{}")
        assert await busy.receive()
        busy.release(tip="r2", stored=False, reusable=True)
        assert await draining is True
        assert pool.snapshot()["closed"]["drained"] == 2
    assert seen.closes == [1000, 1000]


async def test_drain_gives_up_after_its_time() -> None:
    """A turn that does not end holds the drain no longer than asked."""
    async with peer(swallow) as seen, pool_of() as pool:
        lease = await pool.acquire(target(seen.url), [])
        assert await pool.drain(0.05) is False
        lease.abort(Closed.DRAINED)
        assert await pool.drain(0.05) is True


async def test_idle_sockets_are_retired() -> None:
    """A socket unused for too long is closed without a turn asking."""
    async with peer() as seen, pool_of(PoolLimits(socket_idle=0.1)) as pool:
        await turn(pool, seen, tip="r1")
        await asyncio.wait_for(seen.closed.wait(), 2)
        assert pool.snapshot()["closed"]["idle"] == 1


async def test_many_turns_at_random_abort_points_mix_no_answers() -> None:
    """Eight workers abort or finish turns on few sockets; each event read belongs to the frame just sent."""

    async def echo(connection) -> None:
        async for frame in connection:
            for part in range(3):
                await connection.send(f'{{"type":"e","of":"{frame}","part":{part}}}')
                await asyncio.sleep(0)

    async with peer(echo) as seen, pool_of(PoolLimits(sockets_per_identity=4, socket_wait=5)) as pool:

        async def work(worker: int) -> None:
            for number in range(25):
                lease = await pool.acquire(target(seen.url), [])
                name = f"{worker}.{number}"
                await lease.send(name.encode())
                got: list[bytes] = []
                while len(got) < (number + worker) % 4:
                    got += await lease.receive()
                assert all(f'"of":"{name}"'.encode() in frame for frame in got)
                if len(got) == 3:
                    lease.release(tip=name, stored=False, reusable=True)
                else:
                    lease.abort()
                assert pool.snapshot()["open"] <= 4

        async with asyncio.TaskGroup() as group:
            for worker in range(8):
                group.create_task(work(worker))


async def test_cancelled_waits_leave_the_pool_clean() -> None:
    """A turn cancelled while queued, dialling, sending or receiving leaves no reservation behind."""
    async with peer(answer_each) as seen, pool_of(PoolLimits(sockets_per_identity=1, socket_wait=5)) as pool:
        for passes in range(12):
            held = await pool.acquire(target(seen.url), [])
            queued = asyncio.ensure_future(pool.acquire(target(seen.url), []))  # noqa: TID251
            await asyncio.sleep(0)
            if passes % 3 == 0:
                held.abort()
            elif passes % 3 == 1:
                held.release(tip="x", stored=False, reusable=True)
            for _ in range(passes):
                await asyncio.sleep(0)
            queued.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await queued).abort()
            held.abort()
            assert pool.snapshot()["busy"] == 0
        await turn(pool, seen, tip="r1")
