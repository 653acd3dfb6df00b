"""The context law with two replicas: each session is played directly, and through two gateways that share one Redis."""

from __future__ import annotations

import asyncio
import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.simulator import Options
from tests.gateways import Api, running_simulator
from tests.laws.sessions import sessions
from tests.laws.test_context_law import check_played, outcomes_of
from tests.replicas.pair import running_pair
from tests.replicas.redis_servers import running_redis

pytestmark = pytest.mark.system
# Each takes a quarter of a second, a Redis of its own included.
EXAMPLES = max(8, min(500, int(os.environ.get("UPWIRE_LAW_EXAMPLES", "100")) // 5))
_HITS = {"hits": 0}


@pytest.fixture(autouse=True, scope="module")
def _the_index_is_of_use():
    """The sessions do continue what the other replica has made."""
    yield
    assert _HITS["hits"] > 0


async def play(session, level, seed):
    """Outcomes of the direct run and of the run through both replicas, and the frames of the latter."""
    route = random.Random(seed)
    async with (
        running_redis() as redis,
        running_simulator(Options(seed="law")) as direct,
        running_simulator(Options(seed="law")) as held,
        # Every example is a deployment of its own, as the simulator's ids are the same in all of them.
        running_pair(held.url, redis.url, match=level, index_timeout=2.0) as pair,
        Api(direct.url) as one,
    ):

        def anywhere(body):
            return pair.create(body, at=route.randrange(2), told=False)

        outcomes = [await outcomes_of(session, create) for create in (one.create, anywhere)]
        _HITS["hits"] += sum([(await pair.index(at))["hits"] for at in range(2)])
        return outcomes, held.journal.creates("ws")


@pytest.mark.parametrize("level", ["exact", "equivalent"])
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
    max_examples=EXAMPLES,
)
@given(session=sessions(), seed=st.integers(0, 1000))
def test_a_session_through_two_replicas_is_the_session_played_directly(level, session, seed):
    """Whichever replica gets a turn: status, items, digests and events are those of plain HTTP, and a delta is exactly the new items."""
    check_played(*asyncio.run(play(session, level, seed)), level)
