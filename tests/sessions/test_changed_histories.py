"""Sessions in which the history or the settings change under way: compaction, other models, other tools, a restart."""

import asyncio

import pytest

from gateway.simulator import FunctionScript, Options
from tests.gateways import Api, running_gateway, running_simulator
from tests.sessions.conversing import CALL, Conversation, outcomes, session

STORE = pytest.mark.parametrize("store", [True, False])
BOTH = pytest.mark.parametrize("stream", [True, False])


@STORE
@BOTH
async def test_a_summary_in_place_of_the_history_begins_a_new_chain(store, stream):
    """After a client's own compaction one turn is sent in full, and those behind it are deltas of the new chain."""
    async with session() as (begin, _, _):
        talk = begin(store=store, stream=stream, tools=[CALL])
        before = await talk.loop("loop 3")
        assert outcomes(*before) == ["new_conversation", *["delta"] * 3]

        talk.history = [{"role": "user", "content": "Summary of our work so far: we looked up three words."}]
        after = [
            await talk.send("loop 0 Go on."),
            *await talk.loop("loop 2"),
            await talk.send("loop 0 thanks"),
        ]

        assert outcomes(*after) == ["new_conversation", *["delta"] * (len(after) - 1)]
        assert len(after) >= 5


@STORE
async def test_a_compaction_of_the_api_begins_a_new_chain(store):
    """The window that ``/responses/compact`` gives is sent in full, unchanged, and is a prefix of later turns."""
    async with session() as (begin, _, _):
        talk = begin(store=store, tools=[CALL])
        await talk.loop("loop 2")
        compacted = await talk.api.create(
            {"model": "gpt-5", "input": talk.history}, path="/responses/compact"
        )
        assert compacted.status == 200
        talk.history = compacted.answer["output"]

        after = [await talk.send("loop 0 And now?"), *await talk.loop("loop 1")]

        assert outcomes(*after) == ["new_conversation", "delta", "delta"]
        first = talk.entry(after[0].answer["id"])
        assert first.items[0] == compacted.answer["output"][0]
        assert first.items[0]["type"] == "compaction"


def compacting(ask):
    """An upstream that compacts by itself, at the third answer."""
    if ask.ordinal != 2:
        return None
    said = {"type": "output_text", "text": "Compacted.", "annotations": []}
    message = {"type": "message", "role": "assistant", "status": "completed", "content": [said]}
    return [{"type": "compaction", "encrypted_content": "gAAAAAcompacted"}, message]


@STORE
@pytest.mark.parametrize("drops", [True, False])
async def test_an_answer_with_a_compaction_item(store, drops):
    """A client that keeps all of it goes on with deltas; one that drops what stood before it sends one turn in full."""
    threshold = [{"type": "compaction", "compact_threshold": 1000}]
    async with session(script=FunctionScript(compacting)) as (begin, _, _):
        talk = begin(store=store, context_management=threshold, stream=True)
        before = [await talk.send(text) for text in ("loop 0 a", "loop 0 b", "loop 0 c")]
        assert outcomes(*before) == ["new_conversation", "delta", "delta"]
        assert before[-1].answer["output"][0]["type"] == "compaction"

        if drops:
            talk.history = talk.history[-2:]
        after = [await talk.send(text) for text in ("loop 0 d", "loop 0 e", "loop 0 f")]

        assert outcomes(*after) == (["new_conversation", "delta", "delta"] if drops else ["delta"] * 3)


