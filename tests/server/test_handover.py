"""SIGUSR2: a successor takes over while clients go on, and nothing of what runs is lost."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import aiohttp
import pytest

import gateway
from gateway.server import Stop, assemble, bind, lifecycle, run
from gateway.settings import Settings
from gateway.simulator import Options
from tests.gateways import Api, running_simulator, seen

KEY = "sk-test"


def request(items):
    """A streamed turn that the API does not store."""
    return {"model": "gpt-5", "store": False, "stream": True, "input": items}


def user(text):
    """A user's message."""
    return {"role": "user", "content": text}


def alive(process):
    """Whether a process runs; one that nobody has collected yet does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def until(what, within=20.0):
    """Wait until ``what()`` is true, and give it back."""
    async with asyncio.timeout(within):
        while not (found := what()):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.01)
    return found


class Line:
    """A gateway and its successors; all write into the same two files."""

    def __init__(self, folder):
        self.out, self.err = folder / "out", folder / "err"
        self.processes = []

    def events(self, name):
        """The lines of the log with this event."""
        lines = [json.loads(line) for line in self.err.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def urls(self):
        """Where each of them said that it listens."""
        return re.findall(r"(?m)^listening on (http\S+)$", self.out.read_text())

    async def begin(self, *options, folder=None, **environment):
        """Start the first one, in ``folder``; its URL."""
        with self.out.open("wb") as out, self.err.open("wb") as err:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", "serve", "--port", "0", "--profile", "openai", *options,
                stdout=out, stderr=err, env={**os.environ, **environment}, cwd=folder,
            )  # fmt: skip
        self.child = child
        self.processes.append(child.pid)
        return (await until(self.urls))[0]

    async def hand_over(self):
        """The newest one is asked for a successor, which answers when this returns."""
        count = len(self.processes)
        os.kill(self.processes[-1], signal.SIGUSR2)
        line = (await until(lambda: self.events("handed_over")[count - 1 :]))[0]
        self.processes.append(line["process"])

    async def end(self):
        """None of them is left."""
        for process in self.processes:
            if alive(process):
                os.kill(process, signal.SIGTERM)
        try:
            for process in self.processes:
                await until(lambda process=process: not alive(process))
        finally:
            for process in self.processes:
                if alive(process):
                    os.kill(process, signal.SIGKILL)
            await self.child.wait()


@contextlib.asynccontextmanager
async def a_line(out, *options, **environment):
    """A gateway that is ready, as ``(line, url)``; it and its successors print to files in ``out``."""
    line = Line(out)
    try:
        yield line, await line.begin(*options, **environment)
    finally:
        await line.end()


class Conversation:
    """A client that keeps its connections, and what came of its turns."""

    def __init__(self, api, *texts):
        self.api, self.texts = api, texts
        self.items, self.modes, self.answers = [], [], []
        self.asked = []

    async def talk(self, over):
        """Turns until it is ``over``."""
        while not over.is_set():
            number = len(self.modes)
            self.items = [*self.items, user(f"{self.texts[number % len(self.texts)]} ({number})")]
            answer = await self.api.create(request(self.items))
            assert answer.status == 200 and answer.kinds[-1] == "response.completed", answer.raw[-500:]
            self.modes.append(answer.mode)
            self.asked.append((self.items, said(answer.answer)))
            self.items = [*self.items, *answer.answer["output"]]

    async def check(self, direct):
        """Some answers, the last ones among them, are what the API itself says to the same request."""
        for items, text in [*self.asked[:-5:8], *self.asked[-5:]]:
            assert said((await direct.create(request(items))).answer) == text


def said(answer):
    """The text of an answer; it holds a digest of all that the model was shown."""
    return [
        part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]
    ]


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
async def test_two_restarts_under_load_lose_nothing(tmp_path, workers):
    """No request fails, no stream is cut, each restart costs each conversation one full turn, and all answers are right."""
    async with (
        running_simulator(Options(token_pace=0.004, reasoning=False)) as simulator,
        a_line(tmp_path, "--upstream", simulator.url, "--workers", workers) as (line, url),
        aiohttp.ClientSession() as fresh,
        contextlib.AsyncExitStack() as stack,
    ):
        over = asyncio.Event()
        refused = []

        async def knock():
            """A new connection for every request, one after the other."""
            count = 0
            while not over.is_set():
                headers = {"authorization": f"Bearer {KEY}", "connection": "close"}
                sent = {**request([user("words 2")]), "stream": False}
                async with fresh.post(f"{url}/v1/responses", json=sent, headers=headers) as answer:
                    count += 1
                    if answer.status != 200:
                        refused.append(await answer.text())
            return count

        async def long_stream():
            """One that begins before the first restart and ends after the second."""
            async with fresh.post(
                f"{url}/v1/responses",
                json=request([user("words 1600" if workers == "1" else "words 2500")]),
                headers={"authorization": f"Bearer {KEY}"},
            ) as answer:
                return await seen(answer)

        direct = await stack.enter_async_context(Api(simulator.url, key=KEY))
        apis = [await stack.enter_async_context(Api(url + "/v1", key=KEY)) for _ in range(3)]
        kinds = [("words 2",), ("words 2", "words 40"), ("words 90", "words 3")]
        talks = [Conversation(api, *texts) for api, texts in zip(apis, kinds, strict=True)]

        async def go_on():
            """Every conversation takes three more turns."""
            counts = [len(talk.modes) + 3 for talk in talks]
            await until(lambda: all(len(t.modes) >= c for t, c in zip(talks, counts, strict=True)))

        async with asyncio.TaskGroup() as group:
            for talk in talks:
                group.create_task(talk.talk(over))
            knocks, long = group.create_task(knock()), group.create_task(long_stream())
            for _ in range(2):
                await go_on()
                await line.hand_over()
            await go_on()
            assert not long.done()
            over.set()
        assert refused == []
        assert knocks.result() > 20
        assert long.result().kinds[-1] == "response.completed"
        for talk in talks:
            assert talk.modes.count("full") == 3 and set(talk.modes) == {"full", "delta"}, talk.modes
        await asyncio.gather(*(talk.check(direct) for talk in talks))
        assert line.urls() == [url] * 3
        assert line.events("failed") == [] and line.events("not_handed_over") == []
        await fresh.close()
        await stack.aclose()
        await until(lambda: not any(map(alive, line.processes[:2])))
        assert await line.child.wait() == 0
        assert alive(line.processes[2])


async def test_two_versions_side_by_side(tmp_path):
    """What is installed at the time of the signal serves all that is new, while the version before finishes its streams."""
    package = tmp_path / "app" / "gateway"
    shutil.copytree(Path(gateway.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    version = package / "__init__.py"
    version.write_text(version.read_text().replace(gateway.__version__, "1.0.1"))
    async with (
        running_simulator(Options(token_pace=0.01, reasoning=False)) as simulator,
        a_line(tmp_path, "--upstream", simulator.url, folder=package.parent) as (line, url),
        aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as client,
    ):

        async def running():
            async with client.get(f"{url}/stats") as answer:
                return (await answer.json())["version"]

        assert await running() == "1.0.1"
        async with client.post(f"{url}/v1/responses", json=request([user("words 300")])) as stream:
            assert b"response.created" in await stream.content.readline()
            version.write_text(version.read_text().replace("1.0.1", "1.0.2"))
            await line.hand_over()
            while await running() != "1.0.2":
                # A kept connection brings one more answer of the version before.
                pass
            assert alive(line.processes[0]) and not stream.content.at_eof()
            assert (await seen(stream)).kinds[-1] == "response.completed"


async def test_a_successor_that_fails_changes_nothing(tmp_path):
    """Where the file became wrong since, the first process says that no successor got ready, and serves on."""
    config = tmp_path / "config.toml"
    config.write_text("")
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        a_line(tmp_path, "--upstream", simulator.url, "--config", str(config)) as (line, url),
        Api(url + "/v1", key=KEY) as api,
    ):
        first = await api.create(request([user("hello")]))
        config.write_text("no_such_setting = 1")
        os.kill(line.processes[0], signal.SIGUSR2)
        (told,) = await until(lambda: line.events("not_handed_over"))
        assert "exit code 2" in told["why"]
        assert "no_such_setting" in line.err.read_text()
        history = [user("hello"), *first.answer["output"], user("more")]
        assert (await api.create(request(history))).mode == "delta"
        config.write_text("")
        await line.hand_over()
        again = await api.create(request(history))
        assert (again.status, again.headers["connection"]) == (200, "close")
        await api.session.close()
        await until(lambda: not alive(line.processes[0]))


async def test_a_unix_socket_survives(tmp_path):
    """Its file stays when the first process ends, is answered by the successor, and goes with that one."""
    path = tmp_path / "socket"
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        a_line(tmp_path, "--upstream", simulator.url, "--listen", f"unix:{path}") as (line, _),
    ):
        before = path.stat().st_ino
        await line.hand_over()
        await until(lambda: not alive(line.processes[0]))
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as client,
            client.get("http://localhost/stats") as answer,
        ):
            assert (await answer.json())["turns"]["total"] == 0
        assert path.stat().st_ino == before
    assert not path.exists()


async def test_who_is_watched_and_who_watches(tmp_path):
    """The service manager is told of the new main process, and a watcher of the dashboard finds it by coming again."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        told = []

        def heard(text):
            return any(text in each for each in told)

        # Its queue is short.
        asyncio.get_running_loop().add_reader(manager, lambda: told.append(manager.recv(4096).decode()))
        async with (
            running_simulator(Options(rounds=0)) as simulator,
            a_line(
                tmp_path,
                "--upstream",
                simulator.url,
                NOTIFY_SOCKET=str(tmp_path / "notify"),
                WATCHDOG_USEC="100000",
            ) as (line, url),
            aiohttp.ClientSession() as client,
            client.get(f"{url}/events") as events,
        ):
            await line.hand_over()
            await until(lambda: heard(f"MAINPID={line.processes[1]}\nREADY=1"))
            await events.read()
            async with client.get(f"{url}/events") as more:
                assert await more.content.readline()
                more.close()
            told.clear()
            await until(lambda: heard("WATCHDOG=1"))
            assert not any("STOPPING" in each for each in told)
        asyncio.get_running_loop().remove_reader(manager)


