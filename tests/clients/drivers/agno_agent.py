"""Agno with the Responses API and its own session store. plain: as it comes; stateless: streamed, ``store`` false."""

import asyncio
from pathlib import Path

from agno.agent import Agent
from agno.db.json import JsonDb
from agno.models.openai import OpenAIResponses
from session import INSTRUCTIONS, PATIENCE, Interrupted, mode, play_in_loop, weather

STATELESS = {"store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low"}}


def get_weather(city: str, unit: str) -> str:
    """Get the weather."""
    return weather(city, unit)


async def run(_history, text, interrupt):
    """A user turn with its tool rounds."""
    agent = Agent(
        model=OpenAIResponses(id="gpt-5", **(STATELESS if mode() == "stateless" else {})),
        instructions=INSTRUCTIONS,
        tools=[get_weather],
        db=JsonDb(db_path=str(Path.home() / "agno")),
        session_id="one",
        add_history_to_context=True,
        telemetry=False,
    )
    try:
        result = await asyncio.wait_for(agent.arun(text), PATIENCE if interrupt else None)
    except TimeoutError:
        raise Interrupted from None
    calls = [[one.tool_name, str(sorted(one.tool_args.items()))] for one in result.tools or ()]
    return [], result.content, calls


play_in_loop(run)
