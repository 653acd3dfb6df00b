"""A fault of the gateway's own costs one turn, never a socket or the next turn."""

import aiohttp
import pytest

from gateway.store import Store
from tests.gateways import Api, running_gateway, running_simulator

BODY = {"model": "gpt-5", "input": [{"role": "user", "content": "hello"}], "store": False}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_cannot_be_remembered(monkeypatch, stream):
    """Its turn fails, its socket is closed, and the next turn is served as ever."""
    async with (
        running_simulator() as simulator,
        running_gateway(simulator.url, sockets=1, sockets_per_identity=1, log_level="error") as gateway,
        Api(gateway.url) as api,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Store, "add", lambda *_, **__: 1 / 0)
            if stream:
                with pytest.raises(aiohttp.ClientError):
                    await api.create({**BODY, "stream": True})
            else:
                assert (await api.create(BODY)).status == 500
        connections = (await api.get("/../stats")).answer["connections"]
        assert (connections["open"], connections["busy"]) == (0, 0)
        seen = await api.create(BODY)
        assert (seen.status, seen.mode) == (200, "full")
