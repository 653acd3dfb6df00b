"""A response that is deleted at one gateway is continued at none, also where its conversation is held already."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gateway.simulator import Options
from tests.documents.places import ROOT
from tests.gateways import running_simulator
from tests.ports import free_port
from tests.replicas.pair import asked, grown, running_pair
from tests.replicas.redis_servers import running_redis

pytestmark = pytest.mark.system
HELLO = [{"role": "user", "content": "hello"}]


@contextlib.asynccontextmanager
async def replicas(url, **settings):
    """An upstream and two replicas."""
    async with (
        running_simulator(Options(seed="deleted")) as upstream,
        running_pair(upstream.url, url, index_timeout=1.0, **settings) as pair,
    ):
        yield upstream, pair


async def wandered(pair, turns=4):
    """A conversation that both replicas hold: its history, and the ids of its responses."""
    history, ids = HELLO, []
    for number in range(turns):
        seen = await pair.create(asked(history))
        ids.append(seen.answer["id"])
        history = grown(history, seen, f"go on {number}")
    assert seen.mode == "delta"
    return history, ids


async def delete(pair, response_id, at):
    """As a client does; by what was seen upstream it is gone."""
    api = pair.apis[at]
    async with api.session.delete(f"{api.url}/responses/{response_id}", headers=api.headers) as answer:
        assert answer.status == 200


async def known(pair, at):
    """How many responses a replica could continue."""
    return (await pair.apis[at].get("/../stats")).answer["conversations"]["known"]


async def until_none(pair, at, within=10.0):
    """Wait until a replica could continue nothing."""

    async def none():
        return not await known(pair, at)

    await until(none, within)


@pytest.mark.parametrize("which", [0, -1], ids=["the first", "the last"])
async def test_who_holds_the_conversation_hears_of_it(which):
    """It goes on in full there, whichever response of the chain was deleted."""
    async with running_redis() as redis, replicas(redis.url) as (upstream, pair):
        history, ids = await wandered(pair)
        assert await known(pair, 0) and await known(pair, 1)
        await delete(pair, ids[which], at=1)
        if which == 0:
            await until_none(pair, 0)
            seen = await pair.create(asked(history), at=0)
            assert (seen.mode, seen.reason) == ("full", "new_conversation")
        else:
            # What stands before it may be continued.
            async def one_less():
                return await known(pair, 0) == len(ids) - 1

            await until(one_less)
            seen = await pair.create(asked(history), at=0)
            assert seen.status == 200
            assert upstream.journal.creates("ws")[-1].body.get("previous_response_id") in (None, *ids[:-1])


async def test_a_deletion_while_redis_is_down_is_told_when_it_is_back():
    """Whoever deleted it keeps it in mind; the others hear of it, and nobody finds it in the index."""
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        async with running_redis(port=port) as redis:
            _, pair = await stack.enter_async_context(replicas(redis.url))
            history, ids = await wandered(pair)
        await pair.state("down")
        await delete(pair, ids[0], at=1)
        assert await known(pair, 0)
        async with running_redis(port=port):
            await pair.state("works")
            await until_none(pair, 0)
            seen = await pair.create(asked(history), at=0)
            assert (seen.status, seen.mode) == (200, "full")
            # Before the gateways, which would wait for it.
            await stack.aclose()


async def shared_by_both(pair, text):
    """A conversation of one response that both replicas hold; its id."""
    opening = [{"role": "user", "content": text}]
    first = await pair.create(asked(opening), at=0)
    assert (await pair.create(asked(grown(opening, first, "go on")), at=1)).mode == "delta"
    return first.answer["id"]


async def until(check, within=10.0):
    """Wait until what is asked of others is true; gives it."""
    async with asyncio.timeout(within):
        while not (found := await check()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


async def log_in(redis):
    """The name of the log, and how many entries it has."""
    names = [name async for name in redis.client.scan_iter("upwire:*", _type="stream")]
    return [(name, await redis.client.xlen(name)) for name in names]


async def heard(pair, at, response_id):
    """Delete at one replica, and wait until the other has heard of it."""
    before = await known(pair, 1 - at)
    await delete(pair, response_id, at)

    async def fewer():
        return await known(pair, 1 - at) < before

    await until(fewer)


async def test_a_log_that_is_lost_is_written_again():
    """Whoever deleted something tells it once more when the log was wiped, for whoever had not read it yet."""
    async with running_redis() as redis, replicas(redis.url) as (_, pair):
        for at in (0, 1):
            await heard(pair, at, await shared_by_both(pair, f"of {at}"))
        [(name, count)] = await log_in(redis)
        assert count == 2
        await redis.client.delete(name)

        async def written():
            return await log_in(redis) == [(name, 2)]

        await until(written)
        history, ids = await wandered(pair)
        await heard(pair, 1, ids[0])
        assert (await pair.create(asked(history), at=0)).mode == "full"


async def test_rubbish_in_its_place_costs_nothing(capsys):
    """Where something else stands, turns go on, deltas stay deltas, and the log says once what is not heard."""
    async with running_redis() as redis, replicas(redis.url) as (_, pair):
        history, _ = await wandered(pair)
        await heard(pair, 1, await shared_by_both(pair, "another"))
        [(name, _)] = await log_in(redis)
        await redis.client.set(name, b"rubbish")
        said = []

        async def errors():
            said.append(capsys.readouterr().out)
            counts = [(await pair.index(at))["errors"] for at in (0, 1)]
            return min(counts) >= 3

        await until(errors)
        assert (await pair.create(asked(history), at=0)).mode == "delta"
        await pair.state("works", "read_only")
    assert "".join((*said, capsys.readouterr().out)).count("shared_index_deletions") == 2


async def test_one_that_is_not_found_does_not_close_the_index_to_its_key():
    """A parent that somebody deleted is no sign that the upstream keeps nothing."""
    async with running_redis() as redis, replicas(redis.url) as (upstream, pair):
        history, ids = await wandered(pair)
        upstream.forget(ids[-1])
        seen = await pair.create(asked(history), at=0, told=False)
        assert (seen.status, seen.reason) == (200, "not_found")
        other = [{"role": "user", "content": "another"}]
        first = await pair.create(asked(other), at=1)
        assert (await pair.create(asked(grown(other, first, "go on")), at=0)).mode == "delta"


RIGHTS = "GET MGET SET DEL EXISTS PTTL PEXPIRE XADD XRANGE XLEN PING"
"""Those that the instructions for operators name."""


async def test_a_user_with_few_rights_is_enough():
    """With the commands that are named, on the names that are used, conversations wander and deletions are heard."""
    assert RIGHTS in (ROOT / "deploy" / "README.md").read_text()
    rights = ["+" + word.lower() for word in RIGHTS.split()]
    async with running_redis() as redis:
        await redis.client.execute_command(
            "ACL", "SETUSER", "gateway", "on", ">password", "~upwire:*", *rights
        )
        url = redis.url.replace("redis://", "redis://gateway:password@")
        async with replicas(url) as (_, pair):
            history, ids = await wandered(pair)
            await heard(pair, 1, ids[0])
            assert (await pair.create(asked(history), at=0)).mode == "full"
            assert [index["errors"] for index in await pair.state("works")] == [0, 0]
