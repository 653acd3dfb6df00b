"""Sessions with more than text: images, files, hosted tools, structured answers."""

import json

import pytest

from gateway.simulator import Options
from tests.gateways import Api, running_gateway, running_simulator
from tests.sessions.conversing import CALL, Conversation, outcomes, session

STORE = pytest.mark.parametrize("store", [True, False])
BOTH = pytest.mark.parametrize("stream", [True, False])
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@STORE
@BOTH
async def test_images_from_user_and_tools(store, stream):
    """Images as data and by file id, in user messages and in tool outputs, are sent once and stay part of the history."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store, stream=stream, tools=[CALL])
        look = [
            {"type": "input_text", "text": "loop 2 What is this?"},
            {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
            {"type": "input_image", "file_id": "file-picture", "detail": "high"},
        ]
        seen = [await talk.send({"role": "user", "content": look})]
        calls = [item for item in seen[0].answer["output"] if item["type"] == "function_call"]
        shown = [{"type": "input_image", "image_url": PIXEL}, {"type": "input_text", "text": "a screenshot"}]
        outputs = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": shown} for call in calls
        ]
        seen.append(await talk.send(*outputs))
        seen.append(await talk.send(*talk.outputs(seen[-1])))
        seen += await talk.loop("loop 1 And now?")

        assert outcomes(*seen) == ["new_conversation", *["delta"] * (len(seen) - 1)]
        assert [PIXEL.encode() in one.raw for one in upstream.journal.creates()] == [
            True, True, *[False] * (len(seen) - 2),
        ]  # fmt: skip


@STORE
async def test_another_image_is_another_conversation(store):
    """A history in which one image was replaced is not continued from the held one."""
    async with session() as (begin, _, _):
        talk = begin(store=store)
        for name in ("file-one", "file-two"):
            part = {"type": "input_image", "file_id": name}
            talk.history = []
            seen = [await talk.send({"role": "user", "content": [part]}), await talk.send("loop 0 More?")]
            assert outcomes(*seen) == ["new_conversation", "delta"]


@STORE
async def test_a_file_by_its_id(store):
    """A file is uploaded through the gateway as it is, and its id stays part of the history."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store)
        uploaded = await talk.api.create(data=b"\x00\xffnot JSON", path="/files")
        assert uploaded.answer["bytes"] == 10
        parts = [
            {"type": "input_file", "file_id": uploaded.answer["id"]},
            {"type": "input_text", "text": "loop 0"},
        ]
        seen = [await talk.send({"role": "user", "content": parts}), await talk.send("loop 0 again")]
        assert outcomes(*seen) == ["new_conversation", "delta"]
        assert uploaded.answer["id"].encode() not in upstream.journal.creates()[-1].raw


HOSTED = [
    {"type": "web_search"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "image_generation", "partial_images": 2},
    {
        "type": "mcp",
        "server_label": "books",
        "server_url": "https://example.com/mcp",
        "require_approval": "never",
    },
    CALL,
]
INCLUDE = [
    "web_search_call.action.sources",
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
]
FAMILIES = {
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_call",
}


