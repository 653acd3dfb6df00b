"""Starting a simulated upstream and a gateway in the test's own loop, and talking to either as a plain HTTP client does."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

import aiohttp

from gateway.server import Stop, assemble, bind, run, url_of
from gateway.settings import Settings
from gateway.simulator import Options, Simulator
from gateway.tasks import Tasks


@dataclass
class Running:
    """A gateway that answers at ``url`` (with ``/v1``)."""

    url: str
    gateway: object
    stop: Stop

    @property
    def root(self):
        return self.url.removesuffix("/v1")


@contextlib.asynccontextmanager
async def running_simulator(options=None, script=None):
    simulator = Simulator(options or Options(), script)
    await simulator.start()
    try:
        yield simulator
    finally:
        await simulator.stop()


@contextlib.asynccontextmanager
async def running_gateway(upstream, *, token=None, **settings):
    """A gateway in front of ``upstream`` (a base URL) on a free port; stopped, and its failures raised, at the end.

    The upstream is taken for the API itself unless a profile is named.
    """
    chosen = Settings(
        **{"upstream": upstream, "port": 0, "profile": "openai", "drain_timeout": 2.0, **settings}
    )
    gateway = assemble(chosen, token=token)
    listeners = bind(chosen.host, chosen.port)
    failures = []
    tasks = Tasks(lambda name, failure: failures.append((name, failure)))
    stop = Stop()
    started = __import__("asyncio").Event()
    work = tasks.spawn(
        run(gateway, listeners, drain_timeout=chosen.drain_timeout, stop=stop, ready=started.set),
        name="gateway",
    )
    await started.wait()
    try:
        yield Running(url_of(chosen.host, listeners) + "/v1", gateway, stop)
    finally:
        stop.ask()
        await work
        assert not failures


@dataclass
class Seen:
    """What a plain HTTP client saw of one answer."""

    status: int
    headers: dict
    raw: bytes
    answer: object
    events: list

    @property
    def mode(self):
        return self.headers.get("x-upwire-mode")

    @property
    def reason(self):
        return self.headers.get("x-upwire-reason")

    @property
    def kinds(self):
        return [event["type"] for event in self.events]


class Api:
    """A plain HTTP client of one base URL."""

    def __init__(self, url, key="sk-test", **headers):
        self.url = url
        self.headers = {"authorization": f"Bearer {key}", **headers}
        self.session = None

    async def __aenter__(self):
        self.session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=60)
        )
        return self

    async def __aexit__(self, *_):
        await self.session.close()

    async def create(self, body=None, *, data=None, headers=None, path="/responses"):
        """POST a body and read the whole answer."""
        raw = data if data is not None else json.dumps(body).encode()
        sent = {**self.headers, "content-type": "application/json", **(headers or {})}
        async with self.session.post(self.url + path, data=raw, headers=sent) as response:
            return await seen(response)

    async def get(self, path, **kwargs):
        async with self.session.get(self.url + path, headers=self.headers, **kwargs) as response:
            return await seen(response)


async def seen(response):
    """Read an answer to its end, as JSON or as an event stream."""
    raw = await response.read()
    events = []
    if response.content_type == "text/event-stream":
        events = [json.loads(part.partition(b"data: ")[2]) for part in raw.split(b"\n\n") if part]
        last = events[-1] if events else {}
        answer = last.get("response", last)
    else:
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Seen(response.status, headers, raw, answer, events)
