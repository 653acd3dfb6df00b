"""The context law with two upstreams: one session is played at both through one gateway at once, and at each directly."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import HealthCheck, given, settings

from gateway.simulator import Options
from tests.gateways import Api, running_simulator
from tests.laws.sessions import sessions
from tests.laws.test_context_law import check_played, outcomes_of
from tests.upstreams_several.worlds import two_upstreams

EXAMPLES = max(8, int(os.environ.get("UPWIRE_LAW_EXAMPLES", "100")) // 4)
SEEDS = ("law", "another")


async def play(session, level):
    """For each upstream the outcomes of the direct run and of that through the gateway, and the frames of the latter."""
    one, two = (Options(seed=seed) for seed in SEEDS)
    async with (
        running_simulator(one) as first,
        running_simulator(two) as second,
        two_upstreams(one, two, match=level) as world,
        world.api() as here,
        world.api(second=True) as there,
        Api(first.url) as first_api,
        Api(second.url) as second_api,
    ):
        apis = (first_api, second_api, here, there)
        async with asyncio.TaskGroup() as group:
            played = [group.create_task(outcomes_of(session, api.create)) for api in apis]
        direct_one, direct_two, through_one, through_two = (task.result() for task in played)
        return (
            ([direct_one, through_one], world.main.journal.creates("ws")),
            ([direct_two, through_two], world.second.journal.creates("ws")),
        )


@pytest.mark.parametrize("level", ["exact", "equivalent"])
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
    max_examples=EXAMPLES,
)
@given(session=sessions())
def test_a_session_at_two_upstreams_at_once_is_that_session_at_each(level, session):
    """The same key, the same history, the same moment: status, items, digests and events are those of either alone."""
    for outcomes, frames in asyncio.run(play(session, level)):
        check_played(outcomes, frames, level)
