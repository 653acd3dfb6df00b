"""Whatever becomes of the index, turns go on and are right: every conversation is compared with one that was held directly."""

from __future__ import annotations

import asyncio
import functools
import random
import signal

import pytest

from gateway.index import telling
from tests.ports import free_port
from tests.relay import Relay
from tests.replicas.pair import running_pair
from tests.replicas.redis_servers import running_redis
from tests.replicas.talk import Talk, is_right, upstream
from tests.tls import Authority

pytestmark = pytest.mark.system
PASSWORD = "not-to-be-seen-anywhere"
SOON = 8.0
"""Seconds within which a gateway notices that its index answers again."""


async def test_no_redis_at_all(capsys):
    """An index that was never there costs nothing but deltas of conversations that move, and one line in the log."""
    async with upstream() as held:
        url = f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0"
        async with running_pair(held.url, url, works=False) as pair:
            before = await pair.state("down")
            talk = Talk(pair.create)
            await talk.go_on(4)
            await is_right(talk)
            after = await pair.state("down")
            assert [index["cause"] for index in after] == ["unreachable"] * 2
            # No turn has asked it anything.
            assert [index["errors"] for index in after] == [index["errors"] for index in before] == [0, 0]
            assert PASSWORD not in str((await pair.apis[0].get("/../stats")).answer)
    printed = "".join(capsys.readouterr())
    assert PASSWORD not in printed
    assert sum("shared_index" in line for line in printed.splitlines()) == 2


async def test_a_redis_that_ends_and_comes_back():
    """Its end is noticed, nobody waits for it, and when it is back conversations are shared again."""
    port = free_port()
    async with upstream() as held:
        async with running_redis(port=port) as redis:
            async with running_pair(held.url, redis.url) as pair:
                talk = Talk(pair.create)
                assert await talk.go_on(4) == ["full", "delta", "delta", "delta"]
                redis.child.terminate()
                await redis.child.wait()
                await talk.go_on(4)
                await pair.state("down")
                async with running_redis(port=port):
                    await pair.state("works", within=SOON)
                    assert (await talk.go_on(4))[-2:] == ["delta", "delta"]
                await is_right(talk)


@pytest.mark.parametrize("how", ["delayed", "stopped"])
async def test_a_slow_redis(how):
    """A turn waits for it as long as index_timeout allows, once; then nobody does, until it is quick again."""
    async with upstream() as held, running_redis() as redis, Relay(redis.port) as relay:
        async with running_pair(held.url, f"redis://127.0.0.1:{relay.port}/0", index_timeout=0.1) as pair:
            talk = Talk(pair.create)
            assert (await talk.go_on(4))[-1] == "delta"
            if how == "delayed":
                relay.delay = 1.0
            else:
                redis.child.send_signal(signal.SIGSTOP)
            talk.slowest = 0.0
            await talk.go_on(4)
            assert [index["cause"] for index in await pair.state("down")] == ["timeout"] * 2
            errors = [(await pair.index(at))["errors"] for at in range(2)]
            await talk.go_on(4)
            assert talk.slowest < 1.0
            assert [(await pair.index(at))["errors"] for at in range(2)] == errors
            relay.delay = 0.0
            redis.child.send_signal(signal.SIGCONT)
            await pair.state("works", within=SOON)
            assert (await talk.go_on(4))[-2:] == ["delta", "delta"]
            await is_right(talk)


async def test_a_full_redis(monkeypatch):
    """One that takes no more is still read; what it did not take is sent in full, and when there is room again all is shared."""
    monkeypatch.setattr(telling, "_MUTE", 0.05)
    async with upstream() as held, running_redis("--maxmemory-policy", "noeviction") as redis:
        async with running_pair(held.url, redis.url, index_timeout=1.0) as pair:
            talk = Talk(pair.create)
            await talk.go_on(4)
            await redis.client.config_set("maxmemory", "1")
            # What stands there is still found.
            assert (await talk.go_on(1)) == ["delta"]
            await talk.go_on(3)
            assert [index["cause"] for index in await pair.state("read_only")] == ["full"] * 2
            assert (await pair.index(0))["dropped"] > 0
            await redis.client.config_set("maxmemory", "0")
            await asyncio.sleep(0.06)
            await talk.go_on(4)
            await pair.state("works")
            assert (await talk.go_on(2)) == ["delta", "delta"]
            await is_right(talk)


