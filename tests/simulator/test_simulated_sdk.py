"""The real SDK against the simulated upstream: what it cannot parse, no gateway could repair."""

import asyncio
import json

import openai
import pytest
from pydantic import BaseModel

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Person(BaseModel):
    """What the structured answer has to fit."""

    name: str
    age: int
    tags: list[str]


@pytest.fixture
async def client(simulate, stack):
    """The SDK, pointed at a simulated upstream with its default options."""
    simulator = await simulate()
    made = openai.AsyncOpenAI(base_url=simulator.url, api_key="sk-test", max_retries=0)
    return await stack.enter_async_context(made)


async def test_create_parses(client):
    """A plain response has text, usage and the fields the SDK knows."""
    response = await client.responses.create(model="gpt-5", input="hi")
    assert response.output_text.startswith("ctx strict=")
    assert response.status == "completed" and response.usage.total_tokens > 0
    assert not response.model_extra.keys() - {"store"}


async def test_a_tool_loop_with_the_stream_helper(client):
    """The strict accumulator takes every event, and the history it builds is accepted."""
    history = [{"role": "user", "content": "loop 3"}]
    for round_number in range(4):
        async with client.responses.stream(
            model="gpt-5", input=history, tools=[WEATHER], store=False
        ) as stream:
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
        assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
        history += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        assert bool(calls) is (round_number < 3)
        for call in calls:
            assert call.parsed_arguments == json.loads(call.arguments)
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": "warm"})


async def test_parse_gives_an_object(client):
    """A structured answer fits its schema."""
    response = await client.responses.parse(model="gpt-5", input="hi", text_format=Person)
    assert isinstance(response.output_parsed, Person)
    async with client.responses.stream(model="gpt-5", input="hi", text_format=Person) as stream:
        final = await stream.get_final_response()
    assert final.output_parsed == response.output_parsed


async def test_errors_are_the_sdk_s_own(client):
    """Refusals become the exceptions that callers handle."""
    with pytest.raises(openai.NotFoundError) as missing:
        await client.responses.create(model="no-such-model", input="hi")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as unknown:
        await client.responses.create(model="gpt-5", input="hi", previous_response_id="resp_x")
    assert unknown.value.code == "previous_response_not_found"


async def test_other_routes_parse(client):
    """Retrieval, input items, deletion, models and files work with the SDK."""
    response = await client.responses.create(model="gpt-5", input="hi")
    assert (await client.responses.retrieve(response.id)).output_text == response.output_text
    items = await client.responses.input_items.list(response.id)
    assert items.data[0].content[0].text == "hi"
    await client.responses.delete(response.id)
    assert "gpt-5" in [model.id async for model in client.models.list()]
    uploaded = await client.files.create(file=("a.txt", b"abc"), purpose="user_data")
    assert b"abc" in (await client.files.content(uploaded.id)).content


async def test_many_at_once(client):
    """Concurrent streams do not mix."""

    async def one(number):
        stream = await client.responses.create(model="gpt-5", input=f"words {number}", stream=True)
        return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])

    texts = await asyncio.gather(*(one(number) for number in range(20)))
    assert len(set(texts)) == 20
