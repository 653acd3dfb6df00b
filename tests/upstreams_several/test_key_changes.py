"""A key that is replaced while the gateway runs: new turns go with the new one, what was opened with the old one ends when it is idle."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from structlog.testing import capture_logs

from gateway.simulator import Options
from gateway.upstream.key import UpstreamKey
from tests.files import write
from tests.gateways import Api, running_gateway, running_simulator
from tests.upstreams_several.worlds import USER, converse, two_upstreams

OLD, NEW = "sk-canary-old", "sk-canary-new"
BOTH = Options(rounds=0, keys=frozenset({OLD, NEW}))


@pytest.fixture
def key_file(tmp_path):
    """A file with the old key."""
    path = tmp_path / "key"
    write(path, OLD + "\n")
    return path


async def until(holds, within=10.0):
    """Wait for something to be so."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


def keys_of(upstream):
    """The keys with which sockets were opened, in order."""
    return [entry.headers["authorization"].removeprefix("Bearer ") for entry in upstream.journal.opened()]


def open_with(key, upstream):
    """The sockets that were opened with this key and have not ended."""
    ended = {entry.connection for entry in upstream.journal.closed()}
    opened = zip(keys_of(upstream), upstream.journal.opened(), strict=True)
    return [entry for used, entry in opened if used == key and entry.connection not in ended]


async def test_idle_sockets_are_closed_without_a_request(key_file):
    """Nobody asks for anything: the file is looked at all the same, and sockets of other upstreams stay."""
    async with two_upstreams(second=BOTH, entry={"key_file": str(key_file)}, warm=1) as world:
        async with world.api() as one, world.api(second=True) as two:
            _, history = await converse(two)
            _, others = await converse(one)
            open_before = len(world.second.journal.opened())
            write(key_file, NEW)
            await until(lambda: len(world.second.journal.closed()) >= open_before)
            assert not world.main.journal.closed()
            told = await world.stats()
            assert told["connections"]["closed"]["key_changed"] >= open_before
            assert told["upstreams"]["second"]["connections"]["open"] == 0
            again = await two.create({"model": "gpt-5", "input": [*history, USER]})
            assert (again.status, again.mode, again.reason) == (200, "full", "new_conversation")
            assert (await one.create({"model": "gpt-5", "input": [*others, USER]})).mode == "delta"
            assert set(keys_of(world.second)[open_before:]) == {NEW}


async def test_a_running_turn_ends_on_its_socket(key_file):
    """It is not disturbed; its socket is closed when it has ended, and a turn beside it already has the new key."""
    slow = Options(rounds=0, keys=frozenset({OLD, NEW}), token_pace=0.1, words=30)
    async with two_upstreams(second=slow, entry={"key_file": str(key_file)}) as world:
        async with world.api(second=True) as one, world.api(second=True) as two, asyncio.TaskGroup() as group:
            running = group.create_task(one.create({"model": "gpt-5", "input": [USER], "stream": True}))
            await until(lambda: any(c.outcome == "running" for c in world.second.journal.creates("ws")))
            write(key_file, NEW)
            beside = await two.create({"model": "gpt-5", "input": "words 1"})
            assert beside.status == 200
            assert keys_of(world.second) == [OLD, NEW]
            assert not running.done() and not world.second.journal.closed()
            answer = await running
            assert answer.kinds[-1] == "response.completed"
            await until(lambda: len(world.second.journal.closed()) == 1)
        closed = (await world.stats())["connections"]["closed"]
        assert (closed["key_changed"], closed["error"], closed["lost"]) == (1, 0, 0)


@pytest.mark.parametrize("warm", [0, 2])
async def test_a_turn_that_opens_a_socket_with_the_old_key_leaves_none(key_file, warm):
    """Its body came in slowly: the key was read before it was replaced, the socket is opened after."""
    async with running_simulator(BOTH) as upstream:
        async with (
            running_gateway(upstream.url, upstream_key_file=str(key_file), warm=warm) as gateway,
            Api(gateway.url) as api,
        ):
            asked, gate = asyncio.Event(), asyncio.Event()
            body = json.dumps({"model": "gpt-5", "input": [USER]}).encode()

            async def slowly():
                asked.set()
                yield body[:10]
                await gate.wait()
                yield body[10:]

            async def late():
                # The body is asked for when the key has been read.
                async with api.session.post(
                    gateway.url + "/responses", data=slowly(), headers=api.headers, expect100=True
                ) as answer:
                    return answer.status, await answer.read()

            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(late())
                await asked.wait()
                write(key_file, NEW)
                assert (await api.create({"model": "gpt-5", "input": "other"})).status == 200
                gate.set()
            assert waiting.result()[0] == 200
            assert OLD in keys_of(upstream)
            await until(lambda: not open_with(OLD, upstream) and len(open_with(NEW, upstream)) == 1 + warm)
            stats = (await api.get("/../stats")).answer
            assert stats["connections"]["open"] == 1 + warm
            assert stats["connections"]["closed"]["key_changed"] >= 1


async def test_the_main_upstream_does_the_same(key_file):
    """Its key file is no other kind of key file."""
    async with running_simulator(BOTH) as upstream:
        async with (
            running_gateway(upstream.url, upstream_key_file=str(key_file)) as gateway,
            Api(gateway.url) as api,
        ):
            await converse(api)
            write(key_file, NEW)
            await until(lambda: len(upstream.journal.closed()) == 1)
            await converse(api)
            assert keys_of(upstream) == [OLD, NEW]


@pytest.mark.parametrize("text", ["", "two words", None])
async def test_a_key_that_cannot_be_used_changes_nothing(key_file, text):
    """The last one stays, its sockets too, and the log says so once, without it."""
    with capture_logs() as logged:
        async with two_upstreams(second=BOTH, entry={"key_file": str(key_file)}) as world:
            async with world.api(second=True) as api:
                _, history = await converse(api)
                if text is None:
                    key_file.unlink()
                else:
                    write(key_file, text)
                await until(lambda: any(line["event"] == "upstream_key_unusable" for line in logged))
                assert (await api.create({"model": "gpt-5", "input": [*history, USER]})).mode == "delta"
                assert not world.second.journal.closed()
                write(key_file, NEW)
                await until(lambda: len(world.second.journal.closed()) == 1)
    (line,) = (line for line in logged if line["event"] == "upstream_key_unusable")
    assert line["setting"] == "key_file of upstreams.second"
    assert OLD not in json.dumps(logged) and NEW not in json.dumps(logged)


def test_a_change_is_told_once_and_only_of_another_key(key_file):
    """A file that is written anew with the same key is no change."""
    key = UpstreamKey("", file=key_file)
    told = []
    key.on_change = lambda: told.append(key.latest)
    write(key_file, OLD + "  \n")
    assert (key.current(), told) == (OLD, [])
    write(key_file, NEW)
    assert (key.current(), key.current(), told) == (NEW, NEW, [NEW])
