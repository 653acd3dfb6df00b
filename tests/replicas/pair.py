"""Two gateways in front of one upstream that share an index, and one client that meets now this one, now that one."""

from __future__ import annotations

import asyncio
import contextlib

from tests.gateways import Api, running_gateway
from tests.replicas.redis_servers import shared_settings


class Pair:
    """Replicas by their numbers; ``create`` goes to the one named, or to each in turn."""

    def __init__(self, apis):
        self.apis = apis
        self._next = 0

    async def create(self, body, *, at=None, data=None, headers=None, told=True):
        """One request; with ``told`` only over when the other replicas can know of its answer. ``data`` is how it was written."""
        if at is None:
            at = self._next
            self._next = (self._next + 1) % len(self.apis)
        before = _told(await self.index(at)) if told else 0
        seen = await self.apis[at].create(body, data=data, headers=headers)
        if (
            told
            and seen.status == 200
            and seen.answer.get("status") == "completed"
            and body.get("store") is not False
        ):
            await self.until(at, lambda index: _told(index) > before or index["state"] != "works")
        return seen

    async def index(self, at):
        """What replica ``at`` says of its index."""
        return (await self.apis[at].get("/../stats")).answer["index"]

    async def until(self, at, what, *, within=10.0):
        """Wait until the index of a replica is as ``what`` wants it."""
        async with asyncio.timeout(within):
            while not what(found := await self.index(at)):  # noqa: ASYNC110 (it is asked over HTTP)
                await asyncio.sleep(0.01)
        return found

    async def state(self, *states, within=10.0):
        """Wait until every replica's index is in one of these states."""
        return [
            await self.until(at, lambda i: i["state"] in states, within=within)
            for at in range(len(self.apis))
        ]


def _told(index):
    """How many responses were told of, or given up."""
    return index["written"] + index["dropped"]


@contextlib.asynccontextmanager
async def running_pair(upstream, url, *, key="sk-test", count=2, works=True, secrets=(), **settings):
    """``count`` replicas that share the index at ``url``, each with a secret of its own if ``secrets`` are given."""
    async with contextlib.AsyncExitStack() as stack:
        apis = []
        for at in range(count):
            shared = stack.enter_context(shared_settings(url, *secrets[at : at + 1]))
            gateway = await stack.enter_async_context(running_gateway(upstream, **{**shared, **settings}))
            apis.append(await stack.enter_async_context(Api(gateway.url, key)))
        pair = Pair(apis)
        if works:
            await pair.state("works")
        yield pair


def grown(history, seen, text):
    """A history with the answer and the user's next words."""
    return [*history, *seen.answer["output"], {"role": "user", "content": text}]


def asked(history, **more):
    """The body of a stored turn."""
    return {"model": "gpt-5", "input": history, "store": True, **more}
