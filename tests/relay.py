"""A relay before a server on this machine: what is asked may wait, and all that passes is counted."""

from __future__ import annotations

import asyncio

from gateway.tasks import Tasks


class Relay:
    """Listens on ``port`` of its own; what is asked waits ``delay`` seconds. ``up`` and ``down`` are the bytes of each way."""

    def __init__(self, to):
        self.delay = 0.0
        self.up = self.down = 0
        self._to = to
        self._failures = []
        self._tasks = Tasks(lambda *failure: self._failures.append(failure))

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._tasks.close()
        assert not self._failures

    async def _serve(self, reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._tasks.spawn(self._pass(reader, back, asked=True), name="there")
        self._tasks.spawn(self._pass(there, writer, asked=False), name="back")

    async def _pass(self, source, sink, *, asked):
        try:
            while data := await source.read(65_536):
                self.up += asked * len(data)
                self.down += (not asked) * len(data)
                if asked and self.delay:
                    await asyncio.sleep(self.delay)
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()
