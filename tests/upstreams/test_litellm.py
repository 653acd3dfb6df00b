"""Conversations through the gateway against the LiteLLM proxy, which answers sockets by asking a provider over plain HTTP."""

import asyncio
import contextlib
import os
import shutil
import subprocess

import aiohttp
import pytest
import pytest_asyncio

from gateway.simulator import FunctionScript, Simulator
from tests.faults.scenes import bare, body, call, said, user
from tests.gateways import Api, running_gateway
from tests.ports import free_port
from tests.tls import Authority, tls_front
from tests.upstreams.installing import python_package
from tests.upstreams.recorder import Recorder

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]

KEY = "sk-litellm"
MODELS = """
model_list:
  - model_name: managed
    litellm_params: {{model: hosted_vllm/gpt-5, api_base: "{plain}", api_key: sk-provider}}
  - model_name: other
    litellm_params: {{model: hosted_vllm/gpt-5-mini, api_base: "{plain}", api_key: sk-provider}}
  - model_name: passed-through
    litellm_params: {{model: openai/gpt-5, api_base: "{secure}", api_key: sk-provider}}
general_settings: {{master_key: {key}}}
"""


@contextlib.asynccontextmanager
async def litellm(folder, **urls):
    """The root URL of a running LiteLLM proxy."""
    command = python_package("litellm[proxy]==1.108.7") / "litellm"
    port = free_port()
    (folder / "config.yaml").write_text(MODELS.format(key=KEY, **urls))
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    environment["SSL_CERT_FILE"] = str(folder / "ca.pem")
    with (folder / "log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            str(command), "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
        )  # fmt: skip
    try:
        root = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session, asyncio.timeout(180):
            while True:
                assert child.returncode is None, (folder / "log").read_text()[-2000:]
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(root + "/health/liveliness") as answer:
                        if answer.status == 200:
                            break
                await asyncio.sleep(0.2)
        yield root
    finally:
        child.terminate()
        await child.wait()


def loop(ask):
    """Nine calls, then a text; it thinks first where the instructions say so."""
    done = sum(item.get("type") == "function_call_output" for item in ask.context)
    items = [call(f"call_{done}")] if done < 9 else [said("done")]
    if ask.body.get("instructions") == "think":
        thought = {"type": "summary_text", "text": "hm"}
        items.insert(0, {"type": "reasoning", "summary": [thought], "encrypted_content": f"secret{done}"})
    return items


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider():
    """The simulated upstream that stands behind the proxy."""
    simulator = Simulator(script=FunctionScript(loop))
    await simulator.start()
    yield simulator
    await simulator.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(provider, tmp_path_factory):
    """The root URL of the proxy, started once."""
    folder = tmp_path_factory.mktemp("litellm")
    certificate = Authority(folder).issue("server", "IP:127.0.0.1")
    async with tls_front(certificate, provider.port) as front:
        async with litellm(folder, plain=provider.url, secure=front.url) as root:
            yield root


@contextlib.asynccontextmanager
async def through(proxy, key=KEY, **settings):
    """A recorder before the proxy, a gateway that takes it for an upstream of no known kind, and a client."""
    async with Recorder(proxy) as recorder:
        async with running_gateway(recorder.url, profile="auto", **settings) as gateway:
            async with Api(gateway.url, key=key) as api:
                yield recorder, api


TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}


async def ten_turns(api, provider, model, **fields):
    """An agent loop of ten turns; what the provider held each time is compared with what the client asked for."""
    items, modes = [user("u1")], []
    for _ in range(10):
        seen = await api.create(body(items, model=model, tools=[TOOL], **fields))
        assert seen.status == 200, seen.raw
        modes.append(seen.mode)
        items += seen.answer["output"]
        newest = provider.journal.creates()[-1].response_id
        assert list(map(bare, provider.context_of(newest))) == list(map(bare, items))
        calls = [item for item in seen.answer["output"] if item["type"] == "function_call"]
        items += [{"type": "function_call_output", "call_id": c["call_id"], "output": "ok"} for c in calls]
    assert not calls
    return modes


async def test_ten_turns_of_calls(proxy, provider):
    """What the proxy rebuilds whole goes as deltas on one socket; the provider has the whole context each time."""
    async with through(proxy) as (recorder, api):
        modes = await ten_turns(api, provider, "managed")
    assert modes == ["full"] + ["delta"] * 9
    assert ({frame.socket for frame in recorder.sent()}, recorder.posts) == ({1}, [])


async def test_ten_turns_with_reasoning(proxy, provider):
    """The proxy would drop reasoning from what it rebuilds, so each turn is sent in full, and nothing is lost."""
    async with through(proxy) as (recorder, api):
        modes = await ten_turns(api, provider, "managed", instructions="think")
    assert modes == ["full"] * 10
    assert not [frame for frame in recorder.sent() if "previous_response_id" in frame.data]


async def test_ten_turns_passed_through(proxy, provider):
    """Where the proxy passes a provider's own sockets through, reasoning is held there, and the turns are deltas."""
    async with through(proxy) as (recorder, api):
        modes = await ten_turns(api, provider, "passed-through", instructions="think")
    assert modes == ["full"] + ["delta"] * 9
    assert {frame.socket for frame in recorder.sent()} == {1}


async def test_one_model_per_socket(proxy, provider):
    """Two models of one caller never share a socket, which would answer for the wrong one."""
    async with through(proxy) as (recorder, api):
        for model in ("passed-through", "managed", "other", "passed-through"):
            seen = await api.create(body([user(f"for {model}")], model=model))
            assert (seen.status, seen.answer["status"]) == (200, "completed")
            asked = {"managed": "gpt-5", "other": "gpt-5-mini", "passed-through": "gpt-5"}[model]
            assert provider.journal.creates()[-1].body["model"] == asked
    models = {}
    for frame in recorder.sent():
        models.setdefault(frame.socket, set()).add(frame.data["model"])
    assert all(len(of_socket) == 1 for of_socket in models.values())


async def test_a_wrong_key_and_a_wrong_model(proxy):
    """A refused upgrade (403) leads to plain HTTP's own answer; a model that is not there is as wrong over a socket."""
    async with through(proxy, key="sk-wrong") as (_, api), Api(proxy + "/v1", key="sk-wrong") as direct:
        asked = {"model": "managed", "store": False, "input": "x"}
        seen, plainly = await api.create(asked), await direct.create(asked)
        assert (seen.status, seen.mode, seen.answer) == (plainly.status, "http", plainly.answer)
    async with through(proxy) as (recorder, api), Api(proxy + "/v1", key=KEY) as direct:
        asked = {"model": "no-such", "store": False, "input": "x"}
        seen, plainly = await api.create(asked), await direct.create(asked)
        after = await api.create({**asked, "model": "managed"})
    assert (seen.status, plainly.status) == (400, 400)
    assert "no-such" in seen.answer["error"]["message"]
    assert (after.status, recorder.posts) == (200, [])
