"""Workers that are lost and cannot be replaced, or not at once: what their conversations and their streams see of it."""

import asyncio
import contextlib
import hashlib
import json
import os
import signal

import aiohttp
import pytest

from gateway.simulator import Options
from tests.gateways import running_simulator
from tests.serving import serving
from tests.workers.conversations import Talk, in_flight, stats, talk_all, until, workers_of
from tests.workers.running import running_workers

SLOW = Options(token_pace=0.02, reasoning=False)
DIGEST = "sha256:" + hashlib.sha256(b"sk-test").hexdigest()
TEAM = f'[alice]\nkeys = ["{DIGEST}"]\n'


@pytest.fixture
async def simulator():
    """An upstream."""
    async with running_simulator(Options(seed="lost")) as started:
        yield started


async def killed(running, count=2):
    """Kill one of the workers, and wait until it is gone."""
    before = workers_of(running.process.pid)
    assert len(before) == count
    os.kill(before[0], signal.SIGKILL)

    async def gone():
        return before[0] not in workers_of(running.process.pid)

    await until(gone)
    return before


async def silent(running):
    """The workers without a process, as the statistics say."""
    return (await stats(running.url.removesuffix("/v1")))["workers"]["silent"]


async def test_while_it_cannot_be_replaced_the_others_have_its_conversations(simulator, tmp_path):
    """A file that became unusable keeps the successor from starting: no turn waits for that, and it starts once it can."""
    key = tmp_path / "key"
    key.write_text("sk-of-the-gateway\n")
    async with running_workers(simulator.url, 2, upstream_key_file=key) as running:
        talks = [Talk(running.url.removesuffix("/v1"), f"hello {n}") for n in range(8)]
        await talk_all(talks, 2)
        key.unlink()
        await killed(running)
        loop = asyncio.get_running_loop()
        # The first try to replace it takes as long as a start.
        await talk_all(talks, 1)
        for _ in range(3):
            for talk in talks:
                began = loop.time()
                seen = await talk.turn()
                assert (seen.status, seen.mode) == (200, "delta")
                assert loop.time() - began < 1.5
        assert len(await silent(running)) == 1
        full = [sum(a.mode == "full" for a in talk.answers) for talk in talks]
        assert set(full) <= {1, 2} and 2 in full
        key.write_text("sk-of-the-gateway\n")

        async def back():
            return not await silent(running)

        await until(back, within=15)
        await talk_all(talks, 3)
        assert {answer.mode for talk in talks for answer in talk.answers[-2:]} == {"delta"}
    ends = [line["how"] for line in running.lines if line["event"] == "worker_ended"]
    assert len(ends) == 2 and ends[0] == "signal 9" and "key" in ends[1]


@pytest.mark.parametrize("written", ["no [toml", "[bob]\nkeys = []\n", TEAM.replace("alice", "mallory")])
async def test_a_successor_has_the_team_of_its_fellows(simulator, tmp_path, written):
    """What the file says by then counts only when it is read again, for all workers alike."""
    team = tmp_path / "team.toml"
    team.write_text(TEAM)
    async with running_workers(simulator.url, 2, team_file=team) as running:
        base = running.url.removesuffix("/v1")
        team.write_text(written)
        before = await killed(running)

        async def replaced():
            return len(set(workers_of(running.process.pid)) - set(before)) == 1 and not await silent(running)

        await until(replaced)
        talks = [Talk(base, f"hello {n}") for n in range(8)]
        await talk_all(talks, 2)
        told = (await stats(base))["identities"]
        assert {label: each["turns"]["total"] for label, each in told.items()} == {"alice": 16, "other": 0}
        if "mallory" in written:
            running.process.send_signal(signal.SIGHUP)

            async def renamed():
                await Talk(base, "again").turn()
                return "mallory" in (await stats(base))["identities"]

            await until(renamed)
    assert [line["how"] for line in running.lines if line["event"] == "worker_ended"] == ["signal 9"]


async def test_a_successor_goes_on_with_what_was_read_again(simulator, tmp_path):
    """Settings that were reloaded since the start are those of every later worker too."""
    config = tmp_path / "config.toml"
    config.write_text('mode = "auto"\n')
    async with running_workers(simulator.url, 2, config=config) as running:
        base = running.url.removesuffix("/v1")
        config.write_text('mode = "http"\n')
        running.process.send_signal(signal.SIGHUP)

        async def switched():
            return {(await Talk(base, f"hello {n}").turn()).mode for n in range(4)} == {"http"}

        await until(switched)
        before = await killed(running)

        async def replaced():
            return len(set(workers_of(running.process.pid)) - set(before)) == 1 and not await silent(running)

        await until(replaced)
        assert {(await Talk(base, f"hello {n}").turn()).mode for n in range(16)} == {"http"}


async def watched(url, number, *, stream):
    """One long turn: its status, what came of its body, and whether that was broken off."""
    body = {"model": "gpt-5", "stream": stream, "store": False, "input": f"words 80 {number}"}
    text, broken, status = b"", False, 0
    headers = {"authorization": "Bearer sk-test"}
    async with aiohttp.ClientSession(headers=headers) as session:
        with contextlib.suppress(aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            async with session.post(url + "/v1/responses", json=body) as answer:
                status = answer.status
                try:
                    async for piece in answer.content.iter_any():
                        text += piece
                except aiohttp.ClientPayloadError:
                    broken = True
    return status, text, broken


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_a_stream_whose_worker_is_killed_ends_in_the_right_shape(stream):
    """Whoever still has the client says how it ended: an event that continues the stream, or an error that says whose fault it is."""
    ended = []
    async with (
        running_simulator(SLOW) as simulator,
        serving("--upstream", simulator.url, "--profile", "openai", "--workers", "2") as process,
    ):
        for _ in range(8):
            running = asyncio.gather(*(watched(process.url, n, stream=stream) for n in range(16)))
            await in_flight(process.url, 16)
            await asyncio.sleep(0.2)
            os.kill(workers_of(process.child.pid)[0], signal.SIGKILL)
            for status, text, broken in await running:
                if status == 0:
                    # Its client was connected to the killed one.
                    continue
                if stream and status == 200:
                    events = [
                        json.loads(part.partition(b"data: ")[2]) for part in text.split(b"\n\n") if part
                    ]
                    whole = events and events[-1]["type"] == "response.completed"
                    assert broken != bool(whole)
                    if events and events[-1]["type"] == "response.failed":
                        ended.append(events)
                elif status == 200:
                    assert json.loads(text)["status"] == "completed"
                else:
                    assert status == 502
                    ended.append(json.loads(text)["error"])
                    assert ended[-1]["code"] == "worker_lost"

            async def both():
                return (
                    len(workers_of(process.child.pid)) == 2
                    and not (await stats(process.url))["workers"]["silent"]
                )

            await until(both)
            if ended:
                break
    assert ended
    if stream:
        for events in ended:
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            response = events[-1]["response"]
            assert response["id"] == events[0]["response"]["id"]
            assert (response["status"], response["error"]["code"]) == ("failed", "worker_lost")
