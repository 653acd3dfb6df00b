"""Faults that others met: short baselines, abandoned answers, crossed branches and cut streams."""

import asyncio
import random
import re

import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import (
    answers,
    bare,
    body,
    call,
    finished,
    held,
    leave_after,
    output,
    post_broken,
    said,
    scene,
    user,
)

REASONING = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA1"}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("listed", ["empty", "missing", "null", "filled"])
async def test_b01_an_empty_closing_list_costs_no_item(listed, stream):
    """The parent is built from the finished items, so the next delta is the new item alone, whatever the closing event lists."""
    reply = answers([REASONING, call("c1")], [said("done")])
    async with scene(reply, options={"terminal_output": listed}) as run:
        first = await run.api.create(body([user("u1")], stream=stream))
        produced = finished(first)
        assert [item["type"] for item in produced] == ["reasoning", "function_call"]
        assert first.answer["output"] == produced

        second = await run.api.create(body([user("u1"), *produced, output("c1")], stream=stream))

        assert second.mode == "delta"
        assert [frame.parent for frame in run.frames] == [None, first.answer["id"]]
        assert run.frames[1].items == [output("c1")]
        assert held(run.simulator, second) == [
            user("u1"), REASONING, bare(call("c1")), output("c1"), bare(said("done")),
        ]  # fmt: skip


ITEM_IDS = re.compile(rb'"item_id":"([^"]+)"')
RESPONSE_IDS = re.compile(rb'"id":"(resp_[^"]+)"')


async def test_b02_an_abandoned_answer_reaches_nobody_else():
    """Clients that hang up at random places, eight at a time, then ask again: each next answer is its own from end to end."""
    rng = random.Random(2)
    options = {"token_pace": 0.0005, "reasoning": False}
    async with scene(options=options, sockets_per_identity=16) as run:

        async def client(number):
            for turn in range(25):
                gone, asked = f"left {number} {turn} words 40", f"asked {number} {turn} words 3"
                await leave_after(run.api, body([user(gone)]), rng.randrange(1, 30))
                answer = await run.api.create(body([user(asked)]))

                assert answer.kinds[-1] == "response.completed"
                own = {item["id"] for item in answer.answer["output"]}
                assert {name.decode() for name in ITEM_IDS.findall(answer.raw)} == own
                assert {name.decode() for name in RESPONSE_IDS.findall(answer.raw)} == {answer.answer["id"]}
                numbers = [event["sequence_number"] for event in answer.events]
                assert numbers == list(range(len(numbers)))
                digests = run.simulator.digest_of([user(asked)])
                assert digests.modulo in answer.answer["output"][-1]["content"][0]["text"]
                assert run.simulator.open_sockets <= 16

        await asyncio.gather(*(client(number) for number in range(8)))
        stats = await run.until_idle()
        assert stats["turns"]["cancelled"] == 200
        assert stats["connections"]["closed"]["client_left"] == 200
        assert not run.simulator.journal.overlaps()


async def test_b02_the_same_client_gets_a_clean_socket_while_the_old_answer_goes_on():
    """An upstream that goes on sending the abandoned answer for a second does so into a closed socket."""
    async with scene(options={"token_pace": 0.02, "reasoning": False}) as run:
        await leave_after(run.api, body([user("first words 50")]), 2)
        answer = await run.api.create(body([user("second words 1")]))
        assert answer.status == 200
        left, asked = run.frames
        assert left.connection != asked.connection
        assert answer.answer["id"] == asked.response_id
        assert left.response_id.encode() not in answer.raw


@pytest.mark.parametrize("store", [True, False])
async def test_b05_a_tool_result_continues_its_own_branch(store):
    """A side branch that completed in between does not draw the next tool result to itself."""
    reply = answers([call("c1")], [said("side")], [said("main")])
    async with scene(reply) as run:
        first = await run.api.create(body([user("u1")], store=store))
        base = [user("u1"), *finished(first)]
        side = await run.api.create(body([*base, output("c1", "one"), user("x")], store=store))
        second = await run.api.create(body([*base, output("c1", "two")], store=store))

        assert side.answer["id"] != run.frames[2].parent
        if store:
            assert run.frames[2].parent == first.answer["id"]
            assert run.frames[2].items == [output("c1", "two")]
        else:
            assert run.frames[2].parent is None
            assert second.reason == "parent_superseded"
        assert held(run.simulator, second) == [
            user("u1"), bare(call("c1")), output("c1", "two"), bare(said("main")),
        ]  # fmt: skip


