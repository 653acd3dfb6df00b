"""Life beside an application: together it starts and ends, whatever the network does, and it always says how it is."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from gateway import server
from gateway.server.supervisor import Supervisor
from gateway.settings import Settings
from gateway.simulator import Options, Simulator
from tests.gateways import Api, running_gateway, running_simulator
from tests.serving import begin, serving

BODY = {"model": "gpt-5", "store": False, "input": "words 2"}


def messages(manager):
    """What the service manager has been told so far."""
    told = []
    with contextlib.suppress(BlockingIOError):
        while True:
            told.append(manager.recv(4096).decode())
    return told


@pytest.fixture
def manager():
    """A service manager's socket, and the value of NOTIFY_SOCKET that leads to it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        # An abstract name, as containers get it.
        bound.bind("")
        bound.setblocking(False)
        yield bound, "@" + bound.getsockname()[1:].decode()


async def phase(client, process):
    """What readiness says."""
    async with client.get(process.url + "/readyz") as answer:
        return answer.status, (await answer.json())["status"]


async def until_draining(client, process):
    """Asks until readiness fails; the signal is on its way."""
    async with asyncio.timeout(5):
        while await phase(client, process) != (503, "draining"):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.01)


async def test_new_turns_are_served_for_the_grace_time():
    """After SIGTERM readiness is off at once, new turns are served until the grace is over, then refused, and what runs ends whole."""
    async with (
        running_simulator(Options(token_pace=0.02, reasoning=False)) as simulator,
        serving("--upstream", simulator.url, "--drain-grace", "1") as process,
        Api(process.url + "/v1") as api,
        aiohttp.ClientSession(headers=api.headers) as client,
    ):
        process.child.terminate()
        began = time.monotonic()
        await until_draining(client, process)
        assert (await api.create(BODY)).status == 200
        assert await phase(client, process) == (503, "draining")
        late = {"stream": True, **BODY, "input": "words 90"}
        async with client.post(process.url + "/v1/responses", json=late) as stream:
            assert stream.status == 200
            async with asyncio.timeout(5):
                while (refused := await api.create(BODY)).status == 200:  # noqa: ASYNC110 (another process)
                    await asyncio.sleep(0.02)
            assert time.monotonic() - began > 1
            assert (refused.status, refused.answer["error"]["code"]) == (503, "draining")
            assert b"response.completed" in (await stream.read())[-4000:]
        code, _, _ = await process.ended(within=5)
        closed = [entry for entry in simulator.journal if entry.kind == "close"]
    assert code == 0
    assert closed
    assert {(entry.close_code, entry.closed_by) for entry in closed} == {(1000, "client")}


async def test_a_second_signal_ends_the_grace():
    """Whoever presses twice does not wait."""
    async with serving("--drain-grace", "60") as process:
        process.child.send_signal(signal.SIGINT)
        async with aiohttp.ClientSession() as client:
            await until_draining(client, process)
        began = time.monotonic()
        process.child.send_signal(signal.SIGINT)
        await process.ended(within=5)
    assert time.monotonic() - began < 1.5


async def test_it_starts_without_a_network_and_recovers():
    """With nobody at the upstream's address it is ready, says 502, and serves deltas soon after the upstream came."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with running_gateway(f"http://127.0.0.1:{port}/v1") as gateway, Api(gateway.url) as api:
        assert (await api.get("/../readyz")).status == 200
        for _ in range(3):
            assert (await api.create(BODY)).status == 502
        simulator = Simulator(Options())
        await simulator.start(port=port)
        try:
            async with asyncio.timeout(10):
                while (first := await api.create(BODY)).mode != "full":
                    # Over plain HTTP it works at once; a socket is tried again after a second or two.
                    assert (first.status, first.mode) == (200, "http")
                    await asyncio.sleep(0.05)
            question = {"role": "user", "content": BODY["input"]}
            more = [question, *first.answer["output"], {"role": "user", "content": "words 2"}]
            assert (await api.create({**BODY, "input": more})).mode == "delta"
        finally:
            await simulator.stop()


async def test_a_name_that_does_not_resolve_is_no_reason_not_to_start():
    """A name server that is down must not keep the application from starting."""
    async with (
        serving("--upstream", "https://no-such-host.invalid/v1") as process,
        Api(process.url + "/v1") as api,
    ):
        async with aiohttp.ClientSession() as client:
            assert await phase(client, process) == (200, "ready")
        assert (await api.create(BODY)).status == 502


@pytest.mark.skipif(not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
async def test_ipv6():
    """On an IPv6 address it listens, prints a URL that works, and takes its Host."""
    async with (
        running_simulator() as simulator,
        serving("--host", "::1", "--upstream", simulator.url) as process,
    ):
        port = process.url.rpartition(":")[2]
        assert process.url == f"http://[::1]:{port}"
        assert process.lines[-1] == f"export OPENAI_BASE_URL=http://[::1]:{port}/v1"
        async with Api(process.url + "/v1") as api:
            assert (await api.create(BODY)).mode == "full"
        assert (await health("--host", "::1", "--port", port))[0] == 0


async def test_a_second_instance_is_told_what_to_do():
    """On the same port it ends with one line and leaves the first alone."""
    async with serving() as first:
        port = first.url.rpartition(":")[2]
        second = await begin("--port", port)
        code, out, err = await second.ended(within=20)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert f"port {port} on 127.0.0.1 is in use" in err
        assert "--port" in err
        async with aiohttp.ClientSession() as client:
            assert await phase(client, first) == (200, "ready")


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
async def test_the_service_manager_is_told(manager):
    """Ready when requests are answered, alive while the loop turns, stopping at the signal."""
    receiver, address = manager
    async with serving("--drain-grace", "0.5", NOTIFY_SOCKET=address, WATCHDOG_USEC="200000") as process:
        async with asyncio.timeout(5):
            told = messages(receiver)
            while told.count("WATCHDOG=1") < 3:
                await asyncio.sleep(0.02)
                told += messages(receiver)
        assert told.count(f"READY=1\nSTATUS=listening on {process.url}") == 1
        assert not [text for text in told if "STOPPING" in text]
        process.child.terminate()
        code, _, err = await process.ended(within=5)
        assert (code, err) == (0, "")
        told = messages(receiver)
        assert [text for text in told if text != "WATCHDOG=1"] == [
            "STOPPING=1\nSTATUS=finishing running turns"
        ]
        # A drain may take longer than the watchdog's patience.
        assert told.index("STOPPING=1\nSTATUS=finishing running turns") < len(told) - 1


@pytest.mark.parametrize(
    ("environment", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "2000000"}, None),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "2000000"}, 1.0),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}, 1.0),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, None),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "0"}, None),
        ({"NOTIFY_SOCKET": "vsock:2:1", "WATCHDOG_USEC": "2000000"}, None),
    ],
)
def test_signs_of_life_are_given_where_they_are_awaited(environment, interval):
    """Half of what the manager waits, and only where this very process is meant."""
    assert Supervisor(environment).interval == interval


def test_a_manager_that_is_gone_breaks_nothing(tmp_path):
    """A socket on which nobody listens any more is no failure."""
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("http://127.0.0.1:1")


async def health(*options, **environment):
    """Exit code and output of ``upwire health``."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "health", *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, **environment},
    )  # fmt: skip
    out, err = await asyncio.wait_for(child.communicate(), 20)
    return child.returncode, (out + err).decode()


