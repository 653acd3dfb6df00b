"""The context law, by comparison: each session is played directly and through the gateway, against two simulated upstreams.

Their answers are a function of the whole context they hold. Equal answers mean that what the upstream holds plus what was sent
equals what the client asked for.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.simulator import Options
from tests.gateways import Api, running_gateway, running_simulator
from tests.laws.sessions import Client, sessions


async def play(session, level):
    async with (
        running_simulator(Options(seed="law")) as direct,
        running_simulator(Options(seed="law", compression=level == "exact")) as held,
    ):
        async with (
            running_gateway(held.url, match=level, warm=int(level == "equivalent")) as gateway,
            Api(direct.url) as one,
            Api(gateway.url) as other,
        ):
            outcomes = [await outcomes_of(session, api.create) for api in (one, other)]
        return outcomes, held.journal.creates("ws")


async def outcomes_of(session, create):
    """What becomes of each turn of a session when ``create`` answers its requests."""
    starts, moves = session

    async def post(body):
        found = await create(body)
        return found.status, found.headers, found.answer, found.kinds

    client = Client(post, starts)
    await client.play(moves)
    return client.outcomes


def check(session, level):
    check_played(*asyncio.run(play(session, level)), level)


def check_played(outcomes, frames, level):
    """The outcomes of the direct run are those of the run through the gateway, which wrote ``frames``."""
    direct, through = outcomes
    assert len(direct) == len(through)
    for one, other in zip(direct, through, strict=True):
        assert one.seen(mask_strict=level != "exact") == other.seen(mask_strict=level != "exact")
        assert one.events == other.events
    assert not [frame for frame in frames if frame.overlapped]
    check_deltas(through, frames)


def check_deltas(outcomes, frames):
    """Each delta in the journal holds exactly the last items of one request that the client sent, and never none."""
    sent = [outcome.sent for outcome in outcomes]
    own = {outcome.body.get("previous_response_id") for outcome in outcomes}
    for frame in frames:
        if frame.parent is not None and frame.parent not in own:
            assert frame.items
            assert any(
                items[-len(frame.items) :] == frame.items and len(frame.items) < len(items) for items in sent
            )


@pytest.mark.parametrize("level", ["exact", "equivalent"])
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(session=sessions())
def test_a_session_through_the_gateway_is_the_session_played_directly(level, session):
    """Status, items, digests and event order are those of plain HTTP, and each delta is exactly the new items."""
    check(session, level)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(session=sessions(), level=st.just("lenient"))
def test_at_lenient_only_reasoning_may_stay(session, level):
    """At lenient the upstream may hold reasoning that the client left out, and nothing else differs."""
    starts, moves = session
    starts = [{**start, "habits": start["habits"] - {"reasoning_omitted"}} for start in starts]
    moves = [move for move in moves if move[0] != "spell" or "reasoning_omitted" not in move[2]]
    check((starts, moves), level)
