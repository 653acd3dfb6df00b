"""What clients send after an answer that broke off: the same again, with the items that were complete, or with half a text."""

import contextlib
import json

import aiohttp
import pytest

from gateway.simulator import Fault
from gateway.simulator.faults import BEFORE_TERMINAL, Abort, Fail, SendError, after_deltas
from tests.sessions.conversing import CALL, outcomes, session

STORE = pytest.mark.parametrize("store", [True, False])
BREAKS = pytest.mark.parametrize(
    "action",
    [Abort(), Fail(), SendError(code="server_error", shape="nested", then_failed=True)],
    ids=["connection", "failed", "error"],
)


async def broken(talk):
    """The turn of which the stream breaks off; gives the events that arrived."""
    body = {**talk.settings, "input": talk.history}
    raw = b""
    async with talk.api.session.post(
        talk.api.url + "/responses", json=body, headers=talk.api.headers
    ) as answer:
        with contextlib.suppress(aiohttp.ClientPayloadError):
            async for part in answer.content.iter_any():
                raw += part
    events = [json.loads(part.partition(b"data: ")[2]) for part in raw.split(b"\n\n") if part]
    assert events[-1]["type"] == "response.failed"
    return events


async def after_break(talk, upstream, action, at):
    """Two good turns, then one that breaks at ``at``; gives the items that were complete by then."""
    await talk.send("loop 0 one")
    await talk.send("loop 0 two")
    talk.history.append({"role": "user", "content": "loop 1 three"})
    upstream.faults.add(Fault(actions=action, at=at))
    before = len(upstream.journal.creates())
    events = await broken(talk)
    assert len(upstream.journal.creates()) == before + 1
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


@STORE
@BREAKS
async def test_the_same_request_again(store, action):
    """A retry with the same body is answered in the same context, once; then deltas go on."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store, stream=True, tools=[CALL])
        await after_break(talk, upstream, action, after_deltas(2))
        again = await talk.send()
        assert outcomes(again)[0] in ("delta", "parent_lost", "parent_superseded", "not_found")
        later = [await talk.send(*talk.outputs(again)), await talk.send("loop 0 four")]
        assert outcomes(*later) == ["delta", "delta"]


@STORE
@BREAKS
async def test_a_retry_that_carries_the_finished_items(store, action):
    """A client that adds what was complete before the break (as Codex does) has that in the context, once and no more."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store, stream=True, tools=[CALL])
        done = await after_break(talk, upstream, action, BEFORE_TERMINAL)
        kept = [item for item in done if item["type"] in ("reasoning", "message")]
        again = await talk.send(*kept)
        assert outcomes(again)[0] in ("delta", "parent_lost", "parent_superseded", "not_found")
        frame = talk.entry(again.answer["id"])
        names = [item.get("id") for item in frame.items]
        assert all(names.count(item["id"]) == 1 for item in kept)
        later = [await talk.send(*talk.outputs(again)), await talk.send("loop 0 four")]
        assert outcomes(*later) == ["delta", "delta"]


@STORE
@BREAKS
async def test_half_a_text_that_stays_in_the_history(store, action):
    """A client that keeps the text as far as it came (as opencode does) and asks again is answered in that context."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store, stream=True)
        await after_break(talk, upstream, action, after_deltas(2))
        half = {"role": "assistant", "content": [{"type": "output_text", "text": "ctx strict"}]}
        again = await talk.send(half, "loop 0 What happened?")
        assert outcomes(again)[0] in ("delta", "parent_lost", "parent_superseded", "not_found")
        assert outcomes(await talk.send("loop 0 four")) == ["delta"]


@STORE
async def test_a_call_of_a_broken_answer_that_was_run(store):
    """A client that ran a call before the break resends call and output: both reach the upstream, once."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store, stream=True, tools=[CALL])
        done = await after_break(talk, upstream, Fail(), BEFORE_TERMINAL)
        calls = [item for item in done if item["type"] == "function_call"]
        assert calls
        ran = [{"type": "function_call_output", "call_id": one["call_id"], "output": "ok"} for one in calls]
        again = await talk.send(*done, *ran, tool_choice="none")
        sent = [
            item.get("call_id")
            for item in talk.entry(again.answer["id"]).items
            if item.get("type") == "function_call"
        ]
        assert sent == [one["call_id"] for one in calls]
        assert outcomes(await talk.send("loop 0 four", tool_choice="none")) == ["delta"]
