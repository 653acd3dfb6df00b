"""Faults that others met: changed settings, compacted histories, and users who speak while a tool runs."""

import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import TOOLS, answers, bare, body, call, finished, held, output, said, scene, user

OTHER_TOOLS = [{**TOOLS[0], "description": "changed"}, TOOLS[1]]
BASE = {
    "instructions": "Be brief.",
    "tools": TOOLS,
    "reasoning": {"effort": "low"},
    "temperature": 0.5,
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "metadata": {"turn": "1"},
    "prompt_cache_key": "k",
}
CHANGES = {
    "tool_description": ({"tools": OTHER_TOOLS}, "delta"),
    "tools_reordered": ({"tools": TOOLS[::-1]}, "delta"),
    "tool_removed": ({"tools": TOOLS[:1]}, "delta"),
    "instructions": ({"instructions": "Be long."}, "delta"),
    "effort": ({"reasoning": {"effort": "high"}}, "delta"),
    "temperature": ({"temperature": 0.7}, "delta"),
    "text_format": ({"text": {"format": {"type": "json_object"}}}, "delta"),
    "metadata": ({"metadata": {"turn": "2"}}, "delta"),
    "model": ({"model": "gpt-5-mini"}, "full"),
    "user": ({"user": "someone else"}, "full"),
    "truncation": ({"truncation": "auto"}, "full"),
    "reasoning_context": ({"reasoning": {"effort": "low", "context": "all_turns"}}, "full"),
    "left_out": ({"instructions": None}, "full"),
    "tools_left_out": ({"tools": None}, "full"),
}


@pytest.mark.parametrize("changed", CHANGES)
async def test_b08_changed_settings_reach_the_upstream(changed):
    """Every field outside the input goes up as the client sent it; which changes still allow a delta is decided, not met."""
    change, mode = CHANGES[changed]
    fields = {k: v for k, v in {**BASE, **change}.items() if v is not None}
    async with scene(answers([said("a")], [said("b")])) as run:
        first = await run.api.create(body([user("u1")], **BASE))
        asked = [user("u1"), *finished(first), user("u2")]
        second = await run.api.create(body(asked, **fields))

        assert (second.status, second.mode) == (200, mode)
        frame = run.frames[1]
        transport = ("type", "input", "previous_response_id")
        assert {k: v for k, v in frame.body.items() if k not in transport} == {
            "model": "gpt-5", "store": False, **fields,
        }  # fmt: skip
        assert frame.items == (asked[-1:] if mode == "delta" else asked)
        assert held(run.simulator, second)[:-1] == [bare(item) for item in asked]
        if mode == "full":
            assert frame.parent is None
            assert second.reason == "settings_changed"


@pytest.mark.parametrize(
    "changed", ["tool_description", "tools_reordered", "instructions", "effort", "metadata"]
)
async def test_b08_strict_settings_make_any_change_a_full_turn(changed):
    """With settings = full, as the Codex client decides, a changed field costs the delta."""
    async with scene(answers([said("a")], [said("b")]), settings="full") as run:
        first = await run.api.create(body([user("u1")], **BASE))
        asked = [user("u1"), *finished(first), user("u2")]
        second = await run.api.create(body(asked, **{**BASE, **CHANGES[changed][0]}))
        assert (second.mode, second.reason) == ("full", "settings_changed")
        assert run.frames[1].items == asked


async def test_b08_tools_given_as_the_first_item_are_part_of_the_history():
    """Tools that travel as an input item are compared like any item: the same ones continue, changed ones start anew."""
    tools = {"type": "additional_tools", "role": "developer", "tools": TOOLS}
    async with scene(answers([said("a")], [said("b")], [said("c")])) as run:
        first = await run.api.create(body([tools, user("u1")]))
        same = [tools, user("u1"), *finished(first), user("u2")]
        second = await run.api.create(body(same))
        assert (second.mode, run.frames[1].items) == ("delta", same[-1:])

        other = [{**tools, "tools": OTHER_TOOLS}, *same[1:], *finished(second), user("u3")]
        third = await run.api.create(body(other))
        assert third.mode == "full"
        assert run.frames[2].items == other


