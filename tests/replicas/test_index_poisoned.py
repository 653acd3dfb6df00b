"""Whatever somebody else has written into the index, turns are right: nothing is believed that is not authentic and equal."""

from __future__ import annotations

import os

import pytest

from tests.replicas.pair import running_pair
from tests.replicas.redis_servers import SECRET, running_redis
from tests.replicas.talk import Talk, is_right, upstream

pytestmark = pytest.mark.system


async def _noise(redis, _other):
    for name, value in (await redis.entries()).items():
        await redis.client.set(name, os.urandom(len(value)))


async def _swapped(redis, _other):
    found = await redis.entries()
    values = list(found.values())
    for name, value in zip(found, values[1:] + values[:1], strict=True):
        await redis.client.set(name, value)


async def _same_size_swapped(redis, _other):
    found = await redis.entries()
    by_size = sorted(found, key=lambda name: len(found[name]))
    for one, two in zip(by_size[::2], by_size[1::2], strict=False):
        await redis.client.set(one, found[two])
        await redis.client.set(two, found[one])


async def _cut(redis, _other):
    for name, value in (await redis.entries()).items():
        await redis.client.set(name, value[: len(value) // 2])


async def _another_type(redis, _other):
    for name in await redis.entries():
        await redis.client.delete(name)
        await redis.client.rpush(name, "x")


async def _another_deployment(redis, other):
    """The same conversation as another deployment wrote it, put where ours is read."""
    ours, theirs = sorted((await redis.entries()).items()), sorted((await other.entries()).items())
    for (name, _), (_, value) in zip(ours, theirs, strict=False):
        await redis.client.set(name, value)


@pytest.mark.parametrize(
    "poison",
    [_noise, _swapped, _same_size_swapped, _cut, _another_type, _another_deployment],
    ids=lambda f: f.__name__,
)
async def test_a_poisoned_redis(poison):
    """Whatever somebody else has written there: the next turn on the other replica is a full one, and right; then all is shared again."""
    async with upstream() as held, running_redis() as redis, running_redis() as other:
        async with (
            running_pair(held.url, redis.url, index_timeout=1.0) as pair,
            running_pair(held.url, other.url, index_timeout=1.0, secrets=[SECRET + " no"] * 2) as stranger,
        ):
            await Talk(stranger.create).go_on(3)
            talk = Talk(pair.create)
            await talk.go_on(3)
            await poison(redis, other)
            # Replica 1 knows nothing later than its own turn, so a parent that it had from the index would leave one item to send.
            await talk.go_on(1)
            assert len(held.journal.creates()[-1].items) > 1
            await pair.state("works")
            await talk.go_on(5)
            assert talk.modes[-2:] == ["delta", "delta"]
            await is_right(talk)
