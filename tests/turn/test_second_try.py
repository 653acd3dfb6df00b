"""The second try of a turn whose socket turned out to be dead."""

import asyncio

import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import body, finished, scene, user

DEAF = {"ping_interval": 30.0, "ping_timeout": 0.3}
"""Nobody finds out by pinging that an idle socket is dead."""


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("limit", [3, 32])
async def test_it_takes_no_socket_that_may_have_died_with_the_first(store, limit):
    """After a sleep or a change of network all idle sockets are dead: the repeat goes over a new one, and the client sees nothing."""
    async with scene(options={"reasoning": False}, sockets_per_identity=limit, **DEAF) as run:
        run.simulator.faults.add(
            Fault(actions=f.Silence(0.1), times=3),
            Fault(actions=f.StopReading(), at=f.AFTER_TERMINAL, times=3),
        )
        asked = [[user(f"conversation {n}")] for n in range(3)]
        first = await asyncio.gather(*(run.api.create(body(items, store=store)) for items in asked))
        assert len(run.simulator.journal.opened()) == 3

        second = await run.api.create(body([*asked[0], *finished(first[0]), user("and?")], store=store))

        assert second.status == 200
        assert (second.mode, second.reason) == ("full", "connection_lost")
        assert len(run.simulator.journal.opened()) == 4
        assert (await run.stats())["recoveries"]["replay"] == 1
        run.simulator.reset_connections()