@pytest.mark.parametrize("store", [True, False])
async def test_b05_interleaved_branches_keep_their_own_parents(store):
    """Three branches of one root, ten turns each in random order: every parent is the newest answer of that very branch."""
    rng = random.Random(5)
    order = [branch for branch in range(3) for _ in range(10)]
    rng.shuffle(order)
    async with scene(lambda ask: [said(f"answer {ask.ordinal}")]) as run:
        root = await run.api.create(body([user("root")], store=store))
        histories = [[user("root"), *finished(root)] for _ in range(3)]
        tips = [root.answer["id"]] * 3
        deltas = 0
        for turn, branch in enumerate(order):
            asked = [*histories[branch], user(f"branch {branch} turn {turn}")]
            answer = await run.api.create(body(asked, store=store))
            frame = run.frames[-1]
            assert frame.parent in (tips[branch], None)
            if frame.parent:
                deltas += 1
                assert frame.items == asked[-1:]
            assert held(run.simulator, answer)[:-1] == [bare(item) for item in asked]
            tips[branch] = answer.answer["id"]
            histories[branch] = [*asked, *finished(answer)]
        # Without storage only the first branch to move finds the root's socket as it was.
        assert deltas == (30 if store else 28)


BREAKS = [f.Close(1000), f.Close(1011), f.Abort(), f.Cut()]


@pytest.mark.parametrize("how", BREAKS, ids=["1000", "1011", "reset", "fin"])
async def test_b07_a_cut_stream_ends_as_a_failure(how):
    """A stream whose socket went away ends with one failure event of the same response, and without the end of the body."""
    async with scene(options={"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=how, at=f.after_deltas(3)))
        status, events, broken = await post_broken(run.api, body([user("u1")]))

        assert status == 200
        assert broken
        kinds = [event["type"] for event in events]
        assert kinds.count("response.failed") == 1
        assert kinds[-1] == "response.failed"
        assert "response.completed" not in kinds
        assert sum(kind.endswith(".delta") for kind in kinds) == 3
        assert events[-1]["response"]["id"] == events[0]["response"]["id"] == run.frames[0].response_id
        assert events[-1]["response"]["status"] == "failed"
        assert events[-1]["response"]["error"]["code"] == "upstream_connection_lost"
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert len(run.simulator.journal.creates()) == 1

        partial = [said("".join(event["delta"] for event in events if "delta" in event))]
        following = await run.api.create(body([user("u1"), *partial, user("u2")]))
        assert following.mode == "full"
        assert run.frames[-1].parent is None


@pytest.mark.parametrize("how", BREAKS, ids=["1000", "1011", "reset", "fin"])
async def test_b07_a_cut_json_answer_is_an_error(how):
    """A client that waits for one JSON object gets a 502 with an error object, never part of an answer; nothing is repeated."""
    async with scene(options={"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=how, at=f.after_deltas(3)))
        answer = await run.api.create(body([user("u1")], stream=False))
        assert answer.status == 502
        assert set(answer.answer) == {"error"}
        assert answer.answer["error"]["code"] == "upstream_connection_lost"
        assert len(run.simulator.journal.creates()) == 1
        following = await run.api.create(body([user("u1"), user("u2")], stream=False))
        assert (following.status, following.mode) == (200, "full")


@pytest.mark.parametrize("how", BREAKS, ids=["1000", "1011", "reset", "fin"])
async def test_b07_a_close_after_the_end_adds_nothing(how):
    """A socket that closes behind the completed event leaves the answer as it is, and costs the next turn only its delta."""
    async with scene(options={"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=how, at=f.AFTER_TERMINAL))
        answer = await run.api.create(body([user("u1")]))
        assert answer.kinds[-1] == "response.completed"
        assert answer.kinds.count("response.completed") == 1
        assert "response.failed" not in answer.kinds
        await run.simulator.until(lambda journal: journal.closed())
        following = await run.api.create(body([user("u1"), *finished(answer), user("u2")]))
        assert following.status == 200
        assert following.kinds.count("response.completed") == 1