async def test_a_wiped_redis():
    """What was lost costs full turns; records that stand on what was lost are not believed, and replaced."""
    async with upstream() as held, running_redis() as redis:
        async with running_pair(held.url, redis.url, index_timeout=1.0) as pair:
            talk = Talk(pair.create)
            await talk.go_on(5)
            await redis.wipe()
            await talk.go_on(6)
            assert talk.modes[-2:] == ["delta", "delta"]
            await is_right(talk)


async def test_a_wiped_redis_is_filled_again_by_those_who_go_on():
    """A conversation that stays where it is writes itself anew after a turn, so that it can move."""
    async with upstream() as held, running_redis() as redis:
        async with running_pair(held.url, redis.url, index_timeout=1.0) as pair:
            talk = Talk(functools.partial(pair.create, at=0))
            await talk.go_on(3)
            await redis.wipe()
            assert await talk.go_on(2) == ["delta", "delta"]
            talk.create = functools.partial(pair.create, at=1)
            assert await talk.go_on(1) == ["delta"]
            assert (await pair.index(0))["dropped"] == 1
            await is_right(talk)


async def test_a_redis_that_loses_some():
    """Half of the entries gone, again and again, as a server that evicts does it: no wrong context."""
    async with upstream() as held, running_redis() as redis:
        async with running_pair(held.url, redis.url, index_timeout=1.0) as pair:
            talk = Talk(pair.create)
            chance = random.Random(5)
            for _ in range(8):
                await talk.go_on(2)
                for name in await redis.entries():
                    if chance.random() < 0.5:
                        await redis.client.delete(name)
            assert "delta" in talk.modes
            await is_right(talk)


async def test_a_wrong_password(capsys):
    """It is refused, the log says what to look at, and neither password is to be seen."""
    async with upstream() as held, running_redis(password="the-right-one-of-this-test") as redis:
        url = redis.url.replace("the-right-one-of-this-test", PASSWORD)
        async with running_pair(held.url, url, works=False) as pair:
            assert [index["cause"] for index in await pair.state("down")] == ["refused"] * 2
            talk = Talk(pair.create)
            await talk.go_on(3)
            await is_right(talk)
            assert PASSWORD not in str((await pair.apis[0].get("/../stats")).answer)
        async with running_pair(held.url, redis.url, index_timeout=1.0) as pair:
            assert await Talk(pair.create).go_on(2) == ["full", "delta"]
    printed = "".join(capsys.readouterr())
    assert PASSWORD not in printed
    assert "the-right-one" not in printed
    assert "password" in printed


async def test_something_else_at_that_address():
    """An HTTP server in place of a Redis is a failure like any other."""
    async with upstream() as held:
        async with running_pair(held.url, f"redis://127.0.0.1:{held.port}/0", works=False) as pair:
            await pair.state("down")
            talk = Talk(pair.create)
            await talk.go_on(3)
            await is_right(talk)


async def test_a_redis_over_tls(tmp_path):
    """An index may be reached by TLS, with an authority of one's own."""
    authority = Authority(tmp_path)
    pem = authority.issue("localhost", "DNS:localhost,IP:127.0.0.1")
    port = free_port()
    tls = [
        "--port",
        "0",
        "--tls-port",
        str(port),
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        authority.file,
    ]
    async with (
        upstream() as held,
        running_redis(*tls, "--tls-cert-file", pem, "--tls-key-file", pem, port=port),
        running_pair(
            held.url, f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.file}", index_timeout=1.0
        ) as pair,
    ):
        assert await Talk(pair.create).go_on(3) == ["full", "delta", "delta"]
    async with (
        upstream() as held,
        running_redis(*tls, "--tls-cert-file", pem, "--tls-key-file", pem, port=port),
    ):
        async with running_pair(held.url, f"rediss://127.0.0.1:{port}/0", works=False) as pair:
            assert [index["cause"] for index in await pair.state("down")] == ["unreachable"] * 2


async def test_a_unix_socket():
    """An index may be reached by a socket file."""
    async with (
        upstream() as held,
        running_redis("--unixsocket", "redis.sock", "--unixsocketperm", "777") as redis,
    ):
        folder = (await redis.client.config_get("dir"))["dir"]
        async with running_pair(held.url, f"unix://{folder}/redis.sock", index_timeout=1.0) as pair:
            assert await Talk(pair.create).go_on(3) == ["full", "delta", "delta"]
