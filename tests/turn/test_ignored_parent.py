"""An upstream that takes ``previous_response_id`` and does not look at it: its answers would stand on the new items alone."""

from __future__ import annotations

import pytest

from gateway.protocol.exchange import Exchange
from gateway.simulator import Options
from tests.gateways import Api, running_gateway, running_simulator

TURN = {"model": "gpt-5", "store": False}


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_does_not_continue_the_parent_is_never_seen(stream):
    """The turn is sent again in full, its answer is the one that plain HTTP gives, and nothing is chained there for a while."""
    history = [{"role": "user", "content": "one"}]
    async with running_simulator() as direct, running_simulator(Options(ignores_parents=True)) as odd:
        async with (
            running_gateway(odd.url) as gateway,
            Api(direct.url) as straight,
            Api(gateway.url) as through,
        ):
            first = await through.create({**TURN, "input": history, "stream": stream})
            history += [*first.answer["output"], {"role": "user", "content": "two"}]
            expected = await straight.create({**TURN, "input": history, "stream": stream})
            second = await through.create({**TURN, "input": history, "stream": stream})
            history += [*second.answer["output"], {"role": "user", "content": "three"}]
            third = await through.create({**TURN, "input": history, "stream": stream})

    texts = [
        part["text"]
        for item in expected.answer["output"]
        if item["type"] == "message"
        for part in item["content"]
    ]
    assert texts == [
        part["text"]
        for item in second.answer["output"]
        if item["type"] == "message"
        for part in item["content"]
    ]
    assert (second.mode, second.reason) == ("full", "delta_refused")
    assert (third.mode, third.reason) == ("full", "delta_refused")
    frames = odd.journal.creates("ws")
    assert [frame.parent is not None for frame in frames] == [False, True, False, False]


async def test_the_check_can_be_switched_off():
    """With check_parent off the upstream's word for what it continues does not count."""
    history = [{"role": "user", "content": "one"}]
    async with running_simulator(Options(ignores_parents=True)) as odd:
        async with running_gateway(odd.url, check_parent=False) as gateway, Api(gateway.url) as through:
            first = await through.create({**TURN, "input": history})
            history += [*first.answer["output"], {"role": "user", "content": "two"}]
            second = await through.create({**TURN, "input": history})

    assert second.mode == "delta"
    assert second.answer["previous_response_id"] is None


def test_a_response_that_continues_something_else_never_becomes_a_parent():
    """Also when its first and its last event come in one read, nothing is remembered of it."""
    exchange = Exchange(ours=True, named="resp_1")
    exchange.sent()
    response = b'{"id":"resp_2","status":"%b","previous_response_id":null,"output":[]}'
    exchange.feed(b'{"type":"response.created","response":' + response % b"in_progress" + b"}")
    exchange.feed(b'{"type":"response.completed","response":' + response % b"completed" + b"}")

    assert exchange.ending is not None
    assert exchange.unheard
    assert not exchange.may_commit
