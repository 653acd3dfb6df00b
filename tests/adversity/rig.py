"""What the tests of bad peers share: a gateway before an upstream, clients on bare sockets, and what must be back at rest."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from dataclasses import dataclass, field

from gateway.simulator import FunctionScript, Options
from tests.gateways import Api, running_gateway, running_simulator

KEY = "sk-test"


def user(text):
    """A user's message."""
    return {"role": "user", "content": text}


def said(text):
    """A finished message of the model."""
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"type": "message", "status": "completed", "role": "assistant", "content": [part]}


def body(items, **fields):
    """A streamed request that the API does not store, unless told otherwise."""
    return {"model": "gpt-5", "store": False, "stream": True, "input": items, **fields}


def saying(text):
    """A script: every answer is one message with this text."""
    return FunctionScript(lambda _ask: [said(text)])


def finished(seen):
    """The output items of an answer, streamed or whole."""
    return seen.answer["output"]


async def until(holds, seconds=2.0):
    """Wait until ``holds()`` (a function or a coroutine function) gives something true, and give that."""
    async with asyncio.timeout(seconds):
        while True:
            found = holds()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.003)


@dataclass
class Rig:
    """An upstream (simulated, unless a test brings its own), a gateway before it, and a client of the gateway."""

    simulator: object
    gateway: object
    api: Api
    tasks: int = field(default=0)

    @property
    def frames(self):
        """All creates that came over sockets."""
        return self.simulator.journal.creates("ws")

    @property
    def posts(self):
        """All creates that came over plain HTTP."""
        return self.simulator.journal.creates("http")

    async def stats(self):
        """What ``/stats`` says now."""
        async with self.api.session.get(self.gateway.root + "/stats") as answer:
            return await answer.json()

    async def at_rest(self, seconds=2.0):
        """Wait until no turn runs, no socket is busy and no request is handled; the statistics that say so."""

        async def resting():
            found = await self.stats()
            busy = found["turns"]["in_flight"] or found["connections"]["busy"]
            return None if busy or len(self.gateway.gateway.requests) else found

        return await until(resting, seconds)

    async def tasks_at_rest(self, seconds=2.0):
        """Wait until no more tasks run than when the rig was made."""
        upgraded = 0 if self.simulator is None else self.simulator.open_sockets
        await until(lambda: _tasks() <= self.tasks + upgraded, seconds)


@contextlib.asynccontextmanager
async def rig(options=None, script=None, **settings):
    """Everything running, with a connection of the client already open, so that tasks can be counted."""
    async with running_simulator(Options(**(options or {})), script) as simulator:
        async with rig_before(simulator.url, simulator, **settings) as made:
            yield made


@contextlib.asynccontextmanager
async def rig_before(url, simulator=None, **settings):
    """A gateway before the upstream at ``url``, and its client."""
    async with running_gateway(url, **settings) as gateway, Api(gateway.url, key=KEY) as api:
        made = Rig(simulator, gateway, api)
        await made.stats()
        made.tasks = _tasks()
        yield made


_LASTING = ("SocketPool._retire", "RequestHandler.start", "Simulator._session", "SocketConnection.")


def _tasks():
    """How many tasks run, but for those that last as long as a connection or the gateway."""
    # A generator that the loop is closing has no such name, and counts.
    names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    return sum(not name.startswith(_LASTING) for name in names)


def answered_in(simulator, seen):
    """The digest, modulo what the default level ignores, of the context that an answer was made in."""
    entry = next(one for one in simulator.journal.creates() if one.response_id == seen.answer["id"])
    return entry.digests.modulo


def asked_for(simulator, items):
    """The same digest of what a client asked for."""
    return simulator.digest_of(items).modulo


class Caller:
    """A client on a bare socket, which reads only when told to, and can leave in any way."""

    def __init__(self, connection):
        self.connection = connection
        self.seen = bytearray()

    async def send(self, data):
        """Write these bytes."""
        await asyncio.get_running_loop().sock_sendall(self.connection, data)

    async def take(self, size):
        """Read up to ``size`` bytes, as many as come; nothing at the end of the connection."""
        piece = await asyncio.get_running_loop().sock_recv(self.connection, size)
        self.seen += piece
        return piece

    async def read_until(self, mark):
        """Read on until ``mark`` is part of what was seen."""
        async with asyncio.timeout(5):
            start = 0
            while self.seen.find(mark, start) < 0:
                start = max(0, len(self.seen) - len(mark))
                assert await self.take(1_000_000), "the connection ended before that"

    async def rest(self):
        """Everything up to the end of the connection, however it comes."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                while await self.take(1_000_000):
                    pass
        return self.seen

    def leave(self, how):
        """``fin``: close in good order; ``rst``: reset; ``half``: only say that nothing more will be sent."""
        if how == "half":
            self.connection.shutdown(socket.SHUT_WR)
        elif how == "fin":
            # A close alone would be a reset where something was not read.
            self.connection.shutdown(socket.SHUT_RDWR)
            self.connection.close()
        else:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


@contextlib.asynccontextmanager
async def connected(gateway):
    """A Caller that has sent nothing yet."""
    host, port = gateway.root.removeprefix("http://").split(":")
    with socket.socket() as connection:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
        yield Caller(connection)


@contextlib.asynccontextmanager
async def calling(gateway, sent, *, version=b"1.1", key=KEY):
    """A Caller that has posted ``sent`` as a request for a response."""
    raw = json.dumps(sent).encode()
    head = (
        b"POST /v1/responses HTTP/%b\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    async with connected(gateway) as caller:
        await caller.send(head % (version, key.encode(), len(raw)) + raw)
        yield caller
