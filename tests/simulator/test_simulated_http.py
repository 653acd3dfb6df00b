"""The HTTP side of the simulated upstream, rule by rule."""

import hashlib
import io

import aiohttp
import pytest


async def test_a_stream_holds_all_events_in_order_with_consecutive_numbers(simulate, post):
    """Set-up events, deltas, done events and the terminal one, numbered from 0, without an end marker."""
    simulator = await simulate(reasoning=False)
    status, events = await post(simulator, input="q", stream=True)
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert status == 200
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    text = "".join(event.get("delta", "") for event in events)
    assert text == events[-1]["response"]["output"][0]["content"][0]["text"]


async def test_a_stream_has_the_headers_of_the_api(simulate, http):
    """Server-sent events in UTF-8 with a request id."""
    simulator = await simulate()
    body = {"model": "gpt-5", "input": "q", "stream": True}
    async with http.post(f"{simulator.url}/responses", json=body) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["x-request-id"].startswith("req_")
        assert b"[DONE]" not in await answer.read()


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"model": None, "input": "q"}, (400, "missing_required_parameter", "model")),
        ({"model": 5, "input": "q"}, (400, "invalid_type", "model")),
        ({"model": "no-such-model", "input": "q"}, (404, "model_not_found", None)),
        ({}, (400, "missing_required_parameter", "input")),
        ({"input": 5}, (400, "invalid_type", "input")),
        ({"input": ["q"]}, (400, "invalid_type", "input[0]")),
        ({"input": [{"role": "user"}]}, (400, "missing_required_parameter", "input[0].content")),
        ({"input": [{"role": "robot", "content": "x"}]}, (400, "invalid_value", "input[0].role")),
        ({"input": "q", "temperature": "hot"}, (400, "invalid_type", "temperature")),
        ({"input": "q", "stream": "yes"}, (400, "invalid_type", "stream")),
        ({"input": "q", "tools": [{"name": "f"}]}, (400, "missing_required_parameter", "tools[0].type")),
        ({"input": "q", "stream_options": {"include_obfuscation": False}}, (400, None, "stream_options")),
        ({"input": "q", "stream_id": "l1"}, (400, "unknown_parameter", "stream_id")),
        ({"input": "q", "generate": False}, (400, "unknown_parameter", "generate")),
        ({"input": "q", "type": "response.create"}, (400, "unknown_parameter", "type")),
        (
            {"input": "q", "previous_response_id": "resp_x"},
            (400, "previous_response_not_found", "previous_response_id"),
        ),
        (
            {"input": "q", "previous_response_id": "r", "conversation": "c"},
            (400, "mutually_exclusive_parameters", None),
        ),
    ],
)
async def test_a_wrong_request_is_refused_in_the_shape_of_the_api(simulate, post, body, wanted):
    """Status, code and param say what is wrong; the body is one error object."""
    simulator = await simulate()
    got, answer = await post(simulator, **body)
    assert (got, answer["error"]["code"], answer["error"]["param"]) == wanted
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    entry = simulator.journal.creates()[0]
    assert (entry.outcome, entry.status, entry.code) == ("refused", *wanted[:2])


async def test_unknown_fields_and_items_are_accepted(simulate, post):
    """A field or an item of a type that does not exist yet is context like any other."""
    simulator = await simulate()
    item = {"type": "x_future_item", "id": "xf_1", "data": {"a": None}}
    status, response = await post(simulator, input=[item, {"role": "user", "content": "q"}], x_new={"a": 1})
    assert status == 200
    assert simulator.context_of(response["id"])[0] == item


async def test_the_key_is_checked_everywhere(simulate):
    """No key or an unknown one is a 401 on every route, before anything else."""
    simulator = await simulate(keys=frozenset({"good"}))
    async with aiohttp.ClientSession() as session:
        for key, code in ((None, None), ("bad", "invalid_api_key")):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            for method, path in (("POST", "/responses"), ("GET", "/models"), ("GET", "/responses/resp_1")):
                async with session.request(method, simulator.url + path, headers=headers) as answer:
                    assert (answer.status, (await answer.json())["error"]["code"]) == (401, code)


async def test_a_body_that_is_no_json_object_is_refused(simulate, http):
    """Broken JSON, NaN, a byte order mark and an array on top are 400."""
    simulator = await simulate()
    for raw in (b"{", b'{"a":NaN}', b"\xef\xbb\xbf{}", b"[]", b"\xff"):
        async with http.post(f"{simulator.url}/responses", data=raw) as answer:
            assert answer.status == 400


async def test_stored_responses_are_read_listed_continued_and_deleted(simulate, post, http):
    """GET, input items with paging, continuation and DELETE work on what was stored."""
    simulator = await simulate()
    given = [{"role": "user", "content": f"part {n}"} for n in range(3)]
    _, first = await post(simulator, input=given)
    one = f"{simulator.url}/responses/{first['id']}"
    async with http.get(one) as answer:
        assert await answer.json() == first
    async with http.get(f"{one}/input_items?order=asc&limit=2") as answer:
        page = await answer.json()
    assert [item["content"] for item in page["data"]] == ["part 0", "part 1"] and page["has_more"]
    async with http.get(f"{one}/input_items?order=asc&after={page['last_id']}") as answer:
        assert [item["content"] for item in (await answer.json())["data"]] == ["part 2"]
    status, second = await post(simulator, input="next", previous_response_id=first["id"])
    assert status == 200 and second["previous_response_id"] == first["id"]
    assert simulator.context_of(second["id"])[:4] == [*given, first["output"][0]]
    async with http.delete(one) as answer:
        assert (await answer.json())["deleted"]
    for gone in (first["id"], second["id"]):
        assert (await post(simulator, input="x", previous_response_id=gone))[0] == 400


