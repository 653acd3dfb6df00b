"""LangChain's ChatOpenAI. agent: ``create_agent``; v1: output version v1; stateless and stream: ``store`` false."""

import asyncio

from langchain.agents import create_agent
from langchain_core.load import dumpd, load
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from session import INSTRUCTIONS, PATIENCE, Interrupted, mode, play_in_loop, weather

KEPT = {"store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
MODES = {
    "agent": {},
    "v1": {"output_version": "v1"},
    "stateless": KEPT,
    "stream": {**KEPT, "streaming": True},
}


@tool
def get_weather(city: str, unit: str) -> str:
    """Get the weather."""
    return weather(city, unit)


async def run(history, text, interrupt):
    """A user turn with its tool rounds."""
    model = ChatOpenAI(model="gpt-5", use_responses_api=True, **MODES[mode()])
    agent = create_agent(model, [get_weather], system_prompt=INSTRUCTIONS)
    before = [load(one, allowed_objects="core") for one in history]
    asked = agent.ainvoke({"messages": [*before, HumanMessage(text)]})
    try:
        state = await asyncio.wait_for(asked, PATIENCE if interrupt else None)
    except TimeoutError:
        raise Interrupted from None
    messages = state["messages"]
    calls = [
        [call["name"], str(sorted(call["args"].items()))]
        for message in messages[len(before) :]
        for call in getattr(message, "tool_calls", ())
    ]
    return [dumpd(one) for one in messages], messages[-1].text, calls


play_in_loop(run)
