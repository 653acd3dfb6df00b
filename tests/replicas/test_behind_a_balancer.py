"""Two gateways as processes behind a balancer: who goes where, what becomes a delta, and what the death of one costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter

import aiohttp
import pytest

from gateway.simulator import Options
from tests.gateways import running_simulator, seen
from tests.ports import free_port
from tests.replicas.balancers import running_balancer
from tests.replicas.pair import grown
from tests.replicas.redis_servers import running_redis, shared_settings
from tests.serving import begin

pytestmark = pytest.mark.system
TRIES = 8


class Gateways:
    """Two ``upwire serve`` at fixed ports."""

    def __init__(self, upstream, settings):
        self.ports = [free_port(), free_port()]
        self._options = ["--upstream", upstream, "--profile", "openai", "--index-timeout", "1"]
        for name, value in settings.items():
            self._options += ["--" + name.replace("_", "-"), value]
        self.processes = [None, None]

    async def start(self, at):
        process = self.processes[at] = await begin("--port", str(self.ports[at]), *self._options)
        await process.ready()

    async def kill(self, at):
        process = self.processes[at]
        if process is not None and process.child.returncode is None:
            process.child.kill()
            await process.child.communicate()

    async def stats(self, at):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.ports[at]}/stats") as answer,
        ):
            return await answer.json()

    async def until_shared(self, at):
        async with asyncio.timeout(10):
            while (await self.stats(at))["index"]["state"] != "works":  # noqa: ASYNC110 (it is asked over HTTP)
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running_gateways(upstream, redis):
    with shared_settings(redis) as settings:
        gateways = Gateways(upstream, settings)
        try:
            await asyncio.gather(gateways.start(0), gateways.start(1))
            await asyncio.gather(gateways.until_shared(0), gateways.until_shared(1))
            yield gateways
        finally:
            await asyncio.gather(gateways.kill(0), gateways.kill(1))


class Caller:
    """One conversation, whose client asks again after a failure of the kind that is worth it, as SDKs do."""

    def __init__(self, number, url, *, store, session):
        self.number = number
        self.store = store
        self._url = url
        self._headers = {
            "authorization": f"Bearer sk-{number % 3}",
            **({"session_id": f"s{number}"} if session else {}),
        }
        self._history = [{"role": "user", "content": f"hello from {number}"}]
        self.said = []
        self.modes = []
        self.repeats = 0

    async def go_on(self, turns, *, pause=0.0):
        for _ in range(turns):
            answer = await self._ask()
            self.modes.append(answer.mode)
            self.said.append(
                {key: value for key, value in answer.answer["output"][-1].items() if key != "id"}
            )
            self._history = grown(self._history, answer, f"go on {len(self.said)}")
            await asyncio.sleep(pause)

    async def _ask(self):
        body = json.dumps({"model": "gpt-5", "store": self.store, "stream": True, "input": self._history})
        headers = {**self._headers, "content-type": "application/json"}
        for _ in range(TRIES):
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async with (
                    aiohttp.ClientSession() as session,
                    session.post(self._url + "/responses", data=body, headers=headers) as response,
                ):
                    found = await seen(response)
                    if found.status == 200 and found.events[-1]["type"] == "response.completed":
                        return found
                    assert found.status in {200, 502, 503}
            self.repeats += 1
            await asyncio.sleep(0.1)
        raise AssertionError("no answer")


async def straight(callers):
    """The same conversations, held directly."""
    async with running_simulator(Options(seed="balanced")) as upstream:
        others = [Caller(each.number, upstream.url, store=each.store, session=False) for each in callers]
        await asyncio.gather(*(each.go_on(len(one.said)) for each, one in zip(others, callers, strict=True)))
        return [each.said for each in others]


def counted(callers, begin, end):
    """Modes of the turns of one phase, of stored conversations and of others."""
    return {
        store: Counter(mode for each in callers if each.store is store for mode in each.modes[begin:end])
        for store in (True, False)
    }


@pytest.mark.parametrize("balancer", ["haproxy", "nginx"])
async def test_conversations_stay_where_they_are_and_survive_the_death_of_a_gateway(balancer, capsys):
    """Sticky, so all but first turns are deltas; after a kill stored ones go on as deltas elsewhere, others after one full turn."""
    async with (
        running_simulator(Options(seed="balanced", token_pace=0.002)) as upstream,
        running_redis() as redis,
        running_gateways(upstream.url, redis.url) as gateways,
        running_balancer(balancer, free_port(), *gateways.ports) as url,
    ):
        callers = [Caller(number, url, store=number % 2 == 0, session=True) for number in range(12)]
        async with asyncio.TaskGroup() as group:
            for each in callers:
                group.create_task(each.go_on(5))
        before = [await gateways.stats(at) for at in range(2)]
        async with asyncio.TaskGroup() as group:
            for each in callers:
                group.create_task(each.go_on(6, pause=0.05))
            await asyncio.sleep(0.15)
            await gateways.kill(0)
        await gateways.start(0)
        await gateways.until_shared(0)
        await asyncio.sleep(2.5)
        async with asyncio.TaskGroup() as group:
            for each in callers:
                group.create_task(each.go_on(4))
        after = [await gateways.stats(at) for at in range(2)]

    assert [each.said for each in callers] == await straight(callers)
    phases = {
        "both up": counted(callers, 0, 5), "one killed": counted(callers, 5, 11), "both up again": counted(callers, 11, 15),
    }  # fmt: skip
    with capsys.disabled():
        sys.stdout.write(
            f"\n{balancer}: 12 conversations, 15 turns each; repeats by clients: {sum(c.repeats for c in callers)}\n"
        )
        for name, found in phases.items():
            for store, modes in found.items():
                sys.stdout.write(
                    f"  {name:14} store {store!s:5} {modes['delta']:3} delta {modes['full']:3} full {modes['http']:3} http\n"
                )
    # Each gateway had its share, and no conversation was seen by both.
    assert all(stats["turns"]["total"] for stats in before)
    assert phases["both up"][True] == Counter(delta=24, full=6)
    # On a machine that is very busy a balancer may miss a gateway's answer once.
    assert phases["both up"][False]["delta"] >= 24 - 2
    assert sum(stats["index"]["hits"] for stats in before) <= 2
    # A stored conversation goes on as a delta wherever it goes; another one has a full turn each time that it has to move.
    assert phases["one killed"][True]["delta"] >= 36 - 2
    assert 36 - 2 * 6 <= phases["one killed"][False]["delta"] < 36
    assert phases["both up again"][True]["delta"] >= 24 - 1
    assert phases["both up again"][False]["delta"] >= 24 - 6
    assert after[1]["index"]["hits"] > 0
    assert after[0]["turns"]["total"] > 0


@pytest.mark.parametrize("balancer", ["haproxy", "nginx"])
async def test_what_decides_where_a_turn_goes(balancer):
    """Credential and session header together; a client that names no session has all its turns on one gateway."""
    async with (
        running_simulator() as upstream,
        running_redis() as redis,
        running_gateways(upstream.url, redis.url) as gateways,
        running_balancer(balancer, free_port(), *gateways.ports) as url,
    ):

        async def places(*headers):
            """How many of these callers went to each gateway."""
            before = [(await gateways.stats(at))["turns"]["total"] for at in range(2)]
            body = json.dumps({"model": "gpt-5", "input": "hello", "store": False})
            async with aiohttp.ClientSession() as session:
                for each in headers:
                    sent = {"content-type": "application/json", **each}
                    async with session.post(url + "/responses", data=body, headers=sent) as answer:
                        # The simulated upstream knows keys in one header only.
                        assert answer.status == (200 if "authorization" in each else 401)
            return [(await gateways.stats(at))["turns"]["total"] - before[at] for at in range(2)]

        one = {"authorization": "Bearer sk-one"}
        assert sorted(await places(*[one] * 8)) == [0, 8]
        for name in ("session_id", "session-id", "thread-id", "x-session-id"):
            assert 0 not in await places(*[{**one, name: f"{name} {n}"} for n in range(16)]), name
            assert sorted(await places(*[{**one, name: "the same"}] * 4)) == [0, 4]
        for name in ("authorization", "x-api-key", "api-key"):
            assert 0 not in await places(*[{name: f"Bearer sk-{n}"} for n in range(16)]), name
