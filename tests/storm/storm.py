"""A storm: many conversations at once through the gateway, while everything that can fail does."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any
from unittest import mock

import aiohttp

from gateway import log
from gateway.pool import PoolLimits, upgrade
from gateway.simulator import Options, Simulator
from tests.gateways import running_gateway, running_simulator
from tests.replicas.redis_servers import running_redis, shared_settings
from tests.storm.client import CODINGS, Client
from tests.storm.hazards import HAZARDS, Arming
from tests.storm.talker import Talker
from tests.workers.running import running_workers

_ASSEMBLE = importlib.import_module("gateway.server.assemble")
TALKERS = 16
CALM = 0.55
"""Share of turns to which nothing happens."""
_BACKS_OFF = {"unreachable", "lost", "dropped"}
AFTERMATH = 0.1
"""Seconds after the end of an outage in which connections that died in it may still be met."""


@dataclass
class Outage:
    """A time in which all connections were cut, or the upstream was away."""

    kind: str
    began: float
    ended: float = float("inf")


@dataclass
class Storm:
    """All that happened, for the judge."""

    seed: int
    level: str
    simulator: Simulator
    asked: list[Any] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    arming: Arming | None = None
    records: list[Any] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    workers: int = 1


def weather(seed, match):
    """The upstream and the gateway's settings of a storm, drawn from its seed."""
    random = Random(f"{seed} weather")
    options = Options(
        seed=f"storm {seed}",
        token_pace=0.0005,
        max_age=random.choice([None, 2.0, 4.0]),
        survives_errors=random.choice([True, True, False]),
        any_error_evicts=random.choice([True, False]),
        zero_retention=random.choice([True, False, False, False]),
        notices=random.choice([True, False]),
        keepalives=random.choice([True, False]),
        obfuscation=random.choice([True, False]),
        setup_events=random.random() < 0.9,
        refuses_stream_options=random.choice([True, False]),
        terminal_output=random.choice(["filled", "filled", "empty", "missing", "null"]),
        journal_limit=1_000_000,
        compression=random.choice([True, False]),
    )
    settings = {
        "match": match or random.choice(["equivalent", "equivalent", "exact"]),
        "settings": random.choice(["delta", "delta", "full"]),
        "sockets_per_identity": random.choice([5, 10, 16, 32]),
        "socket_wait": random.choice([0.05, 0.25]),
        "conversations": random.choice([150, 10_000]),
        "warm": random.choice([0, 0, 1, 2]),
        "ping_interval": 0.5,
        "ping_timeout": 0.75,
        "write_timeout": 1.0,
        "dial_timeout": 2.0,
        "upgrade_memory": 0.1,
        "drain_timeout": 5.0,
    }
    return options, settings


async def run_storm(seed, turns, *, match=None, replicas=1, workers=1):
    """Run ``turns`` turns and give all that is to be judged.

    With several ``replicas`` each turn goes to any of them; they share a Redis, which has its own troubles. Several ``workers`` are
    processes of one gateway, which a turn meets by chance; their waits are those of life.
    """
    options, settings = weather(seed, match)
    async with running_simulator(options) as simulator:
        storm = Storm(seed, settings["match"], simulator, workers=workers)
        storm.arming = Arming(simulator.faults)
        with _watched(storm):
            began = asyncio.get_running_loop().time()
            async with contextlib.AsyncExitStack() as stack:
                redis = None
                if replicas > 1:
                    redis = await stack.enter_async_context(running_redis())
                    settings |= stack.enter_context(shared_settings(redis.url))
                if workers > 1:
                    gateways = [
                        await stack.enter_async_context(running_workers(simulator.url, workers, **settings))
                    ]
                else:
                    gateways = [
                        await stack.enter_async_context(running_gateway(simulator.url, **settings))
                        for _ in range(replicas)
                    ]
                await _Run(storm, gateways, turns, redis).play()
                storm.stats = _summed([await _until_quiet(storm, gateway) for gateway in gateways])
            if workers > 1:
                _read(storm, gateways[0].lines)
            storm.seconds = asyncio.get_running_loop().time() - began
    return storm


