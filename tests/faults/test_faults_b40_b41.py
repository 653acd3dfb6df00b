"""Faults that others met: a lost parent reported in a shape that nobody knew, a silent turn that held up all others."""

import asyncio
import json

import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import answers, body, said, scene, user
from tests.gateways import Api

# -- B40

CODE = "previous_response_not_found"
TEXT = "Previous response with id 'resp_gone' not found."


def error(**more):
    """An error as the upstream sends it over either transport."""
    return f.SendError(status=400, kind="invalid_request_error", message=TEXT, **more)


NOT_FOUND = {
    "code": error(code=CODE),
    "message only": error(shape="message"),
    "error in error": error(code=CODE, shape="nested"),
    "failed response": f.Fail(code=CODE, message=TEXT),
    "http body": error(code=CODE, shape="body"),
    "flat": error(code=CODE, shape="flat"),
    "then closed": (error(code=CODE), f.Close(1000)),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("shape", list(NOT_FOUND))
async def test_b40_a_parent_of_ours_that_is_gone_is_made_good(shape, stream):
    """Whatever shape the refusal has, the whole is sent once and the client sees nothing of it."""
    async with scene(answers([said("a1")], [said("a2")])) as run:
        first = await run.api.create(body([user("u1")]))
        whole = [user("u1"), *first.answer["output"], user("u2")]
        run.simulator.faults.add(Fault(actions=NOT_FOUND[shape]))
        second = await run.api.create(body(whole, stream=stream))

        assert (second.status, second.mode, second.reason) == (200, "full", "not_found")
        assert second.answer["output"][0]["content"][0]["text"] == "a2"
        assert [frame.parent for frame in run.frames] == [None, first.answer["id"], None]
        assert run.frames[2].items == whole
        assert (await run.stats())["recoveries"]["full_resend"] == 1


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize(
    ("shape", "websocket"),
    [
        *((shape, True) for shape in NOT_FOUND),
        # Over plain HTTP a failed response is a 200 that is passed on, and a body has one shape.
        *((shape, False) for shape in ("code", "message only")),
    ],
)
async def test_b40_a_parent_of_the_clients_own_is_the_clients_to_know(shape, websocket, stream):
    """It is sent once, and the refusal comes back with the status, code and message of the upstream."""
    async with scene(options={"websocket": websocket}) as run:
        run.simulator.faults.add(Fault(actions=NOT_FOUND[shape]))
        sent = body([user("u2")], previous_response_id="resp_gone", stream=stream)
        seen = await run.api.create(sent)

        assert seen.status == 400
        assert seen.answer["error"]["message"] == TEXT
        assert seen.answer["error"].get("code") == (None if shape == "message only" else CODE)
        [create] = run.simulator.journal.creates()
        assert create.parent == "resp_gone"


@pytest.mark.parametrize("parent", ["none", "the client's"])
@pytest.mark.parametrize("websocket", [True, False], ids=["socket", "http"])
async def test_b40_an_unrelated_refusal_is_not_tried_again(websocket, parent):
    """A 400 about something else, to a turn without a parent of ours, is sent once and is the client's."""
    refusal = f.SendError(status=400, code="invalid_value", kind="invalid_request_error", message="No.")
    async with scene(options={"websocket": websocket}) as run:
        run.simulator.faults.add(Fault(actions=refusal, times=None))
        given = {} if parent == "none" else {"previous_response_id": "resp_1"}
        seen = await run.api.create(body([user("u1")], stream=True, **given))

        assert (seen.status, seen.answer["error"]["code"]) == (400, "invalid_value")
        assert len(run.simulator.journal.creates()) == 1


async def test_b40_an_unrelated_refusal_of_a_delta_gets_one_full_verdict():
    """A delta of ours that is refused for another cause is sent once in full, and that verdict is the client's, not a third try."""
    refusal = f.SendError(status=400, code="invalid_value", kind="invalid_request_error", message="No.")
    async with scene(answers([said("a1")])) as run:
        first = await run.api.create(body([user("u1")]))
        run.simulator.faults.add(Fault(actions=refusal, times=None))
        seen = await run.api.create(body([user("u1"), *first.answer["output"], user("u2")]))

        assert (seen.status, seen.reason) == (400, "delta_refused")
        assert json.loads(seen.raw)["error"]["code"] == "invalid_value"
        assert [frame.parent for frame in run.frames] == [None, first.answer["id"], None]


# -- B41


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
async def test_b41_a_silent_turn_holds_up_nobody(store):
    """A turn that the upstream swallowed is dropped by its client; the same turn again and another are served at once."""
    async with scene(answers(*([said(f"a{n}")] for n in range(1, 5)))) as run:
        first = await run.api.create(body([user("u1")], store=store))
        again = body([user("u1"), *first.answer["output"], user("u2")], store=store)
        run.simulator.faults.add(Fault(actions=f.Stall()))
        async with Api(run.gateway.url) as other, asyncio.TaskGroup() as group:
            swallowed = group.create_task(other.create(again))
            await run.simulator.until(lambda journal: len(journal.creates()) == 2)
            silent = run.frames[1].connection

            # Not even while the silent turn is still waiting is anybody else.
            async with asyncio.timeout(1):
                beside = await run.api.create(body([user("beside")], store=store))
            swallowed.cancel()
            async with asyncio.timeout(1):
                served = await asyncio.gather(
                    run.api.create(again), run.api.create(body([user("other")], store=store))
                )

        assert [seen.status for seen in (beside, *served)] == [200, 200, 200]
        assert silent not in {frame.connection for frame in run.frames[2:]}
        # Whether the gateway has seen by then that the client left depends on which of the two connections is read first.
        assert served[0].reason in ({None} if store else {"parent_lost", "parent_busy"})
        await run.simulator.until(
            lambda journal: silent in {closing.connection for closing in journal.closed()}
        )
        after = await run.until_idle()
        assert (after["turns"]["in_flight"], after["turns"]["cancelled"]) == (0, 1)


async def test_b41_the_same_turn_beside_a_silent_one_is_not_held_up_either():
    """While the parent's socket is busy the turn takes another one: as a delta if the upstream can reload, else in full."""
    async with scene(answers(*([said(f"a{n}")] for n in range(1, 5)))) as run:
        first = await run.api.create(body([user("u1")]))
        again = body([user("u1"), *first.answer["output"], user("u2")])
        run.simulator.faults.add(Fault(actions=f.Stall()))
        async with Api(run.gateway.url) as other, asyncio.TaskGroup() as group:
            swallowed = group.create_task(other.create(again))
            await run.simulator.until(lambda journal: len(journal.creates()) == 2)
            async with asyncio.timeout(1):
                served = await run.api.create(again)
            swallowed.cancel()

        assert (served.status, served.mode, served.reason) == (200, "full", "parent_busy")
