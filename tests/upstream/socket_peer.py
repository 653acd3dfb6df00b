"""Upstreams for socket tests: a WebSocket server run by a script, and raw TCP servers that break the rules."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from gateway.pool import PoolLimits, Want
from gateway.tasks import Tasks
from gateway.upstream.dial import DialOptions
from gateway.upstream.lease import Lease
from gateway.upstream.liveness import Patience
from gateway.upstream.socket_pool import SocketPool
from gateway.upstream.waiting import Target

FAST = Patience(ping_interval=0.1, ping_timeout=0.3, write_timeout=0.3, close_timeout=0.2)
SLOW = Patience(ping_interval=30.0, ping_timeout=30.0, write_timeout=30.0, close_timeout=0.2)

Script = Callable[[ServerConnection], Awaitable[None]]


def target(url: str, identity: bytes = b"me") -> Target:
    """A target of the given identity."""
    return Target(url, (("authorization", "Bearer k"), ("user-agent", "test/1")), identity)


async def whole_turn(pool: SocketPool, aim: Target, *wants: Want, tip: str) -> Lease:
    """A turn that gets two events and leaves ``tip`` on its socket."""
    lease = await pool.acquire(aim, wants)
    await lease.send(b'{"type":"response.create"}')
    frames: list[bytes] = []
    while len(frames) < 2:
        frames += await lease.receive()
    lease.release(tip=tip, stored=False, reusable=True)
    return lease


def done(number: int) -> bytes:
    """A terminal event."""
    return orjson.dumps({"type": "response.completed", "response": {"id": f"resp_{number}"}})


class Peer:
    """What the scripted server saw."""

    def __init__(self) -> None:
        self.url = ""
        self.dials = 0
        self.sockets: list[ServerConnection] = []
        self.closes: list[int | None] = []
        self.closed = asyncio.Event()


async def answer_each(connection: ServerConnection) -> None:
    """Two events per frame, numbered over the socket."""
    number = 0
    async for _ in connection:
        number += 1
        await connection.send(orjson.dumps({"type": "response.created"}), text=True)
        await connection.send(done(number), text=True)


async def swallow(connection: ServerConnection) -> None:
    """Take everything, answer nothing."""
    async for _ in connection:
        pass


@contextlib.asynccontextmanager
async def peer(script: Script = answer_each, **options: object) -> AsyncIterator[Peer]:
    """A WebSocket server on a free port that runs ``script`` for each connection."""
    seen = Peer()

    async def handle(connection: ServerConnection) -> None:
        seen.sockets.append(connection)
        try:
            await script(connection)
        except ConnectionClosed:
            pass
        finally:
            await connection.wait_closed()
            seen.closes.append(connection.close_code)
            seen.closed.set()

    def count(_connection: ServerConnection, _request: object) -> None:
        seen.dials += 1

    settings = {"process_request": count, "max_size": None, "ping_interval": None, "close_timeout": 0.1}
    async with serve(handle, "127.0.0.1", 0, **(settings | options)) as server:
        port = server.sockets[0].getsockname()[1]
        seen.url = f"ws://127.0.0.1:{port}/v1/responses"
        yield seen


@contextlib.asynccontextmanager
async def refusing(*answers: bytes) -> AsyncIterator[Peer]:
    """A server that answers each upgrade with the next of ``answers`` (the last one for ever) and closes."""
    seen = Peer()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answers[min(seen.dials, len(answers) - 1)])
            seen.dials += 1
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        seen.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/responses"
        yield seen


def status(code: int, body: bytes = b"") -> bytes:
    """A bare HTTP answer."""
    return b"HTTP/1.1 %d Some\r\ncontent-length: %d\r\n\r\n%b" % (code, len(body), body)


@contextlib.asynccontextmanager
async def pool_of(
    limits: PoolLimits | None = None, *, patience: Patience = SLOW, **options: object
) -> AsyncIterator[SocketPool]:
    """A socket pool that is checked to be clean in the end."""
    failures: list[tuple[str, BaseException]] = []
    tasks = Tasks(lambda name, failure: failures.append((name, failure)))
    clock = options.pop("clock", None)
    extra = {} if clock is None else {"clock": clock}
    pool = SocketPool(
        limits=limits or PoolLimits(),
        dial=DialOptions(patience=patience, **options),
        tasks=tasks,
        **extra,
    )
    try:
        yield pool
    finally:
        await pool.close()
        await tasks.close()
    assert failures == []
    counts = pool.snapshot()
    assert (counts["open"], counts["busy"], counts["idle"]) == (0, 0, 0)
    assert counts["opened"] == sum(counts["closed"].values())