@STORE
async def test_another_model_and_back(store):
    """A switch is one full turn; the way back goes on from the older answer of that model, with all items since, if it is held."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store)
        models = ["gpt-5", "gpt-5", "gpt-6-astra", "gpt-6-astra", "gpt-5", "gpt-5"]
        seen = [await talk.send(f"loop 0 part {n}", model=model) for n, model in enumerate(models)]

        delta = "delta"
        assert outcomes(*seen) == ["new_conversation", delta, "settings_changed", delta, delta, delta]
        back = upstream.journal.creates()[4]
        assert back.parent == seen[1].answer["id"]
        assert len(back.items) >= 5
        assert [one.body["model"] for one in upstream.journal.creates()] == models
        assert [one.answer["model"] for one in seen] == models


def mcp_tool(name):
    """A tool as a client of MCP servers offers it."""
    return {**CALL, "name": f"mcp__server__{name}"}


@STORE
async def test_tools_that_appear_and_vanish(store):
    """Each turn is given the tools of its own request, none of an earlier one: as a delta, and in full where none are left."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store)
        offers = [[CALL], [CALL, mcp_tool("a")], [mcp_tool("a"), mcp_tool("b")], [], [CALL]]
        seen = [
            await talk.send(f"loop 0 part {n}", tools=tools, tool_choice="none")
            for n, tools in enumerate(offers)
        ]

        assert outcomes(*seen) == ["new_conversation", "delta", "delta", "settings_changed", "delta"]
        assert [one.body["tools"] for one in upstream.journal.creates()] == offers
        assert [one.answer["tools"] for one in seen] == offers


async def test_changed_tools_are_full_turns_where_that_is_set():
    """With ``settings = "full"`` the turn with other tools is sent in full, and goes on with deltas."""
    async with session(settings="full") as (begin, _, _):
        talk = begin(tools=[CALL], tool_choice="none")
        seen = [await talk.send("loop 0 a"), await talk.send("loop 0 b", tools=[CALL, mcp_tool("a")])]
        seen.append(await talk.send("loop 0 c", tools=[CALL, mcp_tool("a")]))
        assert outcomes(*seen) == ["new_conversation", "settings_changed", "delta"]


@STORE
async def test_a_tool_that_vanishes_while_its_call_is_open(store):
    """The output of a tool that is no longer offered is still sent as a delta, and answered."""
    async with session() as (begin, _, _):
        talk = begin(store=store)
        first = await talk.send("loop 1", tools=[mcp_tool("a")], tool_choice="required")
        assert first.answer["output"][-1]["name"] == "mcp__server__a"
        second = await talk.send(*talk.outputs(first), tools=[CALL], tool_choice="none")
        assert outcomes(second) == ["delta"]


@STORE
async def test_a_session_that_outlives_the_gateway(store):
    """After a restart the first turn is sent in full, whatever was stored, and the next ones are deltas again."""
    async with running_simulator(Options()) as upstream:
        history = []
        for run in range(2):
            async with running_gateway(upstream.url) as gateway, Api(gateway.url) as api:
                talk = Conversation(api, upstream, store=store, stream=True, tools=[CALL])
                talk.history = history
                seen = await talk.loop(f"loop 2 run {run}")
                history = talk.history
            assert outcomes(*seen) == ["new_conversation", "delta", "delta"]


@STORE
async def test_sub_agents_that_share_their_beginning(store):
    """Agents with the same instructions, tools and first message run side by side, each in its own chain."""
    async with session() as (begin, upstream, _):
        shared = {"role": "developer", "content": "You are a sub-agent. Answer the question only."}
        agents = [begin(store=store, stream=bool(n % 2), tools=[CALL]) for n in range(4)]
        for agent in agents:
            agent.history = [shared, {"role": "user", "content": "The task: find the words."}]
        texts = ["loop 2 first", "loop 2 second", "loop 2 third", "loop 2 first"]
        ran = await asyncio.gather(*(agent.loop(text) for agent, text in zip(agents, texts, strict=True)))

        for seen in ran:
            assert len(seen) == 3
            assert seen[0].reason == "new_conversation"
            assert not {one.reason for one in seen[1:]} - {None, "parent_busy"}
        assert sum(one.mode == "delta" for seen in ran for one in seen) >= 6
        assert not upstream.journal.overlaps()


@STORE
async def test_a_main_agent_goes_on_after_its_sub_agents(store):
    """The sub-agents' turns in between cost the main conversation nothing."""
    async with session() as (begin, _, _):
        main, sub = begin(store=store, tools=[CALL]), begin(store=store, tools=[CALL])
        first = await main.loop("loop 1 plan")
        inner = await sub.loop("loop 2 look")
        last = await main.loop("loop 1 report")
        assert outcomes(*first, *inner) == ["new_conversation", "delta", "new_conversation", "delta", "delta"]
        assert outcomes(*last) == ["delta", "delta"]
