"""Upstreams that leave out, or add to, what the protocol describes."""

import pytest


@pytest.mark.parametrize(
    ("option", "output"), [("empty", []), ("missing", None), ("null", None), ("first", 1), ("filled", 2)]
)
async def test_terminal_output_can_be_short(simulate, dial, option, output):
    """The finished items are whole in any case, and so is what the upstream holds."""
    simulator = await simulate(reasoning=True, terminal_output=option)
    talk = await dial(simulator)
    await talk.send(input="a", store=False)
    events = await talk.events()
    closing = events[-1]["response"]
    assert ("output" in closing) is (option != "missing")
    found = closing.get("output")
    assert (len(found) if isinstance(output, int) else found) == output
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert simulator.context_of(closing["id"])[1:] == done


async def test_streams_can_lack_set_up_events_and_carry_notices(simulate, dial, post):
    """Over a socket only: nothing is announced; transport notices and keepalives stand between the events."""
    simulator = await simulate(setup_events=False, notices=True, keepalives=True, obfuscation=True)
    talk = await dial(simulator)
    await talk.send(input="a")
    events = await talk.events()
    kinds = [event["type"] for event in events]
    assert not [kind for kind in kinds if kind.endswith(".added")]
    assert {"codex.rate_limits", "responsesapi.websocket_timing", "keepalive"} <= set(kinds)
    numbers = [event["sequence_number"] for event in events if "sequence_number" in event]
    assert numbers == list(range(len(numbers)))
    assert all("obfuscation" in event for event in events if event["type"].endswith(".delta"))
    _, over_http = await post(simulator, input="a", stream=True)
    assert "response.output_item.added" in {event["type"] for event in over_http}


async def test_a_json_answer_is_whole_whatever_terminal_events_hold(simulate, post):
    """Only events are left short: a body that is one object has no other place for its items."""
    simulator = await simulate(terminal_output="missing")
    _, response = await post(simulator, input="a")
    assert response["output"]
