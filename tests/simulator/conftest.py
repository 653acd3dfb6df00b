"""Clients of the simulated upstream that know nothing but the wire."""

import json
from contextlib import AsyncExitStack

import aiohttp
import pytest

from gateway.simulator import Options, Simulator

ENDS = ("error", "response.completed", "response.failed", "response.incomplete")


class Talk:
    """One socket to an upstream, one turn at a time."""

    def __init__(self, ws):
        self.ws = ws

    async def send(self, **body):
        await self.ws.send_str(json.dumps({"type": "response.create", "model": "gpt-5", **body}))

    async def event(self):
        message = await self.ws.receive(timeout=10)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        return json.loads(message.data)

    async def events(self):
        """All events up to the one that ends the turn."""
        found = []
        while not found or found[-1]["type"] not in ENDS:
            found.append(await self.event())
        return found

    async def turn(self, **body):
        """The last event of a turn."""
        await self.send(**body)
        return (await self.events())[-1]

    async def response(self, **body):
        """The completed response of a turn."""
        last = await self.turn(**body)
        assert last["type"] == "response.completed", last
        return last["response"]

    async def error(self, **body):
        """The error frame that a turn is refused with."""
        last = await self.turn(**body)
        assert last["type"] == "error", last
        return last


@pytest.fixture
async def stack():
    """What the fixtures below open, closed in the reverse order."""
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
async def simulate(stack):
    """A function that starts a simulated upstream."""

    async def start(script=None, **options):
        simulator = Simulator(Options(**options), script)
        await simulator.start()
        stack.push_async_callback(simulator.stop)
        return simulator

    return start


@pytest.fixture
async def http(stack):
    """An HTTP session with a key."""
    return await stack.enter_async_context(aiohttp.ClientSession(headers={"authorization": "Bearer sk-test"}))


@pytest.fixture
async def dial(stack, http):
    """A function that opens a socket to an upstream."""

    async def connect(simulator, **headers):
        url = simulator.url.replace("http", "ws", 1) + "/responses"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        ws = await stack.enter_async_context(http.ws_connect(url, headers=named, max_msg_size=0))
        return Talk(ws)

    return connect


@pytest.fixture
async def post(http):
    """A function that posts a request body and gives status and parsed JSON, or the SSE events."""

    async def send(simulator, **body):
        async with http.post(f"{simulator.url}/responses", json={"model": "gpt-5", **body}) as answer:
            if answer.content_type == "text/event-stream":
                blocks = (await answer.read()).decode().split("\n\n")
                assert blocks.pop() == ""
                heads, datas = zip(*(block.split("\n") for block in blocks), strict=True)
                events = [json.loads(data.removeprefix("data: ")) for data in datas]
                assert [head.removeprefix("event: ") for head in heads] == [event["type"] for event in events]
                return answer.status, events
            return answer.status, await answer.json()

    return send
