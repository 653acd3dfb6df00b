"""Clients that are gone before the simulated upstream could write to them are no failure of its own."""

import aiohttp
import pytest

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
