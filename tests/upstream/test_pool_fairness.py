"""Who is served first of those who wait for a socket."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest
from socket_peer import Peer, peer, pool_of, swallow, target

from gateway.pool import Party, PoolLimits
from gateway.upstream.lease import Lease
from gateway.upstream.socket_pool import NoSocket, SocketPool


async def lease(pool: SocketPool, seen: Peer, party: Party, name: bytes) -> Lease:
    """A socket for one turn of a party."""
    return await pool.acquire(replace(target(seen.url, name), party=party), ())


async def test_fewest_sockets_first() -> None:
    """A key that has all sockets and waits for more does not get the next before one that has none."""
    limits = PoolLimits(sockets=2, socket_wait=0.5)
    busy, other = Party(), Party()
    async with peer(swallow) as seen, pool_of(limits=limits) as pool:
        held = [await lease(pool, seen, busy, b"busy") for _ in range(2)]
        got: list[str] = []

        async def wait(name: str, party: Party) -> None:
            with pytest.raises(NoSocket) if name == "busy" else contextlib.nullcontext():
                await lease(pool, seen, party, name.encode())
                got.append(name)

        async with asyncio.TaskGroup() as group:
            for name, party in (("busy", busy), ("busy", busy), ("other", other)):
                group.create_task(wait(name, party))
                await asyncio.sleep(0)
            held[0].release(tip="r1", stored=False, reusable=True)
        assert got == ["other"]
        assert (busy.busy, other.busy) == (1, 1)
