"""``upwire serve`` as a process: what it prints, how it drains, how it ends."""

import asyncio
import contextlib
import json
import signal
import time

import aiohttp
import pytest

from gateway import __version__
from gateway.simulator import Options, Simulator
from tests.serving import begin, serving

KEY = "sk-secret-of-a-user"
PROMPT = "a private prompt"


@pytest.fixture
async def simulator():
    """An upstream that takes its time for each token."""
    upstream = Simulator(Options(token_pace=0.02, reasoning=False))
    await upstream.start()
    yield upstream
    await upstream.stop()


@pytest.fixture
async def serve(simulator):
    """Starts ``upwire serve`` before the upstream, with more options; kills what still runs at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(*options):
            return await stack.enter_async_context(serving("--upstream", simulator.url, *options))

        yield start


@pytest.fixture
async def client():
    """A plain HTTP client with a key."""
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as session:
        yield session


def turn(words=3, **more):
    """A request whose answer is a text of some words."""
    text = f"{PROMPT} words {words}"
    return {"model": "gpt-5", "store": False, "stream": True, "input": text, **more}


@contextlib.asynccontextmanager
async def streaming(client, process, words):
    """A stream of many words whose first event has come."""
    async with client.post(process.url + "/v1/responses", json=turn(words)) as stream:
        assert stream.status == 200
        assert b"response.created" in await stream.content.readline()
        yield stream


async def test_a_turn_and_the_end_of_an_idle_gateway(serve, client, simulator):
    """It says it is ready, serves a turn, logs one line for it, closes its socket with 1000 and exits with 0."""
    process = await serve()
    port = process.url.rpartition(":")[2]
    assert process.lines == [
        f"upwire {__version__}",
        f"listening on http://127.0.0.1:{port}",
        f"upstream {simulator.url}",
        "mode auto, match equivalent",
        "configuration from flags (port, upstream), defaults",
        f"export OPENAI_BASE_URL=http://127.0.0.1:{port}/v1",
    ]
    async with client.get(process.url + "/readyz") as answer:
        assert answer.status == 200
    async with client.post(process.url + "/v1/responses", json=turn()) as answer:
        assert b"response.completed" in await answer.read()
    async with client.get(process.url + "/stats") as answer:
        stats = await answer.json()
    assert (stats["turns"]["full"], stats["reasons"]["new_conversation"]) == (1, 1)
    assert stats["connections"]["open"] == 1
    process.child.send_signal(signal.SIGTERM)
    code, out, err = await process.ended(within=5)
    assert (code, out) == (0, "")
    (line,) = [json.loads(text) for text in err.splitlines()]
    assert (line["event"], line["mode"], line["status"], line["model"]) == ("turn", "full", 200, "gpt-5")
    assert KEY not in err
    assert PROMPT not in err
    (closed,) = [entry for entry in simulator.journal if entry.kind == "close"]
    assert (closed.close_code, closed.closed_by) == (1000, "client")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_running_streams_finish(serve, client, number):
    """After a signal readiness fails at once, new turns get 503 with retry-after, and what runs is served to its end."""
    process = await serve()
    async with streaming(client, process, 60) as first, streaming(client, process, 60) as second:
        process.child.send_signal(number)
        await until_draining(client, process)
        async with client.post(process.url + "/v1/responses", json=turn()) as refused:
            assert refused.status == 503
            assert int(refused.headers["retry-after"]) > 0
        for stream in (first, second):
            assert (await stream.read()).rstrip().split(b"\n")[-2] == b"event: response.completed"
    assert (await process.ended(within=5))[0] == 0


async def test_a_stream_that_outlasts_the_drain_ends_as_a_failure(serve, client):
    """It gets one failure event and no clean end of its body, and the exit code is still 0."""
    process = await serve("--drain-timeout", "0.3")
    seen = bytearray()

    async def read(content):
        async for chunk in content.iter_any():
            seen.extend(chunk)

    async with streaming(client, process, 5000) as stream:
        process.child.send_signal(signal.SIGTERM)
        with pytest.raises(aiohttp.ClientError):
            await read(stream.content)
    assert seen.count(b"event: response.failed") == 1
    assert b"response.completed" not in seen
    code, _, err = await process.ended(within=5)
    assert code == 0
    assert json.loads(err.splitlines()[-1])["outcome"] != "ok"


async def test_a_second_signal_is_obeyed_within_a_second(serve, client):
    """The process does not wait for streams or sockets any more."""
    process = await serve("--drain-timeout", "60")
    async with streaming(client, process, 5000):
        process.child.send_signal(signal.SIGTERM)
        await until_draining(client, process)
        began = time.monotonic()
        process.child.send_signal(signal.SIGTERM)
        code, _, _ = await process.ended(within=5)
    assert time.monotonic() - began < 1.5  # a second, and what starting to wait takes on a busy machine
    assert code == 128 + signal.SIGTERM


async def test_the_token_is_asked_for_and_not_passed_on(serve, client, simulator, tmp_path):
    """With a token file, turns and statistics need the token; liveness does not; the upstream never sees it."""
    path = tmp_path / "token"
    path.write_text("t" * 32 + "\n")
    process = await serve("--token-file", str(path))
    for headers, status in (
        ({}, 401),
        ({"x-upwire-token": "wrong" * 8}, 401),
        ({"x-upwire-token": "t" * 32}, 200),
    ):
        async with client.get(process.url + "/stats", headers=headers) as answer:
            assert answer.status == status
        async with client.post(process.url + "/v1/responses", json=turn(), headers=headers) as answer:
            assert answer.status == status
            await answer.read()
    async with client.get(process.url + "/healthz") as answer:
        assert answer.status == 200
    assert len([entry for entry in simulator.journal if entry.kind == "create"]) == 1
    assert not [entry for entry in simulator.journal if "x-upwire-token" in entry.headers]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ca-file", "/nonexistent.pem", "--upstream", "https://h/v1"), "ca_file: there is no file"),
        (("--proxy", "socks4://h:1"), "must be an http, https, socks5"),
    ],
)
async def test_what_cannot_be_used_ends_the_start(options, words):
    """A wrong certificate file or proxy is one line and exit code 1, not a failure of the first turn."""
    process = await begin("--port", "0", *options)
    code, out, err = await process.ended(within=20)
    assert (code, out) == (1, "")
    assert words in err
    assert err.count("\n") == 1


async def until_draining(client, process):
    """Asks until readiness fails; the signal is on its way."""
    async with asyncio.timeout(5):
        while True:
            async with client.get(process.url + "/readyz") as answer:
                if answer.status == 503:
                    return
