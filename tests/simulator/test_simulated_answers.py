"""Answers of the simulated upstream: pure, scripted by hints, valid for what was offered."""

import json
import re

from gateway.simulator import FunctionScript

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
        "required": ["city", "unit"],
    },
}
CUSTOM = {"type": "custom", "name": "run_code"}


def calls_of(response):
    return [item for item in response["output"] if item["type"].endswith("_call")]


def outputs_for(response):
    """The outputs that a client would add for every call of a response."""
    return [
        {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": f"ran {call['name']}"}
        for call in calls_of(response)
    ]


def text_of(response):
    return response["output"][-1]["content"][0]["text"]


async def run_loop(post, simulator, **body):
    """A whole tool loop over HTTP that resends its history; all its responses."""
    responses, history = [], [{"role": "user", "content": body.pop("text")}]
    while True:
        status, response = await post(simulator, input=history, **body)
        assert status == 200
        responses.append(response)
        history = [*history, *response["output"], *outputs_for(response)]
        if not calls_of(response):
            return responses


async def test_two_upstreams_answer_the_same_conversation_alike(simulate, post):
    """Texts, call ids, arguments and encrypted content agree between upstreams; response and item ids do not."""
    runs = []
    for _ in range(2):
        simulator = await simulate()
        runs.append(await run_loop(post, simulator, text="loop 3", tools=[WEATHER, CUSTOM], store=False))

    def visible(response):
        return [{key: value for key, value in item.items() if key != "id"} for item in response["output"]]

    assert [visible(one) for one in runs[0]] == [visible(one) for one in runs[1]]
    assert [one["usage"] for one in runs[0]] == [one["usage"] for one in runs[1]]
    assert not {one["id"] for one in runs[0]} & {one["id"] for one in runs[1]}


async def test_a_chain_over_a_socket_answers_like_a_resent_history(simulate, post, dial):
    """Parent and new items over a socket give the answer that the whole list gives over HTTP, digests included."""
    direct = await simulate()
    told = await run_loop(post, direct, text="loop 3", tools=[WEATHER], store=True)
    chained = await simulate()
    talk = await dial(chained)
    new, parent, texts = [{"role": "user", "content": "loop 3"}], {}, []
    for _ in told:
        response = await talk.response(input=new, tools=[WEATHER], store=True, **parent)
        texts.append([item.get("arguments") or item.get("content") for item in response["output"]])
        new, parent = outputs_for(response), {"previous_response_id": response["id"]}
    assert texts == [[item.get("arguments") or item.get("content") for item in one["output"]] for one in told]
    assert chained.digests_after(response["id"]) == direct.digests_after(told[-1]["id"])


async def test_the_text_shows_the_digests_of_the_context(simulate, post):
    """The final text quotes strict, modulo and item count as ``digest_of`` computes them."""
    simulator = await simulate()
    _, response = await post(simulator, input="hello")
    found = re.match(r"ctx strict=(\w{16}) modulo=(\w{16}) settings=(\w{16}) items=(\d+)", text_of(response))
    wanted = simulator.digest_of("hello")
    assert found.group(1, 2, 4) == (wanted.strict, wanted.modulo, "1")
    assert simulator.journal.creates()[0].digests == wanted


async def test_a_later_turn_agrees_although_the_client_dropped_phase_and_summaries(simulate, post):
    """Lawful losses change the strict digest only, in this turn and in those after it."""
    simulator = await simulate(reasoning=True)

    def lossy(item):
        kept = {key: value for key, value in item.items() if key not in ("phase", "status")}
        return {**kept, "summary": []} if item["type"] == "reasoning" else kept

    seen = []
    for change in (dict, lossy):
        history = []
        for text in ("one", "two", "three"):
            history.append({"role": "user", "content": text})
            _, response = await post(simulator, input=history, store=False)
            history.extend(change(item) for item in response["output"])
        seen.append(text_of(response))
    marks = [re.search(r"modulo=.*", text, re.DOTALL).group() for text in seen]
    assert marks[0] == marks[1]


async def test_settings_change_the_answer_and_delivery_fields_do_not(simulate, post):
    """A model sees instructions and temperature, not metadata, store or cache keys."""
    simulator = await simulate()
    bodies = [{}, {"instructions": "x"}, {"temperature": 0.5}, {"x_new": 1}]
    bodies += [{"metadata": {"a": "b"}, "prompt_cache_key": "k", "client_metadata": {"t": "1"}}]
    texts = [text_of((await post(simulator, input="q", **body))[1]) for body in bodies]
    assert len(set(texts[:4])) == 4
    assert texts[4] == texts[0]


async def test_loops_have_the_wanted_length_and_oddly_spelled_valid_arguments(simulate, post):
    """``loop N`` gives N rounds of calls whose arguments are valid for the tool, then a text."""
    simulator = await simulate()
    responses = await run_loop(post, simulator, text="please loop 4", tools=[WEATHER])
    assert [bool(calls_of(one)) for one in responses] == [True] * 4 + [False]
    for one in responses:
        for call in calls_of(one):
            value = json.loads(call["arguments"])
            assert isinstance(value["city"], str) and value["unit"] in ("c", "f")


async def test_tool_choice_and_parallel_calls_are_respected(simulate, post):
    """None, required and a named tool decide; without parallel calls there is one at a time."""
    simulator = await simulate(rounds=1, parallel_calls=2)
    ask = {"input": "go", "tools": [WEATHER, CUSTOM]}
    assert len(calls_of((await post(simulator, **ask))[1])) == 2
    assert not calls_of((await post(simulator, **ask, tool_choice="none"))[1])
    assert len(calls_of((await post(simulator, **ask, parallel_tool_calls=False))[1])) == 1
    _, named = await post(simulator, **ask, tool_choice={"type": "custom", "name": "run_code"})
    assert {call["type"] for call in calls_of(named)} == {"custom_tool_call"}
    _, required = await post(simulator, input="loop 0", tools=[WEATHER], tool_choice="required")
    assert calls_of(required)


async def test_encrypted_reasoning_comes_when_nothing_is_stored_or_it_is_asked_for(simulate, post):
    """Only the finished item has the final encrypted content; the announced one has another."""
    simulator = await simulate(reasoning=True)
    _, plain = await post(simulator, input="q")
    assert "encrypted_content" not in plain["output"][0]
    _, asked = await post(simulator, input="q", include=["reasoning.encrypted_content"])
    assert asked["output"][0]["encrypted_content"]
    _, events = await post(simulator, input="q", store=False, stream=True)
    announced = next(event["item"] for event in events if event["type"] == "response.output_item.added")
    done = next(event["item"] for event in events if event["type"] == "response.output_item.done")
    assert (
        announced["encrypted_content"] != done["encrypted_content"] == asked["output"][0]["encrypted_content"]
    )


async def test_an_answer_longer_than_its_limit_ends_incomplete(simulate, post):
    """``max_output_tokens`` cuts the text after so many words."""
    simulator = await simulate()
    _, response = await post(simulator, input="words 50", max_output_tokens=10)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert len(text_of(response).split(" ")) == 10


async def test_a_script_decides_the_answer_and_may_leave_it_to_the_context(simulate, post):
    """A function sees the whole context; None means the derived answer."""
    said = {"type": "message", "role": "assistant", "status": "completed"}

    def reply(ask):
        if ask.ordinal:
            return None
        text = f"{len(list(ask.context))} items, {ask.transport}"
        return [{**said, "content": [{"type": "output_text", "text": text, "annotations": []}]}]

    simulator = await simulate(FunctionScript(reply))
    assert text_of((await post(simulator, input="a"))[1]) == "1 items, http"
    assert text_of((await post(simulator, input="a"))[1]).startswith("ctx strict=")
