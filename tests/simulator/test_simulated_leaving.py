"""Clients that are gone before the simulated upstream could write to them are no failure of its own."""

import asyncio
import gc
import socket

import aiohttp
import pytest

from gateway.simulator import Simulator
from gateway.simulator.http_sinks import reset
from gateway.simulator.upstream import Upstream


async def test_a_client_that_is_gone_before_its_upgrade_is_answered(simulate, monkeypatch):
    """The connection breaks between the request and the 101; stopping raises nothing, and the next client is served."""
    number = Upstream.connection_number

    def then_gone(upstream, request):
        found = number(upstream, request)
        reset(request.transport)
        return found

    simulator = await simulate()
    async with aiohttp.ClientSession(headers={"authorization": "Bearer k"}) as session:
        with monkeypatch.context() as patch:
            patch.setattr(Upstream, "connection_number", then_gone)
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                await session.ws_connect(simulator.url + "/responses")
        async with session.ws_connect(simulator.url + "/responses") as socket:
            await socket.send_str('{"type":"response.create","model":"gpt-5","input":"a"}')
            assert (await socket.receive_json())["type"] == "response.created"
    await simulator.stop()


async def test_stopping_loses_no_connection_that_is_just_arriving():
    """Clients that connect while the upstream stops find it closed; nothing is left open behind it."""
    simulator = Simulator()
    await simulator.start()
    for pauses in range(12):
        with socket.create_connection(("127.0.0.1", simulator.port)):
            for _ in range(pauses):
                await asyncio.sleep(0)
            await simulator.stop()
            # A connection that nobody closed is reported, and so a failure of this test, when it is collected.
            gc.collect()
        await simulator.start(port=simulator.port)
    await simulator.stop()