async def test_asked_to_end_while_a_successor_starts(tmp_path):
    """Both end: whoever stopped the gateway must not find another one running."""
    async with (
        running_simulator(Options(rounds=0)) as simulator,
        a_line(tmp_path, "--upstream", simulator.url) as (line, url),
    ):
        os.kill(line.processes[0], signal.SIGUSR2)
        await asyncio.sleep(0.05)
        os.kill(line.processes[0], signal.SIGTERM)
        assert await asyncio.wait_for(line.child.wait(), 20) == 0
        port = int(url.rpartition(":")[2])
        ends = time.monotonic() + 10

        def refused():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) != 0

        while not refused():
            assert time.monotonic() < ends
            await asyncio.sleep(0.05)
        if line.events("handed_over"):
            pytest.skip("the successor was quicker than the signal")


async def test_unused_connections_are_not_waited_for_for_ever(monkeypatch):
    """A process that handed over ends when the last request is long gone, also while a client keeps a connection open."""
    monkeypatch.setattr(lifecycle, "QUIET", 0.3)
    stop, ready = Stop(), asyncio.Event()
    async with running_simulator(Options(rounds=0)) as simulator, asyncio.timeout(10):
        parts = assemble(Settings(upstream=simulator.url, port=0), token=None)
        listeners = bind("127.0.0.1", 0)
        work = asyncio.gather(
            run(parts, listeners, drain_timeout=1.0, handover_timeout=60.0, stop=stop, ready=ready.set)
        )
        await ready.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", listeners[0].getsockname()[1])
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        stop.move()
        began = time.monotonic()
        await work
        assert 0.25 < time.monotonic() - began < 5
        assert (await reader.read()).endswith(b"}")
        writer.close()
