"""Statistics, metrics, the dashboard's stream and ``upwire tail``: whichever worker answers tells of all of them."""

import asyncio
import contextlib
import json
import os
import signal
import sys

import aiohttp
import pytest

from gateway.simulator import Options
from tests.gateways import running_simulator
from tests.serving import serving
from tests.workers.conversations import Talk, stats, talk_all, until, workers_of


@pytest.fixture
async def process():
    """Two workers in front of a simulated upstream."""
    async with running_simulator(Options(seed="workers")) as simulator:
        async with serving("--upstream", simulator.url, "--profile", "openai", "--workers", "2") as started:
            yield started


async def fetched(url):
    """A text, over a connection of its own."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as answer:
        assert answer.status == 200
        return await answer.text()


def values(text):
    """Every sample of a scrape by its name and labels."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def test_every_worker_gives_the_same_sums(process):
    """Counters are those of all, histograms count every turn once, and percentiles are of all durations."""
    await talk_all([Talk(process.url, f"hello {n}") for n in range(8)], 4)
    for _ in range(6):
        found = await stats(process.url)
        assert (found["turns"]["total"], found["turns"]["full"], found["turns"]["delta"]) == (32, 8, 24)
        assert found["conversations"]["known"] == 32
        assert found["connections"]["open"] == len(found["sockets"])
        latency = found["latency_ms"]["duration"]
        assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"]
        scraped = values(await fetched(process.url + "/metrics"))
        for mode, count in (("full", 8), ("delta", 24)):
            assert scraped[f'upwire_turns_total{{mode="{mode}",model="gpt-5",outcome="ok"}}'] == count
            assert scraped[f'upwire_turn_duration_seconds_count{{mode="{mode}"}}'] == count
            assert scraped[f'upwire_turn_duration_seconds_bucket{{le="+Inf",mode="{mode}"}}'] == count
        assert scraped["upwire_added_latency_seconds_count"] == 32
        assert scraped["process_resident_memory_bytes"] > 60e6
    one, other = [values(await fetched(process.url + "/metrics")) for _ in range(2)]
    assert one["process_start_time_seconds"] == other["process_start_time_seconds"]
    assert other["process_cpu_seconds_total"] >= one["process_cpu_seconds_total"]


async def test_a_worker_that_does_not_answer_is_named(process):
    """The others' numbers come in time, without it; later it is counted again."""
    await talk_all([Talk(process.url, f"hello {n}") for n in range(16)], 1)
    stopped = workers_of(process.child.pid)[0]
    os.kill(stopped, signal.SIGSTOP)
    try:

        async def answered():
            # A connection may come in at the one that is stopped.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(3):
                    return await stats(process.url)

        found = await until(answered, within=30)
        assert found["workers"]["silent"] == [0]
        assert found["turns"]["total"] < 16
    finally:
        os.kill(stopped, signal.SIGCONT)
    found = await stats(process.url)
    assert (found["workers"]["silent"], found["turns"]["total"]) == ([], 16)


async def test_who_watches_one_worker_sees_the_turns_of_all(process):
    """The stream begins with all recent turns and goes on with each new one, once, in the order in which they ended."""
    talks = [Talk(process.url, f"hello {n}") for n in range(6)]
    await talk_all(talks, 2)
    shown = []
    async with aiohttp.ClientSession() as session, session.get(process.url + "/events") as stream:
        kind = ""

        async def see(count):
            nonlocal kind, shown
            async for line in stream.content:
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    told = json.loads(line[6:])
                    if kind == "recent":
                        shown = told["turns"]
                        assert sum(p["delta"] + p["full"] for p in told["history"]) >= len(shown)
                    elif kind == "turn":
                        shown.append(told)
                    elif kind == "stats":
                        assert told["workers"]["count"] == 2
                if len(shown) >= count:
                    return

        async with asyncio.timeout(10):
            await see(12)
            await talk_all(talks, 2)
            await see(24)
    numbers = [turn["n"] for turn in shown]
    assert len(numbers) == 24
    assert numbers == sorted(set(numbers))


async def test_tail_prints_the_turns_of_all_workers(process):
    """``upwire tail`` shows the last turns of both."""
    tail = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "tail", "--url", process.url,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        talks = [Talk(process.url, f"hello {n}") for n in range(16)]
        await talk_all(talks, 1)
        seen = b""
        async with asyncio.timeout(15):
            while seen.count(b"new_conversation") < 10:
                piece = await tail.stdout.read(4096)
                assert piece, (await tail.stderr.read()).decode()
                seen += piece
    finally:
        tail.terminate()
        await tail.communicate()
    per_worker = {socket["worker"] for socket in (await stats(process.url))["sockets"]}
    assert per_worker == {0, 1}
