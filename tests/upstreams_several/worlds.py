"""Two simulated upstreams behind one gateway, each under a local path of its own."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from gateway.settings import UpstreamEntry
from gateway.simulator import Options
from tests.gateways import Api, running_gateway, running_simulator

USER = {"role": "user", "content": "hello"}
PATH = "/second/v1"


@dataclass
class World:
    """The main upstream, the second one, and a gateway before both."""

    main: object
    second: object
    gateway: object

    def api(self, key="sk-test", *, second=False, **headers):
        """A client of one of the two."""
        return Api(self.gateway.root + PATH if second else self.gateway.url, key, **headers)

    async def stats(self):
        """What the gateway tells."""
        async with self.api() as api:
            return (await api.get("/../stats")).answer


@contextlib.asynccontextmanager
async def two_upstreams(main=None, second=None, *, entry=None, **settings):
    """``main`` and ``second`` are the options of the upstreams, ``entry`` further parts of the second one's."""
    async with (
        running_simulator(main or Options(rounds=0)) as first,
        running_simulator(second or Options(rounds=0, seed="second")) as other,
    ):
        made = UpstreamEntry(
            **{"name": "second", "path": PATH, "url": other.url, "profile": "openai"} | (entry or {})
        )
        async with running_gateway(first.url, upstreams=(made,), **settings) as gateway:
            yield World(first, other, gateway)


async def converse(api, turns=2, history=(), **more):
    """A conversation of some turns; the modes, and the history with the last answer."""
    history, modes = [*history], []
    for _ in range(turns):
        history.append(USER)
        seen = await api.create({"model": "gpt-5", "input": history, **more})
        assert seen.status == 200, seen.raw
        modes.append(seen.mode)
        history += seen.answer["output"]
    return modes, history
