"""The context law with two workers: each session is played directly, and through two processes that share one port."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings

from gateway.simulator import Options
from tests.gateways import Api, running_simulator
from tests.laws.sessions import sessions
from tests.laws.test_context_law import check_played, outcomes_of
from tests.workers.running import running_workers

EXAMPLES = max(8, int(os.environ.get("UPWIRE_LAW_EXAMPLES", "100")) // 5)
WORKERS = int(os.environ.get("UPWIRE_LAW_WORKERS", "2"))


class _Anywhere(Api):
    """A client that takes a new connection for every request, so that any worker may get it."""

    async def __aenter__(self):
        connector = aiohttp.TCPConnector(force_close=True)
        self.session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self


class _World:
    """Two simulated upstreams, one of them behind workers. Every session has a key of its own, and so is alone."""

    def __init__(self, direct, held, gateway):
        self._direct = direct
        self._held = held
        self._gateway = gateway
        self._numbers = itertools.count()

    async def play(self, session):
        """Outcomes of the direct run and of the run through the workers, and the frames of the latter."""
        key = f"sk-{next(self._numbers)}"
        before = len(self._held.journal.creates("ws"))
        async with Api(self._direct.url, key) as one, _Anywhere(self._gateway.url, key) as other:
            outcomes = [await outcomes_of(session, api.create) for api in (one, other)]
        return outcomes, self._held.journal.creates("ws")[before:]


@pytest.fixture(scope="module", params=["exact", "equivalent"])
def world(request):
    """The level, and what plays a session."""
    level = request.param
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()

        async def build():
            direct, held = [
                await stack.enter_async_context(
                    running_simulator(Options(seed="law", journal_limit=1_000_000))
                )
                for _ in range(2)
            ]
            # Sessions of the past hold sockets; they may go for those of the present one.
            roomy = {"sockets": 2000, "match": level}
            gateway = await stack.enter_async_context(running_workers(held.url, WORKERS, **roomy))
            return _World(direct, held, gateway)

        built = runner.run(build())
        yield level, lambda session: runner.run(built.play(session))
        runner.run(stack.aclose())


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
    max_examples=EXAMPLES,
)
@given(session=sessions())
def test_a_session_through_two_workers_is_the_session_played_directly(world, session):
    """Whichever worker gets a turn: status, items, digests and events are those of plain HTTP, and a delta is exactly the new items."""
    level, play = world
    check_played(*play(session), level)
