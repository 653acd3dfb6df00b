"""The gateway's own part of a turn's time, as clients and statistics are told."""

import re

import pytest

from gateway.simulator import Options
from gateway.turn.account import Account
from tests.gateways import Api, running_gateway, running_simulator

BODY = {"model": "gpt-5", "input": [{"role": "user", "content": "hello"}], "store": False}


class Clock:
    """A clock that is set by hand."""

    now = 10.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("collected", "added"), [(False, 0.75), (True, 0.25)])
def test_what_counts_as_added(collected, added):
    """Before the frame is out all but the wait for a socket; then from the first event, of one JSON object from the last."""
    clock = Clock()
    account = Account(clock, 10.0, 100, "m")
    clock.now = 10.125
    account.pause()
    clock.now = 11.0
    account.resume()
    account.mode("delta", None)
    account.sent()
    assert account.added_until_now() is None
    clock.now = 12.0
    account.event()
    clock.now = 12.5
    account.event()
    if collected:
        account.collected()
    clock.now = 12.625
    assert account.added_until_now() == added
    account.written()
    clock.now = 20.0
    account.finished(failed=False)
    record = account.record(left=False, error=None)
    assert (record.added, record.waited, record.first_event, record.total) == (added, 0.875, 2.0, 10.0)


@pytest.mark.parametrize("stream", [True, False])
async def test_slow_answers_are_not_counted_as_ours(stream):
    """An answer that takes its time adds nothing to the gateway's part, streamed or not; the header says what was added."""
    async with (
        running_simulator(Options(token_pace=0.03, words=8)) as simulator,
        running_gateway(simulator.url) as gateway,
        Api(gateway.url) as api,
    ):
        seen = await api.create({**BODY, "stream": stream})
        latency = (await api.get("/../stats")).answer["latency_ms"]
    found = re.fullmatch(r"upwire;dur=([0-9]+\.[0-9]{3})", seen.headers["server-timing"])
    assert float(found[1]) < 100 < latency["duration"]["p50"]
    assert latency["added"]["p50"] < 100


async def test_no_time_is_told_where_it_would_mean_nothing():
    """Turns over plain HTTP and refusals before any frame have none; the setting switches it off everywhere."""
    async with running_simulator() as simulator:
        async with running_gateway(simulator.url) as gateway, Api(gateway.url) as api:
            assert "server-timing" not in (await api.create(BODY, headers={"x-upwire-mode": "http"})).headers
            assert "server-timing" in (await api.create(BODY)).headers
        async with running_gateway(simulator.url, server_timing=False) as gateway, Api(gateway.url) as api:
            seen = await api.create(BODY)
            assert "server-timing" not in seen.headers
            assert seen.mode == "full"
        async with running_gateway(simulator.url, expose_mode=False) as gateway, Api(gateway.url) as api:
            seen = await api.create(BODY)
            assert "server-timing" in seen.headers
            assert seen.mode is None