@STORE
@BOTH
@pytest.mark.parametrize("include", [[], INCLUDE], ids=["bare", "include"])
async def test_hosted_tools(store, stream, include):
    """Items of hosted tools, with what ``include`` brings or without, are resent by the client and not sent again."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store, stream=stream, tools=HOSTED, include=include)
        seen = [await talk.send("hosted 1 loop 1")]
        assert {item["type"] for item in seen[0].answer["output"]} >= FAMILIES
        seen.append(await talk.send(*talk.outputs(seen[0])))
        seen += [await talk.send("hosted 2 loop 0"), await talk.send("loop 0 thanks")]

        assert outcomes(*seen) == ["new_conversation", "delta", "delta", "delta"]
        listed = [item for one in seen for item in one.answer["output"] if item["type"] == "mcp_list_tools"]
        assert len(listed) == 1
        search = next(item for item in seen[0].answer["output"] if item["type"] == "file_search_call")
        assert bool(search.get("results")) is bool(include)
        sent = [item["type"] for item in upstream.journal.creates()[-1].items if "type" in item]
        assert not FAMILIES & set(sent)


@STORE
async def test_include_that_changes_under_way(store):
    """Another ``include`` changes what later items show, not whether turns are deltas."""
    async with session() as (begin, _, _):
        talk = begin(store=store, tools=HOSTED)
        seen = [
            await talk.send(f"hosted 1 loop 0 part {n}", include=include)
            for n, include in enumerate(([], INCLUDE, INCLUDE[:1]))
        ]
        assert outcomes(*seen) == ["new_conversation", "delta", "delta"]
        shown = [
            [bool(item.get("results")) for item in one.answer["output"] if item["type"] == "file_search_call"]
            for one in seen
        ]
        assert shown == [[False], [True], [False]]


async def test_a_stripped_hosted_item_is_no_match():
    """A client that drops what ``include`` brought has another history: it is sent in full, and the drop reaches the upstream."""
    async with session() as (begin, upstream, _):
        talk = begin(tools=HOSTED, include=INCLUDE)
        await talk.send("hosted 1 loop 0")
        for item in talk.history:
            item.pop("results", None)
        seen = await talk.send("loop 0 more")
        assert seen.mode == "full"
        assert not any("results" in item for item in upstream.journal.creates()[-1].items)


@STORE
async def test_an_approval_of_an_mcp_call(store):
    """A request for approval is answered as a delta, and the approved call runs."""
    careful = [{**HOSTED[4], "require_approval": "always"}]
    async with session() as (begin, _, _):
        talk = begin(store=store, tools=careful)
        asked = await talk.send("hosted 1 loop 0")
        request = next(item for item in asked.answer["output"] if item["type"] == "mcp_approval_request")
        approval = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
        ran = await talk.send(approval)
        assert outcomes(asked, ran) == ["new_conversation", "delta"]
        call = next(item for item in ran.answer["output"] if item["type"] == "mcp_call")
        assert call["approval_request_id"] == request["id"]
        assert call["arguments"] == request["arguments"]
        assert outcomes(await talk.send("loop 0 thanks")) == ["delta"]


async def test_hosted_events_are_those_of_plain_http():
    """The streams of a hosted answer have the same events in the same order, over a socket and directly."""
    kinds = []
    async with running_simulator(Options()) as upstream, running_gateway(upstream.url) as gateway:
        for url in (upstream.url, gateway.url):
            async with Api(url) as api:
                talk = Conversation(api, upstream, stream=True, tools=HOSTED, include=INCLUDE)
                seen = await talk.send("hosted 1 loop 0")
                kinds.append(seen.kinds)
    assert kinds[0] == kinds[1]
    families = {
        "response.web_search_call.searching",
        "response.file_search_call.completed",
        "response.code_interpreter_call_code.delta",
        "response.code_interpreter_call.interpreting",
        "response.image_generation_call.partial_image",
        "response.mcp_list_tools.completed",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
    }
    assert families <= set(kinds[0])


@STORE
@BOTH
async def test_structured_answers(store, stream):
    """A schema for the text goes up with every turn, a changed one too, and answers fit the schema of their own request."""
    async with session() as (begin, upstream, _):
        talk = begin(store=store, stream=stream)
        formats = []
        for number, names in enumerate((["a"], ["a"], ["a", "b"], ["b"])):
            properties = {name: {"type": "integer"} for name in names} | {"text": {"type": "string"}}
            schema = {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            }
            formats.append({"type": "json_schema", "name": "reply", "strict": True, "schema": schema})
            seen = await talk.send(f"loop 0 part {number}", text={"format": formats[-1]})
            value = json.loads(seen.answer["output"][-1]["content"][0]["text"])
            assert set(value) == set(properties)
            assert outcomes(seen) == ["delta" if number else "new_conversation"]
        assert [one.body["text"]["format"] for one in upstream.journal.creates()] == formats
