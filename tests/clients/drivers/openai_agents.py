"""The OpenAI Agents SDK for Python. runner: ``to_input_list()``; stateless: the same, streamed, ``store`` false; session: SQLite."""

import asyncio
from pathlib import Path

from agents import Agent, ModelSettings, Runner, SQLiteSession, function_tool, set_tracing_disabled
from openai.types.shared import Reasoning
from session import INSTRUCTIONS, PATIENCE, Interrupted, mode, play_in_loop, weather

set_tracing_disabled(True)


@function_tool
def get_weather(city: str, unit: str = "c") -> str:
    """Get the weather."""
    return weather(city, unit)


def settings():
    """What the mode sends beside the history."""
    if mode() != "stateless":
        return ModelSettings()
    return ModelSettings(
        store=False,
        response_include=["reasoning.encrypted_content"],
        reasoning=Reasoning(effort="low", summary="auto"),
    )


async def run(history, text, interrupt):
    """A user turn with its tool rounds."""
    agent = Agent(
        name="Weather",
        instructions=INSTRUCTIONS,
        tools=[get_weather],
        model="gpt-5",
        model_settings=settings(),
    )
    if mode() == "session":
        session = SQLiteSession("one", Path.home() / "session.db")
        try:
            result = await asyncio.wait_for(
                Runner.run(agent, text, session=session), PATIENCE if interrupt else None
            )
        except TimeoutError:
            raise Interrupted from None
    elif mode() == "stateless":
        result = Runner.run_streamed(agent, [*history, {"role": "user", "content": text}])
        async for event in result.stream_events():
            said = getattr(getattr(event, "data", None), "type", "")
            if interrupt and said == "response.output_text.delta":
                result.cancel()
                raise Interrupted
    else:
        asked = Runner.run(agent, [*history, {"role": "user", "content": text}])
        try:
            result = await asyncio.wait_for(asked, PATIENCE if interrupt else None)
        except TimeoutError:
            raise Interrupted from None
    calls = [
        [item.raw_item.name, item.raw_item.arguments]
        for item in result.new_items
        if item.type == "tool_call_item"
    ]
    return ([] if mode() == "session" else result.to_input_list()), str(result.final_output), calls


play_in_loop(run)
