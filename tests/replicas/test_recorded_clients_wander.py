"""Real clients, recorded turn by turn, replayed over two replicas in turn: what becomes a delta on one gateway does on two."""

from __future__ import annotations

import pytest

from gateway.simulator import Options, TraceScript
from tests.gateways import running_simulator
from tests.laws.recorded import trace_names, turns_of
from tests.laws.test_recorded_clients import (
    CHAINING,
    DELTA,
    WITHOUT_REASONING,
    check_context,
    check_delta,
    check_frame,
    expected,
)
from tests.replicas.pair import running_pair
from tests.replicas.redis_servers import running_redis

pytestmark = pytest.mark.system
# Cline's turns may not continue anything (truncation "auto"), on one gateway or two; only the reason is another.
STORED = [
    name
    for name in trace_names()
    if turns_of(name)[0].body.get("store") is not False
    and name not in CHAINING
    and not name.startswith("cline")
]


@pytest.mark.parametrize("name", STORED)
async def test_a_recorded_client_wanders(name):
    """Each turn on the other replica has the mode that one gateway would give it, and its frame is the new items, no more."""
    turns = turns_of(name)
    async with (
        running_redis() as redis,
        running_simulator(Options(), TraceScript([turn.row for turn in turns])) as upstream,
        running_pair(upstream.url, redis.url, index_timeout=1.0) as pair,
    ):
        answers = [await pair.create(turn.body, data=turn.data, headers=turn.headers) for turn in turns]
        asked = [upstream.digest_of(turn.body["input"]) for turn in turns]
        frames = upstream.journal.creates()

    assert [answer.reason or answer.mode for answer in answers] == expected(name, "equivalent", turns)
    for number, (turn, answer, frame) in enumerate(zip(turns, answers, frames, strict=True)):
        assert answer.answer["output"] == turn.output
        check_frame(turn, frame)
        if answer.mode == DELTA:
            check_delta(turns[:number], turn, frame, "equivalent", lenient=name in WITHOUT_REASONING)
        check_context(frame.digests, asked[number], "equivalent")


def test_there_are_such_clients():
    """Clients of several makers store their responses."""
    assert len(STORED) >= 9