async def test_nothing_unstored_can_be_loaded(simulate, post, http):
    """``store: false``, and any response of an upstream without retention, is unknown afterwards."""
    for options, body in (({}, {"store": False}), ({"zero_retention": True}, {"store": True})):
        simulator = await simulate(**options)
        _, first = await post(simulator, input="q", **body)
        async with http.get(f"{simulator.url}/responses/{first['id']}") as answer:
            assert answer.status == 404
        status, error = await post(simulator, input="x", previous_response_id=first["id"])
        assert (status, error["error"]["code"]) == (400, "previous_response_not_found")


async def test_a_response_belongs_to_key_organization_and_project(simulate, post, http):
    """Another key, organization or project does not find it."""
    simulator = await simulate()
    _, first = await post(simulator, input="q")
    body = {"model": "gpt-5", "input": "x", "previous_response_id": first["id"]}
    others = [{"authorization": "Bearer other"}, {"openai-organization": "o"}, {"openai-project": "p"}]
    for headers, status in [*((one, 400) for one in others), ({}, 200)]:
        async with http.post(f"{simulator.url}/responses", json=body, headers=headers) as answer:
            assert answer.status == status


async def test_item_rules_hold(simulate, post):
    """Duplicate ids, open calls, orphan outputs and unknown references are refused; known references are resolved."""
    simulator = await simulate(rounds=1, reasoning=True)
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
    user = {"role": "user", "content": "q"}
    _, first = await post(simulator, input=[user], tools=tools)
    calls = [item for item in first["output"] if item["type"] == "function_call"]
    outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "x"} for call in calls]
    parent = {"previous_response_id": first["id"]}

    async def message(**body):
        status, answer = await post(simulator, tools=tools, **body)
        return status, (answer["error"] or {"message": ""})["message"]

    assert await message(input=[user, *first["output"], *outputs]) == (200, "")
    assert (await message(input=[user, calls[0], calls[0], *outputs]))[1].startswith(
        "Duplicate item found with id fc_"
    )
    assert (await message(input=[*first["output"], *outputs], **parent))[1].startswith("Duplicate item found")
    reference = {"type": "item_reference", "id": calls[0]["id"]}
    assert (await message(input=[reference, *outputs], **parent))[1].startswith("Duplicate item found")
    assert (await message(input=[user], **parent))[1].startswith(
        "No tool output found for function call call_"
    )
    assert (await message(input=[user, *outputs]))[1].startswith(
        "No tool call found for function call output"
    )
    assert await message(input=[{"type": "item_reference", "id": "rs_x"}]) == (
        404,
        "Item with id 'rs_x' not found.",
    )
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    status, second = await post(simulator, input=[user, *references, *outputs], tools=tools)
    assert status == 200
    assert simulator.context_of(second["id"])[1 : len(references) + 1] == first["output"]


async def test_strict_upstreams_want_stored_reasoning_and_whole_pairs(simulate, post):
    """As options: bare reasoning ids must be stored ones, and a message needs the reasoning it was made after."""
    user = {"role": "user", "content": "q"}
    simulator = await simulate(reasoning=True, strict_reasoning_ids=True, reasoning_pairs=True)
    bare = {"type": "reasoning", "id": "rs_unknown", "summary": []}
    assert (await post(simulator, input=[user, bare]))[0] == 404
    _, first = await post(simulator, input=[user])
    assert (await post(simulator, input=[user, *first["output"], user]))[0] == 200
    status, error = await post(simulator, input=[user, first["output"][1], user])
    assert status == 400 and "without its required 'reasoning' item" in error["error"]["message"]


async def test_background_conversation_and_prompt_are_taken(simulate, post):
    """Background answers at once with ``queued``; the others are answered as opaque context."""
    simulator = await simulate()
    assert (await post(simulator, input="q", background=True))[1]["status"] == "queued"
    assert (await post(simulator, input="q", conversation="conv_1"))[1]["conversation"] == {"id": "conv_1"}
    assert (await post(simulator, prompt={"id": "pmpt_1"}))[0] == 200


async def test_files_come_back_byte_for_byte(simulate, http):
    """An upload answers with size and digest, and is downloaded unchanged."""
    simulator = await simulate()
    data = bytes(range(256)) * 8000  # over the 1 MiB of some servers
    async with http.post(f"{simulator.url}/files", data=io.BytesIO(data)) as answer:
        found = await answer.json()
    assert (found["bytes"], found["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    async with http.get(f"{simulator.url}/files/{found['id']}/content") as answer:
        assert await answer.read() == data


async def test_compressed_bodies_are_understood(simulate, http):
    """A direct run may compress its requests."""
    simulator = await simulate()
    async with http.post(
        f"{simulator.url}/responses", json={"model": "m", "input": "q"}, compress="gzip"
    ) as answer:
        assert answer.status == 200
    assert simulator.journal.creates()[0].raw.startswith(b'{"model"')
