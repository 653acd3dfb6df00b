"""openai-python, in the ways in which applications keep a history with it.

append: ``history += response.output``; stateless: the same, streamed, ``store`` false; helper: ``responses.stream()``;
parse: structured output; dump: ``model_dump()`` with its nulls; text: output texts and bare calls; chain: response ids.
"""

import json

import openai
from pydantic import BaseModel
from session import CITY, INSTRUCTIONS, PATIENCE, Interrupted, mode, play, weather

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "strict": True,
    "parameters": CITY,
}
COMMON = {"model": "gpt-5", "instructions": INSTRUCTIONS, "tools": [TOOL]}
STATELESS = {"store": False, "include": ["reasoning.encrypted_content"]}


class Forecast(BaseModel):
    """What the final text is parsed into."""

    summary: str
    degrees: int


def answer(client, history, interrupt, previous):
    """One request, streamed or not as the mode has it."""
    if mode() == "helper":
        with client.responses.stream(input=history, **STATELESS, **COMMON) as events:
            for event in events:
                if interrupt and event.type == "response.output_text.delta":
                    raise Interrupted
            return events.get_final_response()
    if mode() == "stateless":
        with client.responses.create(input=history, stream=True, **STATELESS, **COMMON) as events:
            for event in events:
                if interrupt and event.type == "response.output_text.delta":
                    raise Interrupted
                if event.type == "response.completed":
                    return event.response
        raise SystemExit("the stream has ended without a response")
    patient = client.with_options(timeout=PATIENCE, max_retries=0) if interrupt else client
    try:
        if mode() == "parse":
            return patient.responses.parse(input=history, text_format=Forecast, **COMMON)
        chained = {"previous_response_id": previous} if previous else {}
        return patient.responses.create(input=history, **chained, **COMMON)
    except openai.APITimeoutError:
        raise Interrupted from None


def kept(response):
    """What the application keeps of an answer."""
    if mode() == "text":
        said = [{"role": "assistant", "content": response.output_text}] if response.output_text else []
        calls = [item for item in response.output if item.type == "function_call"]
        names = ("type", "call_id", "name", "arguments")
        return said + [{name: getattr(call, name) for name in names} for call in calls]
    if mode() == "dump":
        return [item.model_dump() for item in response.output]
    return [item.model_dump(exclude_unset=True) for item in response.output]


def step(saved, text, interrupt):
    """A user turn with its tool rounds."""
    client = openai.OpenAI()
    history, previous = (saved["new"], saved["id"]) if isinstance(saved, dict) else (saved, None)
    history = [*history, {"role": "user", "content": text}]
    made = []
    while True:
        response = answer(client, history, interrupt, previous)
        if mode() == "chain":
            previous, history = response.id, []
        else:
            history += response.output if mode() == "append" else kept(response)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        for call in calls:
            made.append([call.name, call.arguments])
            output = weather(**json.loads(call.arguments))
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    history = [item if isinstance(item, dict) else item.model_dump(exclude_unset=True) for item in history]
    client.close()
    return ({"new": history, "id": previous} if mode() == "chain" else history), response.output_text, made


play(step)