COMPACTION = {"type": "compaction", "encrypted_content": "gAAAAAcompacted"}


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("summary", [user("summary of all that was"), COMPACTION], ids=["text", "compaction"])
async def test_b09_a_shortened_history_replaces_the_old_one(summary, store):
    """A summary goes up alone, the next turn extends it, and the old branch still works when it is sent again."""
    async with scene(lambda ask: [said(f"answer {ask.ordinal}")]) as run:
        history = [user(f"u{number}") for number in range(17)]
        for turn in range(3):
            old = await run.api.create(body(history, store=store))
            history += finished(old)
            if turn < 2:
                history += [user(f"t{turn}-{number}") for number in range(9)]
        assert len(history) > 36

        short = [summary, user("u4")]
        fourth = await run.api.create(body(short, store=store))
        assert fourth.mode == "full"
        assert (run.frames[-1].parent, run.frames[-1].items) == (None, short)

        longer = [*short, *finished(fourth), user("u5")]
        fifth = await run.api.create(body(longer, store=store))
        assert fifth.mode == "delta"
        assert (run.frames[-1].parent, run.frames[-1].items) == (fourth.answer["id"], [user("u5")])
        assert held(run.simulator, fifth)[:-1] == [bare(item) for item in longer]

        late = [*history, user("back again")]
        again = await run.api.create(body(late, store=store))
        assert again.status == 200
        assert run.frames[-1].parent in (None, old.answer["id"])
        assert held(run.simulator, again)[:-1] == [bare(item) for item in late]


@pytest.mark.parametrize("stream", [True, False])
async def test_b10_a_refused_interruption_is_relayed_and_forgotten(stream):
    """A call without its output is the upstream's 400, word for word, and the turn after it stands on what came before."""
    async with scene(answers([call("c1")], [said("done")])) as run:
        first = await run.api.create(body([user("u1")], stream=stream))
        base = [user("u1"), *finished(first)]
        direct = body([*base, user("u2")], stream=stream)
        second = await run.api.create(direct)

        assert second.status == 400
        assert second.headers["content-type"] == "application/json"
        assert second.answer["error"]["message"] == "No tool output found for function call c1."
        assert second.answer["error"]["type"] == "invalid_request_error"
        # The delta was refused, then the whole, whose verdict counts.
        assert [frame.parent for frame in run.frames] == [None, first.answer["id"], None]

        asked = [*base, output("c1"), user("u2")]
        third = await run.api.create(body(asked, stream=stream))
        assert third.status == 200
        assert run.frames[-1].parent in (None, first.answer["id"])
        assert held(run.simulator, third)[:-1] == [bare(item) for item in asked]


@pytest.mark.parametrize(
    "shape", ["request", "nested", "body", "message", "detail", "untyped", "status_code"]
)
async def test_b10_error_events_that_lack_fields_keep_their_status(shape):
    """An error event without a sequence number, a type, a code or even an error object still is a 400 with its message."""
    error = f.SendError(
        status=400, kind="invalid_request_error", message="No tool output found.", shape=shape
    )
    async with scene(answers([call("c1")], [said("done")])) as run:
        first = await run.api.create(body([user("u1")]))
        run.simulator.faults.add(Fault(actions=error, times=2))
        base = [user("u1"), *finished(first)]
        refused = await run.api.create(body([*base, user("u2")]))
        assert refused.status == 400
        assert refused.answer["error"]["message"] == "No tool output found."
        # An error object that the upstream did send stays as it is, even where it has no type.
        kind = None if shape in {"message", "untyped"} else "invalid_request_error"
        assert refused.answer["error"].get("type") == kind

        third = await run.api.create(body([*base, output("c1"), user("u2")]))
        assert third.status == 200
        assert third.answer["output"][0]["content"][0]["text"] == "done"
