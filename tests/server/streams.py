"""A simulated upstream and many clients of a gateway in one process: python -m tests.server.streams COUNT.

Prints the upstream's URL, reads the gateway's, and prints the count when all streams have begun; ends by being killed.
"""

import asyncio
import json
import sys

import aiohttp

from gateway.simulator import Options
from tests.gateways import running_simulator

BODY = {"model": "gpt-5", "store": False, "stream": True, "input": "words 2000"}


async def main(count):
    """Runs them all; each stream brings ten words a second for minutes."""
    async with (
        running_simulator(Options(token_pace=0.1, reasoning=False)) as simulator,
        aiohttp.ClientSession(
            headers={"authorization": "Bearer sk-test"}, connector=aiohttp.TCPConnector(limit=0)
        ) as client,
        asyncio.TaskGroup() as group,
    ):
        print(json.dumps(simulator.url), flush=True)  # noqa: T201
        gateway = (await asyncio.to_thread(sys.stdin.readline)).strip()
        begun = [asyncio.Event() for _ in range(count)]

        async def stream(event):
            async with client.post(gateway + "/v1/responses", json=BODY) as answer:
                async for _ in answer.content:
                    event.set()

        for event in begun:
            group.create_task(stream(event))
        for event in begun:
            await event.wait()
        print(count, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