@contextlib.contextmanager
def _watched(storm):
    """Everything that the gateway would log, kept for the judge; and its waits at about twenty times the speed of life."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: storm.failures.append(f"loop: {context.get('message')}"))
    try:
        with (
            mock.patch.object(
                log, "failed", lambda what, failure: storm.failures.append(f"{what}: {failure!r}")
            ),
            mock.patch.object(log, "turn_line", storm.records.append),
            mock.patch.object(upgrade, "_BACKOFF", 0.05),
            mock.patch.object(upgrade, "_BACKOFF_CAP", 1.0),
            mock.patch.object(_ASSEMBLE, "PoolLimits", partial(PoolLimits, forgets_for=0.3)),
        ):
            yield
    finally:
        loop.set_exception_handler(None)


class _Run:
    """The turns of one storm, counted over all conversations, and the outages among them."""

    def __init__(self, storm, gateways, turns, redis):
        self._storm = storm
        self._gateways = gateways
        self._redis = redis
        self._turns = turns
        self._left = turns
        self._loop = asyncio.get_running_loop()
        random = Random(f"{storm.seed} outages")
        kinds = ["restart", "reset all", "close all"] * (turns // 900 + 1)
        self._outages = [
            (int(turns * (at + random.random()) / len(kinds)), kind) for at, kind in enumerate(kinds)
        ]

    async def play(self):
        async with asyncio.TaskGroup() as tasks:
            for number in range(TALKERS):
                tasks.create_task(self._talk(number))
            tasks.create_task(self._world())

    async def _talk(self, number):
        storm = self._storm
        talker = Talker(number, storm.seed, stored_can_reload=not storm.simulator.options.zero_retention)
        random = Random(f"{storm.seed} client {number}")
        # Together the talkers meet every hazard, in an order drawn from the seed, again and again.
        order = Random(f"{storm.seed} hazards").sample(HAZARDS, len(HAZARDS))
        hazards = itertools.islice(itertools.cycle(order), number * len(order) // TALKERS, None)
        coding = random.choice([None, None, *CODINGS])
        async with contextlib.AsyncExitStack() as stack:
            # Forks are asked at the same time, over connections of their own.
            clients = [
                [
                    await stack.enter_async_context(
                        Client(
                            gateway.url,
                            talker.key,
                            coding,
                            f"{storm.seed} {number} {at}",
                            anew=storm.workers > 1,
                        )
                    )
                    for gateway in self._gateways
                ]
                for at in range(2)
            ]
            route = Random(f"{storm.seed} route {number}")
            while self._left > 0:
                asks = [talker.ask(history, main=at == 0) for at, history in enumerate(talker.move())]
                self._left -= len(asks)
                for asked in asks:
                    self._endanger(talker, asked, hazards)
                await asyncio.gather(
                    *(
                        self._ask(route.choice(each), asked, plain=random.random() < 0.05)
                        for each, asked in zip(clients, asks, strict=False)
                    )
                )
                talker.take(asks[0])
                lost = asks[0].answer.outcome in _BACKS_OFF
                await asyncio.sleep(random.uniform(0.1, 0.3) if lost else random.uniform(0, 0.03))

    def _endanger(self, talker, asked, hazards):
        if talker.random.random() < CALM:
            return
        hazard = next(hazards)
        simulator = self._storm.simulator
        if hazard.forget:
            if talker.chains or not talker.may_forget or talker.last_id is None:
                return
            simulator.forget(talker.last_id)
        asked.hazard = hazard
        self._storm.arming.arm(asked.turn, hazard, client_parent=asked.body.get("previous_response_id"))

    async def _ask(self, client, asked, *, plain):
        leave = asked.hazard.leave if asked.hazard is not None else ""
        asked.began = self._loop.time()
        asked.answer = await client.post(asked.body, asked.turn, leave=leave, plain=plain)
        asked.ended = self._loop.time()
        asked.expected = self._storm.simulator.digest_of(asked.context)
        self._storm.asked.append(asked)

    async def _world(self):
        simulator = self._storm.simulator
        for at, kind in self._outages:
            while self._turns - self._left < at:  # noqa: ASYNC110 (turns are counted in sixteen places)
                await asyncio.sleep(0.01)
            outage = Outage(kind, self._loop.time())
            self._storm.outages.append(outage)
            if kind == "restart":
                port = simulator.port
                await simulator.stop()
                await simulator.start(port=port)
            elif kind == "reset all":
                simulator.reset_connections()
            else:
                await simulator.close_sockets(1012)
            outage.ended = self._loop.time() + AFTERMATH
            if self._redis is not None:
                # No excuse for any turn: what the index does is nobody's affair but the gateways'.
                await {
                    "restart": self._redis.pause,
                    "reset all": self._redis.wipe,
                    "close all": self._redis.hang_up,
                }[kind]()


def _read(storm, lines):
    """What the processes of a gateway logged: its turns, and failures of its own."""
    for line in lines:
        if line["event"] == "turn":
            storm.records.append(line)
        elif line["level"] not in {"debug", "info", "warning"}:
            storm.failures.append(f"{line['event']}: {line}")


def _summed(snapshots):
    """The statistics of all replicas together, as far as they are counts."""
    first = snapshots[0]
    if isinstance(first, dict):
        return {name: _summed([each[name] for each in snapshots]) for name in first}
    return sum(snapshots) if isinstance(first, int) else first


async def _until_quiet(storm, gateway):
    """The statistics when nothing runs any more."""
    loop = asyncio.get_running_loop()
    patience = loop.time() + 10
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(gateway.root + "/stats") as answer:
                found = await answer.json()
            if not found["turns"]["in_flight"] and not found["connections"]["busy"]:
                return found
            if loop.time() > patience:
                storm.failures.append("turns or sockets did not come to rest")
                return found
            await asyncio.sleep(0.02)
