"""LiteLLM's ``responses()``. plain: ``history += output``; stream: streamed, ``store`` false."""

import json

import litellm
from session import CITY, INSTRUCTIONS, PATIENCE, Interrupted, mode, play, weather

litellm.telemetry = False
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "strict": True,
    "parameters": CITY,
}
COMMON = {"model": "openai/gpt-5", "instructions": INSTRUCTIONS, "tools": [TOOL]}
STATELESS = {"store": False, "include": ["reasoning.encrypted_content"], "stream": True}


def answer(history, interrupt):
    """One request, streamed or not as the mode has it."""
    if mode() == "stream":
        for event in litellm.responses(input=history, **STATELESS, **COMMON):
            if interrupt and event.type == "response.output_text.delta":
                raise Interrupted
            if event.type == "response.completed":
                return event.response
        raise SystemExit("the stream has ended without a response")
    patience = {"timeout": PATIENCE, "num_retries": 0, "max_retries": 0} if interrupt else {}
    try:
        return litellm.responses(input=history, **patience, **COMMON)
    except litellm.Timeout:
        raise Interrupted from None


def step(history, text, interrupt):
    """A user turn with its tool rounds."""
    history = [*history, {"role": "user", "content": text}]
    made = []
    while True:
        response = answer(history, interrupt)
        output = [item if isinstance(item, dict) else item.model_dump() for item in response.output]
        history += output
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            return history, response.output_text, made
        for call in calls:
            made.append([call["name"], call["arguments"]])
            said = weather(**json.loads(call["arguments"]))
            history.append({"type": "function_call_output", "call_id": call["call_id"], "output": said})


play(step)
