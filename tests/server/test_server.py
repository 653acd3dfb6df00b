"""Listeners, readiness and the drain, with an application that needs no upstream."""

import asyncio
import contextlib
import signal
import socket
import time

import aiohttp
import pytest
from aiohttp import web

from gateway.admin import Feed, Metrics, admin_routes
from gateway.server import CannotListen, Gateway, Requests, Stop, bind, lifecycle, run, url_of
from gateway.stats import Stats


class Running:
    """A gateway around a fake API: POST /v1/slow streams until told to end."""

    def __init__(self):
        self.requests = Requests()
        self.stop = Stop()
        self.finish = asyncio.Event()
        self.started = asyncio.Event()
        self.broken_off = 0
        self.closed_with = None
        self.url = ""
        self.done = None

    async def slow(self, request):
        """One event now, one when told; says so if cancelled between."""
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first ")
        self.started.set()
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            await response.write(b"broken off")
            raise
        await response.write(b"last")
        return response

    async def close(self):
        """Notes how many requests still ran when the upstream sockets were closed."""
        self.closed_with = len(self.requests)


@pytest.fixture
async def start():
    """Starts a gateway that drains for the given time."""
    async with asyncio.TaskGroup() as group:
        begun = []

        async def begin(drain_timeout=30.0, close=None):
            running = Running()
            app = web.Application(middlewares=[running.requests.middleware])
            app.add_routes(
                admin_routes(
                    snapshot=lambda: {"turns": 1},
                    phase=lambda: running.requests.phase,
                    metrics=Metrics(Stats(), dict),
                    feed=Feed(),
                )
            )
            app.router.add_post("/v1/slow", running.slow)
            gateway = Gateway(
                requests=running.requests,
                runner=web.AppRunner(app, shutdown_timeout=1.0, access_log=None),
                close=close or running.close,
            )
            listeners = bind("127.0.0.1", 0)
            running.url = url_of("127.0.0.1", listeners)
            ready = asyncio.Event()
            running.done = group.create_task(
                run(gateway, listeners, drain_timeout=drain_timeout, stop=running.stop, ready=ready.set)
            )
            await ready.wait()
            begun.append(running)
            return running

        yield begin
        for running in begun:
            running.stop.ask()
            running.stop.ask()


@pytest.fixture
async def client():
    """A plain HTTP client."""
    async with aiohttp.ClientSession() as session:
        yield session


async def test_running_requests_finish_and_new_ones_are_refused(start, client):
    """During the drain readiness fails at once, liveness does not, new requests get 503, and the running stream ends whole."""
    gateway = await start()
    async with client.post(gateway.url + "/v1/slow") as stream:
        await gateway.started.wait()
        async with client.get(gateway.url + "/readyz") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ready"})
        assert gateway.stop.ask() is False
        await asyncio.sleep(0)
        async with client.get(gateway.url + "/readyz") as answer:
            assert (answer.status, await answer.json()) == (503, {"status": "draining"})
        async with client.get(gateway.url + "/healthz") as answer:
            assert answer.status == 200
        async with client.get(gateway.url + "/stats") as answer:
            assert await answer.json() == {"turns": 1}
        async with client.post(gateway.url + "/v1/slow") as answer:
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) > 0
            error = (await answer.json())["error"]
            assert (error["type"], error["code"]) == ("service_unavailable_error", "draining")
        assert len(gateway.requests) == 1
        gateway.finish.set()
        assert await stream.read() == b"first last"
    await asyncio.wait_for(gateway.done, 5)
    assert (gateway.broken_off, gateway.closed_with) == (0, 0)


async def test_what_outlasts_the_drain_is_cancelled(start, client, monkeypatch):
    """What does not end although it lost its upstream is cancelled, and never ends cleanly."""
    monkeypatch.setattr(lifecycle, "BREAK_OFF", 0.05)
    gateway = await start(drain_timeout=0.05)
    async with client.post(gateway.url + "/v1/slow") as stream:
        await gateway.started.wait()
        gateway.stop.ask()
        with pytest.raises(aiohttp.ClientPayloadError):
            await stream.read()
    await asyncio.wait_for(gateway.done, 5)
    assert (gateway.broken_off, gateway.closed_with) == (1, 0)


async def test_what_outlasts_the_drain_first_loses_its_upstream(start, client):
    """A stream whose upstream is closed may end by itself, and is not cancelled then."""
    running = []

    async def loses_upstream():
        for gateway in running:
            gateway.finish.set()

    gateway = await start(drain_timeout=0.05, close=loses_upstream)
    running.append(gateway)
    async with client.post(gateway.url + "/v1/slow") as stream:
        await gateway.started.wait()
        gateway.stop.ask()
        assert await stream.read() == b"first last"
    await asyncio.wait_for(gateway.done, 5)
    assert gateway.broken_off == 0


async def test_a_second_request_to_stop_does_not_wait(start, client):
    """Asked twice, the drain is cut short."""
    gateway = await start(drain_timeout=60)
    async with client.post(gateway.url + "/v1/slow") as stream:
        await gateway.started.wait()
        gateway.stop.ask(signal.SIGTERM)
        assert gateway.stop.ask(signal.SIGINT) is True
        began = time.monotonic()
        with pytest.raises(aiohttp.ClientError):
            await stream.read()
        await asyncio.wait_for(gateway.done, 5)
    assert time.monotonic() - began < 3
    assert gateway.stop.number == signal.SIGINT


async def test_stop_with_nothing_running_is_quick(start):
    """An idle gateway does not use up its drain time."""
    gateway = await start(drain_timeout=60)
    gateway.stop.ask()
    await asyncio.wait_for(gateway.done, 2)
    assert gateway.closed_with == 0


async def test_an_upstream_that_does_not_close_holds_nothing_up(start, monkeypatch):
    """Closing upstream sockets has a limit in time."""
    monkeypatch.setattr(lifecycle, "CLOSE", 0.05)
    given_up = asyncio.Event()

    async def hangs():
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    gateway = await start(close=hangs)
    gateway.stop.ask()
    await asyncio.wait_for(gateway.done, 5)
    assert given_up.is_set()


def test_a_port_in_use_is_named():
    """The error says which port, and what to do."""
    with contextlib.closing(bind("127.0.0.1", 0)[0]) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=rf"port {port} on 127\.0\.0\.1 is in use.*--port"):
            bind("127.0.0.1", port)


def test_an_unknown_host_is_named():
    """A host without an address here is an error of one line."""
    with pytest.raises(CannotListen, match="no address"):
        bind("no-such-host.invalid", 0)
    with pytest.raises(CannotListen, match="no such address"):
        bind("192.0.2.1", 0)


def test_localhost_listens_on_all_its_addresses_with_one_port():
    """Clients that resolve localhost to IPv6 or IPv4 reach the same port."""
    listeners = bind("localhost", 0)
    try:
        assert len({listener.getsockname()[1] for listener in listeners}) == 1
        addresses = {entry[4][0] for entry in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
        assert {listener.getsockname()[0] for listener in listeners} <= addresses
        assert url_of("localhost", listeners) == f"http://localhost:{listeners[0].getsockname()[1]}"
    finally:
        for listener in listeners:
            listener.close()


def test_ipv6_is_written_in_brackets():
    """A URL with an IPv6 host has brackets, with or without them in the setting."""
    with contextlib.closing(bind("127.0.0.1", 0)[0]) as listener:
        port = listener.getsockname()[1]
        assert url_of("::1", [listener]) == url_of("[::1]", [listener]) == f"http://[::1]:{port}"
