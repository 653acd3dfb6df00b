"""Agent loops through the gateway against aimock, an upstream that this project did not write."""

import asyncio
import contextlib
import shutil
import subprocess
from pathlib import Path

import openai
import pytest

from tests.faults.scenes import post_broken, user
from tests.gateways import Api, running_gateway
from tests.upstreams.installing import node_package
from tests.upstreams.recorder import Recorder

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("node") is None, reason="needs node"),
]

KEY = "sk-aimock"
TOOL = {
    "type": "function",
    "name": "step",
    "parameters": {"type": "object", "properties": {"round": {"type": "integer"}}},
}
SERVER = Path(__file__).parent / "aimock_server.mjs"


@contextlib.asynccontextmanager
async def aimock():
    """The root URL of a running aimock."""
    folder = node_package("@copilotkit/aimock", "1.43.0")
    child = await asyncio.create_subprocess_exec(
        "node", str(SERVER), str(folder), KEY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        line = await asyncio.wait_for(child.stdout.readline(), 20)
        yield f"http://127.0.0.1:{int(line.split()[1])}"
    finally:
        child.kill()
        await child.communicate()


@contextlib.asynccontextmanager
async def recorded(key=KEY, **settings):
    """A gateway, a recorder before aimock, and a client of the gateway."""
    async with (
        aimock() as root,
        Recorder(root) as recorder,
        running_gateway(recorder.url, **settings) as gateway,
    ):
        async with Api(gateway.url, key=key) as api:
            yield recorder, api


async def work(api, rounds, **fields):
    """The agent loop as a plain HTTP client runs it, with the whole history each turn: the modes and the last text."""
    items, modes = [user(f"work {rounds}")], []
    while True:
        seen = await api.create(
            {"model": "gpt-5", "store": False, "stream": True, "tools": [TOOL], "input": items, **fields}
        )
        assert seen.status == 200
        modes.append(seen.mode)
        output = seen.answer["output"]
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            return modes, "".join(part["text"] for item in output for part in item.get("content", []))
        results = [{"type": "function_call_output", "call_id": c["call_id"], "output": "ok"} for c in calls]
        items = items + output + results


def completed(recorder):
    """The ids of the responses that ended well, in order."""
    return [
        frame.data["response"]["id"]
        for frame in recorder.frames
        if frame.sender == "server" and frame.data["type"] == "response.completed"
    ]


def only_new_items_were_sent(recorder, turns):
    """One socket, one create per turn, each naming the response before and carrying one tool output; no plain HTTP."""
    sent = recorder.sent()
    assert [frame.data["type"] for frame in sent] == ["response.create"] * turns
    assert ({frame.socket for frame in sent}, recorder.posts) == ({1}, [])
    assert not [frame for frame in sent if {"stream", "background"} & frame.data.keys()]
    assert "previous_response_id" not in sent[0].data
    assert [frame.data["previous_response_id"] for frame in sent[1:]] == completed(recorder)[:-1]
    kinds = [[item["type"] for item in frame.data["input"]] for frame in sent[1:]]
    assert kinds == [["function_call_output"]] * (turns - 1)
    sizes = [frame.size for frame in sent[1:]]
    assert max(sizes) - min(sizes) < 10


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_ten_turns_of_an_agent_loop(stream):
    """Of ten turns one is full; at the end the upstream itself says that it got two messages, not nineteen."""
    async with recorded() as (recorder, api):
        modes, text = await work(api, 9, stream=stream)
    assert modes == ["full"] + ["delta"] * 9
    only_new_items_were_sent(recorder, 10)
    assert text.startswith("done after 9; ")
    assert "2 messages" in text or "1 messages" in text


async def test_without_the_gateways_help_everything_is_resent():
    """The same loop over plain HTTP, so that the difference is the gateway's doing."""
    async with recorded(mode="http") as (recorder, api):
        modes, text = await work(api, 9)
    assert (modes, len(recorder.posts), recorder.frames) == (["http"] * 10, 10, [])
    assert "19 messages" in text


async def test_an_sdk_loop():
    """The official SDK, streaming and not, notices nothing; each of its loops has one socket's worth of deltas."""
    async with recorded() as (recorder, api):
        async with openai.AsyncOpenAI(base_url=api.url, api_key=KEY, max_retries=0) as client:
            items = [{"role": "user", "content": "work 4"}]
            while True:
                async with client.responses.stream(
                    model="gpt-5", input=items, tools=[{**TOOL, "strict": False}], store=False
                ) as stream:
                    response = await stream.get_final_response()
                calls = [item for item in response.output if item.type == "function_call"]
                if not calls:
                    break
                items += [item.model_dump(exclude_none=True) for item in response.output]
                items += [
                    {"type": "function_call_output", "call_id": c.call_id, "output": "ok"} for c in calls
                ]
    assert response.output_text.startswith("done after 4; ")
    only_new_items_were_sent(recorder, 5)


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [("rate limit me", 429, "rate_limit_exceeded"), ("lose my response", 400, "previous_response_not_found")],
)
async def test_refusals_keep_their_status(text, status, code):
    """What the upstream refuses is refused to the client as over plain HTTP; afterwards the conversation goes on."""
    async with recorded() as (recorder, api), aimock() as root, Api(root + "/v1", key=KEY) as direct:
        asked = {"model": "gpt-5", "store": False, "stream": True, "input": [user(text)]}
        refused, plainly = await api.create(asked), await direct.create(asked)
        after = await api.create({**asked, "input": [user("hello")]})
    assert (refused.status, plainly.status) == (status, status)
    assert refused.answer["error"]["code"] == plainly.answer["error"]["code"] == code
    assert refused.answer["error"]["message"] == plainly.answer["error"]["message"]
    assert (after.status, after.answer["status"]) == (200, "completed")
    assert len(recorder.sent()) == 2


async def test_a_socket_dropped_in_mid_answer_looks_broken():
    """The client gets what came, then a failure and a cut body, never an end that looks whole."""
    async with recorded() as (_, api):
        asked = {"model": "gpt-5", "store": False, "stream": True, "input": [user("cut me off")]}
        status, events, broken = await post_broken(api, asked)
        after = await api.create({**asked, "input": [user("hello")]})
    assert (status, broken, events[-1]["type"]) == (200, True, "response.failed")
    assert [event["type"] for event in events].count("response.output_text.delta") >= 1
    assert after.answer["status"] == "completed"


async def test_a_wrong_key_gets_the_upstreams_own_answer():
    """The upgrade is refused, and the client sees what plain HTTP says of its key."""
    async with recorded(key="sk-wrong") as (recorder, api), aimock() as root:
        asked = {"model": "gpt-5", "store": False, "input": [user("hello")]}
        seen = await api.create(asked)
        async with Api(root + "/v1", key="sk-wrong") as direct:
            plainly = await direct.create(asked)
    assert (seen.status, seen.answer) == (plainly.status, plainly.answer)
    assert (seen.status, recorder.frames) == (401, [])
