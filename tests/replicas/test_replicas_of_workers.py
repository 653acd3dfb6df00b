"""Two gateways of two processes each: whichever process of whichever gateway gets a turn, the conversation goes on."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateways import Api, running_simulator
from tests.replicas.pair import asked, grown
from tests.replicas.redis_servers import running_redis, shared_settings
from tests.serving import serving

pytestmark = pytest.mark.system


async def index_of(api):
    """What a gateway says of its index."""
    return (await api.get("/../stats")).answer["index"]


async def test_a_conversation_wanders_over_gateways_and_their_processes():
    """Each turn over a connection of its own, at one gateway and then the other: all but the first are deltas."""
    async with running_redis() as redis, running_simulator() as upstream:
        with shared_settings(redis.url) as shared:
            options = [
                "--upstream",
                upstream.url,
                "--profile",
                "openai",
                "--workers",
                "2",
                "--index-timeout",
                "1",
            ]
            options += ["--index", shared["index"], "--index-key-file", shared["index_key_file"]]
            async with serving(*options) as one, serving(*options) as two:
                history, modes = [{"role": "user", "content": "hello"}], []
                for number in range(8):
                    async with Api((one, two)[number % 2].url + "/v1") as api, asyncio.timeout(20):
                        while (before := await index_of(api))["state"] != "works":  # noqa: ASYNC110 (as below)
                            await asyncio.sleep(0.05)
                        answer = await api.create(asked(history))
                        while (await index_of(api))["written"] == before["written"]:  # noqa: ASYNC110 (it is asked over HTTP)
                            await asyncio.sleep(0.02)
                    assert answer.status == 200
                    modes.append(answer.mode)
                    history = grown(history, answer, f"go on {number}")
        assert modes == ["full"] + ["delta"] * 7
        assert all(len(frame.items) == 1 for frame in upstream.journal.creates("ws"))
