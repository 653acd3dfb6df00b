"""Pydantic AI with the Responses API. plain: as it comes; stateless: ``store`` false; stream: that, streamed."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from session import INSTRUCTIONS, PATIENCE, Interrupted, mode, play_in_loop, weather

STATELESS = OpenAIResponsesModelSettings(
    openai_store=False, openai_reasoning_summary="auto", openai_reasoning_effort="low"
)


async def watch(_context, events):
    """Takes the stream of an answer, as an application with a live display does."""
    async for _ in events:
        pass


async def run(history, text, interrupt):
    """A user turn with its tool rounds."""
    agent = Agent(
        OpenAIResponsesModel("gpt-5"),
        instructions=INSTRUCTIONS,
        model_settings=None if mode() == "plain" else STATELESS,
    )
    agent.tool_plain(get_weather)
    before = ModelMessagesTypeAdapter.validate_python(history)
    watched = {"event_stream_handler": watch} if mode() == "stream" else {}
    asked = agent.run(text, message_history=before or None, **watched)
    try:
        result = await asyncio.wait_for(asked, PATIENCE if interrupt else None)
    except TimeoutError:
        raise Interrupted from None
    parts = [part for message in result.new_messages() for part in message.parts]
    calls = [
        [part.tool_name, part.args_as_json_str()]
        for part in parts
        if part.part_kind == "tool-call"
    ]  # fmt: skip
    return ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json"), result.output, calls


def get_weather(city: str, unit: str) -> str:
    """Get the weather."""
    return weather(city, unit)


play_in_loop(run)
