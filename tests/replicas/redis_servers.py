"""A real Redis for one test, and what can become of it; a relay that makes it slow."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from tests.networks.debian import open_folder, program, started
from tests.ports import free_port

SECRET = "a secret that all gateways of this test share"


@dataclass
class Server:
    """A Redis at ``url``; ``child`` is its process, ``client`` talks with it directly."""

    url: str
    port: int
    child: asyncio.subprocess.Process
    client: Redis

    async def wipe(self):
        """Everything is gone."""
        await self.client.flushall()

    async def pause(self, seconds=0.5):
        """Nobody is answered for a while."""
        await self.client.execute_command("CLIENT", "PAUSE", int(seconds * 1000), "ALL")

    async def hang_up(self):
        """All connections are closed."""
        await self.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def entries(self):
        """All that stands in it: name and value."""
        found = {}
        async for name in self.client.scan_iter(match="upwire:*", count=1000):
            found[name] = await self.client.get(name)
        return found


@contextlib.asynccontextmanager
async def running_redis(*options, port=None, password=""):
    """A Redis from Debian's packages, with nothing on disk, for the length of the block."""
    path = program("redis-server", "redis-server")
    port = port or free_port()
    common = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--loglevel",
        "warning",
    ]
    auth = ["--requirepass", password] if password else []
    with open_folder() as folder:
        async with started(
            port, path, *common, *auth, *options, "--dir", str(folder), log=folder / "redis.log"
        ) as child:
            client = Redis(host="127.0.0.1", port=port, password=password or None)
            try:
                given = f":{password}@" if password else ""
                yield Server(f"redis://{given}127.0.0.1:{port}/0", port, child, client)
            finally:
                await client.aclose()


@contextlib.contextmanager
def shared_settings(url, secret=SECRET):
    """Settings of a gateway that uses this index."""
    with open_folder() as folder:
        file = Path(folder) / "secret"
        file.write_text(secret)
        yield {"index": url, "index_key_file": str(file)}