async def test_the_program_is_its_own_probe(tmp_path):
    """It tells a living, a draining and a missing gateway apart, by TCP and by socket file, without the token."""
    (tmp_path / "token").write_text("t" * 32)
    path = f"unix:{tmp_path / 's'}"
    options = ("--listen", path, "--token-file", str(tmp_path / "token"), "--drain-grace", "60")
    async with serving(*options) as process:
        port = process.url.rpartition(":")[2]
        for ask in ((), ("--ready",)):
            assert await health("--port", port, *ask) == (
                0,
                f"{process.url}{'/readyz' if ask else '/healthz'} 200\n",
            )
            assert (await health("--port", "0", "--listen", path, *ask))[0] == 0
        process.child.terminate()
        async with aiohttp.ClientSession() as client:
            await until_draining(client, process)
        assert (await health(UPWIRE_PORT=port))[0] == 0
        assert await health("--ready", UPWIRE_PORT=port) == (1, f"{process.url}/readyz 503\n")
    assert await health("--port", port) == (
        1,
        f"{process.url}/healthz does not answer (ConnectionRefusedError)\n",
    )
    assert (await health("--port", "0", "--listen", path))[0] == 1
    assert (await health("--port", "0"))[0] == 2


async def test_a_gateway_that_hangs_is_not_alive():
    """A process that accepts but does not answer fails the probe in time."""
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        code, words = await health("--port", str(hangs.getsockname()[1]), "--timeout", "0.3")
    assert code == 1
    assert "does not answer (TimeoutError)" in words


async def test_liveness_under_many_streams():
    """While 200 streams run, liveness is answered within 50 ms (of 100 questions, five may meet a busy machine)."""
    async with (
        load(streams=200) as (upstream, start),
        serving("--upstream", upstream, "--sockets-per-identity", "256") as process,
    ):
        await start(process.url)
        host, _, port = process.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        times = []
        for _ in range(100):
            began = time.monotonic()
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await reader.readuntil(b"}")
            times.append(time.monotonic() - began)
            await asyncio.sleep(0.02)
        writer.close()
        async with aiohttp.ClientSession() as client, client.get(process.url + "/stats") as answer:
            seen = await answer.json()
    assert seen["turns"]["in_flight"] == 200
    assert sorted(times)[94] < 0.05


@contextlib.asynccontextmanager
async def load(streams):
    """A process with an upstream and clients: gives the upstream's URL, and what starts the streams and waits for their heads."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.server.streams", str(streams),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        url = json.loads(await asyncio.wait_for(child.stdout.readline(), 20))

        async def start(gateway):
            child.stdin.write(gateway.encode() + b"\n")
            assert json.loads(await asyncio.wait_for(child.stdout.readline(), 30)) == streams

        yield url, start
    finally:
        child.kill()
        await child.communicate()


async def test_a_failed_start_leaves_no_listener(tmp_path):
    """Where the rest cannot be put together, the port is free again and the socket file gone."""
    wrong = Settings(port=0, listen=(f"unix:{tmp_path / 's'}",), proxy="socks4://h:1")
    with pytest.raises(Exception, match="must be an http, https, socks5"):
        await server.serve(wrong)
    assert not list(tmp_path.iterdir())
