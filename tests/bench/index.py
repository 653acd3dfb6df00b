"""What a shared index costs: ``python -m tests.bench.index`` (needs redis-server). Prints the table of deploy/sizing.md."""

from __future__ import annotations

import asyncio
import os
import statistics
import time

from gateway.conversation.fields import FieldFacts
from gateway.conversation.items import ItemFacts, Kind
from gateway.index.names import Deployment
from gateway.index.redis_server import RedisServer
from gateway.index.shared import SharedIndex
from gateway.store import Store, StoreLimits
from gateway.tasks import Tasks
from tests.replicas.redis_servers import SECRET, running_redis

CONVERSATIONS, TURNS = 20, 100
SENT, ANSWERED = 2, 3
"""Items of a turn."""
WHO = bytes(16)
FIELDS = FieldFacts(frozenset({"model", "tools", "instructions"}), bytes(16), bytes(16), truncates=False)


def item(*, named=False):
    """An item that nobody has seen before, with an id if the API made it."""
    return ItemFacts(Kind.ITEM, os.urandom(16), None, os.urandom(16) if named else None)


async def measure():
    """The rows of the table."""
    failures = []
    tasks = Tasks(lambda *failure: failures.append(failure))
    async with running_redis() as redis:
        one, other = (
            SharedIndex(
                RedisServer(redis.url), Deployment(SECRET.encode()), timeout=5.0, age=86400.0, tasks=tasks
            )
            for _ in range(2)
        )
        while not (one.answers and other.answers):  # noqa: ASYNC110 (nothing else tells)
            await asyncio.sleep(0.01)
        before = (await redis.client.info("memory"))["used_memory"]
        histories, told, began = [], [], time.process_time()
        store = Store(StoreLimits(10**6, 10**8, 10**6))
        for _ in range(CONVERSATIONS):
            base, history = None, []
            for number in range(TURNS):
                sent, answered = [item() for _ in range(SENT)], [item(named=True) for _ in range(ANSWERED)]
                base = store.add(
                    WHO, response_id="resp_" + os.urandom(24).hex(), base=base, sent=sent, answered=answered, fields=FIELDS,
                    stored=True, now=0.0,
                )  # fmt: skip
                start = time.perf_counter()
                one.tell(WHO, base)
                told.append(time.perf_counter() - start)
                history += [*sent, *answered]
                if number % 10 == 9:
                    await one.settled()
            histories.append(history)
        spent = time.process_time() - began
        stored = (await redis.client.info("memory"))["used_memory"] - before
        turns = CONVERSATIONS * TURNS
        rows = [
            ("Redis memory, each stored turn of 5 items", f"{stored / turns / 1000:.1f} KB"),
            ("telling, on the turn's way", f"{statistics.median(told) * 1e6:.0f} us"),
            ("telling, in all, sent in batches", f"{spent / turns * 1e6:.0f} us of a processor"),
        ]
        for count in (5, 20, 100):
            asked = [[*history[: count * (SENT + ANSWERED)], item()] for history in histories]
            rows.append((f"look-up that finds {count} turns", await _look_up(other, asked, found=True)))
        strange = [[item() for _ in range(100)] for _ in range(50)]
        rows.append(("look-up of 100 items that finds nothing", await _look_up(other, strange, found=False)))
        await one.close()
        await other.close()
    await tasks.close()
    assert not failures
    return rows


async def _look_up(index, requests, *, found):
    times = []
    for request in requests:
        start = time.perf_counter()
        assert bool(await index.find(WHO, request, ["model"])) is found
        times.append(time.perf_counter() - start)
    return f"{statistics.median(times) * 1000:.1f} ms"


if __name__ == "__main__":
    print("| measured | one takes |\n| --- | --- |")  # noqa: T201
    for name, value in asyncio.run(measure()):
        print(f"| {name} | {value} |")  # noqa: T201
