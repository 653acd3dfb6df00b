"""The life of several workers: where they listen, what the service manager hears, how they are replaced as a whole."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import tempfile
from pathlib import Path

import aiohttp
import pytest

from gateway.simulator import Options
from tests.gateways import running_simulator, seen
from tests.serving import begin, serving
from tests.workers.conversations import Talk, in_flight, lives, status_of, talk_all, until, workers_of

SLOW = Options(token_pace=0.02, reasoning=False)
KEY = {"authorization": "Bearer sk-test"}


@pytest.fixture
async def simulator():
    """An upstream."""
    async with running_simulator(Options(seed="workers")) as started:
        yield started


def named(upstream, *options):
    """Options of two workers."""
    return "--upstream", upstream.url, "--profile", "openai", "--workers", "2", *options


async def test_the_lines_at_the_start_name_the_workers(simulator):
    """They are those of one process, and one more."""
    async with serving(*named(simulator)) as process:
        assert "workers 2" in process.lines
        assert process.lines[1] == f"listening on {process.url}"
        assert process.lines[-1] == f"export OPENAI_BASE_URL={process.url}/v1"


async def test_all_workers_listen_on_a_unix_socket_and_on_every_address(simulator):
    """A conversation over a socket file and over both addresses of localhost stays one conversation."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "upwire.sock")
        async with serving(*named(simulator, "--host", "localhost", "--listen", f"unix:{path}")) as process:
            port = process.url.rpartition(":")[2]
            found = await asyncio.get_running_loop().getaddrinfo(
                "localhost", int(port), type=socket.SOCK_STREAM
            )
            hosts = {f"[{entry[4][0]}]" if ":" in entry[4][0] else entry[4][0] for entry in found}
            for number in range(4):
                talk = Talk(process.url, f"hello {number}")
                await talk.turn()
                for host in hosts:
                    assert (await talk.turn(url=f"http://{host}:{port}")).mode == "delta"
                for _ in range(3):
                    talk.history.append({"role": "user", "content": "over a file"})
                    body = {**talk.fields, "input": talk.history}
                    connector = aiohttp.UnixConnector(path)
                    async with aiohttp.ClientSession(connector=connector, headers=KEY) as session:
                        async with session.post("http://localhost/v1/responses", json=body) as answer:
                            told = await seen(answer)
                    assert told.mode == "delta"
                    talk.history += told.answer["output"]
            process.child.send_signal(signal.SIGTERM)
            assert (await process.ended(within=8))[0] == 0
        assert not os.path.exists(path)  # noqa: ASYNC240, PTH110 (nothing else runs)


async def test_the_service_manager_hears_of_all_workers_once(simulator):
    """READY comes when every worker answers, STOPPING at the end, and only from the parent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")
        manager.setblocking(False)
        manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        name = "@" + manager.getsockname()[1:].decode()
        async with serving(*named(simulator), NOTIFY_SOCKET=name) as process:
            assert len(workers_of(process.child.pid)) == 2
            process.child.send_signal(signal.SIGTERM)
            assert (await process.ended(within=8))[0] == 0
        told = []
        with contextlib.suppress(BlockingIOError):
            while True:
                text, ancillary, _, _ = manager.recvmsg(4096, 128)
                told.append((text.decode().partition("\n")[0], int.from_bytes(ancillary[0][2][:4], "little")))
        assert told == [("READY=1", process.child.pid), ("STOPPING=1", process.child.pid)]


async def test_a_killed_worker_cuts_only_what_it_ran():
    """Streams of the killed worker break so that nobody takes them for whole; all others end whole."""
    async with running_simulator(SLOW) as simulator, serving(*named(simulator)) as process:

        async def watch(number):
            body = {"model": "gpt-5", "stream": True, "store": False, "input": f"words 80 {number}"}
            text, broken = b"", False
            async with aiohttp.ClientSession(headers=KEY) as session:
                try:
                    async with session.post(process.url + "/v1/responses", json=body) as answer:
                        assert answer.status in {200, 502}
                        async for piece in answer.content.iter_any():
                            text += piece
                except aiohttp.ClientError:
                    broken = True
            return b"event: response.completed" in text, broken or answer.status == 502

        async def both():
            return len(workers_of(process.child.pid)) == 2

        seen = set()
        for _ in range(8):
            running = asyncio.gather(*map(watch, range(16)))
            await in_flight(process.url, 16)
            os.kill(workers_of(process.child.pid)[0], signal.SIGKILL)
            ends = await running
            assert all(whole != broken for whole, broken in ends)
            seen |= {whole for whole, _ in ends}
            await until(both)
            if seen == {True, False}:
                break
            # The system gave it all connections, or it had all conversations: once more.
        assert seen == {True, False}

        talks = [Talk(process.url, f"words 2 {n}") for n in range(8)]
        await talk_all(talks, 2)
        assert {answer.mode for talk in talks for answer in talk.answers[1:]} == {"delta"}


async def test_a_successor_takes_over_from_all_workers():
    """After SIGUSR2 other workers answer on the same port, what runs ends whole, and no request is refused on the way."""
    async with running_simulator(SLOW) as simulator, serving(*named(simulator)) as process:
        before = workers_of(process.child.pid)
        running = asyncio.gather(*(Talk(process.url, f"words 60 {n}").turn() for n in range(4)))
        await in_flight(process.url, 4)
        process.child.send_signal(signal.SIGUSR2)
        successor = 0
        while not successor:
            line = json.loads(await asyncio.wait_for(process.child.stderr.readline(), 20))
            successor = line.get("process", 0) if line["event"] == "handed_over" else 0
            assert await status_of(process.url + "/healthz") == 200
        try:
            assert {answer.answer["status"] for answer in await running} == {"completed"}
            talk = Talk(process.url, "words 2")
            assert [(await talk.turn()).mode for _ in range(3)] == ["full", "delta", "delta"]
            after = workers_of(successor)
            assert len(after) == 2
            assert not set(after) & set(before)

            async def gone():
                return not any(map(lives, before))

            await until(gone)
        finally:
            os.kill(successor, signal.SIGTERM)
        assert (await process.ended(within=8))[0] == 0


async def test_a_worker_that_hangs_is_killed_at_the_second_signal(simulator):
    """A worker that takes no part in the drain does not outlive the gateway."""
    async with serving(*named(simulator)) as process:
        stopped, other = workers_of(process.child.pid)
        os.kill(stopped, signal.SIGSTOP)
        try:
            process.child.send_signal(signal.SIGTERM)

            async def drained():
                return not lives(other)

            await until(drained)
            process.child.send_signal(signal.SIGTERM)
            code, _, _ = await process.ended(within=5)
            assert code == 128 + signal.SIGTERM
            assert not lives(stopped)
        finally:
            if lives(stopped):
                os.kill(stopped, signal.SIGKILL)


async def test_a_signal_before_all_workers_are_ready_ends_all(simulator):
    """Nothing is waited for, and no worker is left."""
    process = await begin("--port", "0", *named(simulator))

    async def started():
        return len(workers_of(process.child.pid)) == 2

    await until(started)
    workers = workers_of(process.child.pid)
    process.child.send_signal(signal.SIGTERM)
    code, out, err = await process.ended(within=8)
    assert (code, out) == (0, "")
    assert "Unclosed" not in err and "Traceback" not in err
    assert not any(map(lives, workers))


async def test_too_few_workers_are_a_configuration_error():
    """Zero is told from one."""
    process = await begin("--port", "0", "--workers", "0")
    code, _, err = await process.ended(within=10)
    assert code != 0
    assert "workers" in err
