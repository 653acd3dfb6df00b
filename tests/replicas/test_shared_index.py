"""Two gateways that share a Redis continue each other's stored conversations, and nothing else."""

from __future__ import annotations

import contextlib
import sys

import pytest

from gateway.index import telling
from gateway.simulator import Options
from tests.gateways import Api, running_simulator
from tests.replicas.pair import asked, grown, running_pair
from tests.replicas.redis_servers import running_redis

pytestmark = pytest.mark.system
HELLO = [{"role": "user", "content": "hello"}]


@contextlib.asynccontextmanager
async def scene(options=None, **settings):
    """A Redis, an upstream and two replicas."""
    async with (
        running_redis() as redis,
        running_simulator(options or Options(seed="shared")) as upstream,
        running_pair(upstream.url, redis.url, index_timeout=1.0, **settings) as pair,
    ):
        yield redis, upstream, pair


async def direct(history, *, turns, store=True):
    """The texts of a conversation that was held directly."""
    async with running_simulator(Options(seed="shared")) as upstream, Api(upstream.url) as api:
        texts = []
        for number in range(turns):
            seen = await api.create({"model": "gpt-5", "input": history, "store": store})
            texts.append(seen.answer["output"][-1])
            history = grown(history, seen, f"go on {number}")
        return [without_id(text) for text in texts]


def without_id(item):
    """An item without what differs between two runs."""
    return {key: value for key, value in item.items() if key != "id"}


@pytest.mark.parametrize("count", [2, 3])
async def test_a_conversation_that_wanders_stays_a_delta(count):
    """Whichever replica gets the next turn continues the last one, and the answers are those of a direct run."""
    async with scene(count=count) as (redis, upstream, pair):
        history, modes, texts = HELLO, [], []
        for number in range(9):
            seen = await pair.create(asked(history))
            modes.append(seen.mode)
            texts.append(without_id(seen.answer["output"][-1]))
            history = grown(history, seen, f"go on {number}")
        assert modes == ["full"] + ["delta"] * 8
        assert texts == await direct(HELLO, turns=9)
        assert all(len(frame.items) == 1 for frame in upstream.journal.creates("ws"))
        assert sum([(await pair.index(at))["hits"] for at in range(count)]) == 8
        assert len(await redis.entries()) > 9


async def test_what_stands_in_redis_is_keyed_and_expires():
    """No name and no value holds a text, a key or the name of a field that a client sent, and all of it expires."""
    async with scene(conversation_age=100.0) as (redis, _, pair):
        await pair.create(asked([{"role": "user", "content": "my secret"}], x_project="hidden"))
        found = await redis.entries()
        assert found
        for name, value in found.items():
            for word in (b"secret", b"sk-test", b"x_project", b"hidden", b"gpt-5", b"tools"):
                assert word not in name + value
            assert 0 < await redis.client.pttl(name) <= 200_000


async def test_a_long_conversation_is_read_in_pieces(monkeypatch):
    """Records stand on one another only so far; then one has all items, and one that found none of its parents has too."""
    monkeypatch.setattr(telling, "MOST_NEEDED", 3)
    async with scene() as (_, upstream, pair):
        history, modes = HELLO, []
        for number in range(12):
            # Long stretches on one replica, then the other takes over.
            seen = await pair.create(asked(history), at=number // 5 % 2)
            modes.append(seen.mode)
            history = grown(history, seen, f"go on {number}")
        assert modes == ["full"] + ["delta"] * 11
        assert [len(frame.items) for frame in upstream.journal.creates("ws")] == [1] * 12


async def test_stored_conversations_survive_a_restart():
    """A gateway that ends has told what it knows, and the one that follows it continues that."""
    async with running_redis() as redis, running_simulator() as upstream:
        async with running_pair(upstream.url, redis.url, count=1, index_timeout=1.0) as before:
            seen = await before.create(asked(HELLO), told=False)
        async with running_pair(upstream.url, redis.url, count=1, index_timeout=1.0) as after:
            later = await after.create(asked(grown(HELLO, seen, "go on")))
        assert (later.status, later.mode) == (200, "delta")


async def test_references_are_found_by_id():
    """A client that sends references in place of stored items gets its delta on the other replica as well."""
    async with scene() as (_, upstream, pair):
        seen = await pair.create(asked(HELLO), at=0)
        short = [
            {"type": "item_reference", "id": item["id"]} if item["type"] in {"message", "reasoning"} else item
            for item in seen.answer["output"]
        ]
        later = await pair.create(asked([*HELLO, *short, {"role": "user", "content": "go on"}]), at=1)
        assert (later.mode, later.status) == ("delta", 200)
        assert len(upstream.journal.creates("ws")[-1].items) == 1


async def test_an_older_parent_that_is_known_here_gives_way_to_a_newer_one_elsewhere():
    """A replica that held the beginning of a conversation asks for what happened since."""
    async with scene() as (_, upstream, pair):
        history = HELLO
        for at in (0, 1, 1, 0):
            seen = await pair.create(asked(history), at=at)
            history = grown(history, seen, "go on")
        assert seen.mode == "delta"
        assert len(upstream.journal.creates("ws")[-1].items) == 1


async def test_a_branch_and_an_edit_are_seen_for_what_they_are():
    """A history that was changed elsewhere is continued from where it still agrees, on any replica."""
    async with scene() as (_, upstream, pair):
        first = await pair.create(asked(HELLO), at=0)
        one = grown(HELLO, first, "one")
        second = await pair.create(asked(one), at=0)
        two = grown(HELLO, first, "two")
        other = await pair.create(asked(two), at=1)
        assert other.mode == "delta"
        assert upstream.journal.creates("ws")[-1].parent == first.answer["id"]
        edited = [{"role": "user", "content": "hullo"}, *grown(one, second, "three")[1:]]
        assert (await pair.create(asked(edited), at=1)).mode == "full"


async def test_changed_settings_are_seen_elsewhere_too():
    """A field that the parent had and this request lacks, and another model, make a full turn on the other replica."""
    async with scene() as (_, _upstream, pair):
        seen = await pair.create(asked(HELLO, instructions="Be brief."), at=0)
        history = grown(HELLO, seen, "go on")
        assert (await pair.create(asked(history), at=1)).reason == "settings_changed"
        history = grown(HELLO, await pair.create(asked(HELLO), at=0), "go on")
        assert (await pair.create(asked(history, model="gpt-5-mini"), at=1)).reason == "settings_changed"
        assert (await pair.create(asked(history, temperature=0.5), at=1)).mode == "delta"


async def test_what_was_not_stored_is_sent_in_full():
    """A conversation with store false exists on its socket only."""
    async with scene() as (redis, _, pair):
        seen = await pair.create({**asked(HELLO), "store": False}, at=0)
        assert await redis.entries() == {}
        history = grown(HELLO, seen, "go on")
        later = await pair.create({**asked(history), "store": False}, at=1)
        assert (later.mode, later.reason) == ("full", "new_conversation")
        assert (await pair.create({**asked(history), "store": False}, at=0)).mode == "delta"


async def test_another_key_finds_nothing():
    """What one identity has made is not there for another, on whichever replica."""
    async with scene() as (_, _upstream, pair):
        seen = await pair.create(asked(HELLO), at=0)
        history = grown(HELLO, seen, "go on")
        stranger = {"authorization": "Bearer sk-stranger"}
        later = await pair.create(asked(history), at=1, headers=stranger)
        assert (later.mode, later.reason) == ("full", "new_conversation")
        assert (await pair.create(asked(history), at=1)).mode == "delta"


@pytest.mark.parametrize(
    "different",
    [
        {"secrets": ["one secret of this test, long enough", "another secret, long enough as well"]},
        {"headers": True},
    ],
)
async def test_deployments_that_differ_share_nothing(different):
    """With another secret, or other rules about who is who, a replica finds nothing, and takes nothing for its own."""
    secrets = different.get("secrets", ())
    async with running_redis() as redis, running_simulator() as upstream:
        async with contextlib.AsyncExitStack() as stack:
            pairs = [
                await stack.enter_async_context(
                    running_pair(
                        upstream.url, redis.url, count=1, index_timeout=1.0, secrets=secrets[at : at + 1],
                        **({"per_request_headers": ("x-other",)} if at and not secrets else {}),
                    )
                )
                for at in range(2)
            ]  # fmt: skip
            history = grown(HELLO, await pairs[0].create(asked(HELLO)), "go on")
            assert (await pairs[1].create(asked(history))).reason == "new_conversation"
            assert (await pairs[1].index(0))["errors"] == 0


async def test_a_deleted_response_is_continued_nowhere():
    """After DELETE neither the response nor what was chained through it is continued by the other replica."""
    async with scene() as (_, _upstream, pair):
        first = await pair.create(asked(HELLO), at=0)
        one = grown(HELLO, first, "one")
        second = await pair.create(asked(one), at=0)
        assert second.mode == "delta"
        api = pair.apis[0]
        written = (await pair.index(0))["written"]
        async with api.session.delete(
            f"{api.url}/responses/{first.answer['id']}", headers=api.headers
        ) as answer:
            assert answer.status == 200
        await pair.until(0, lambda index: index["written"] > written)
        assert (await pair.create(asked(grown(one, second, "two")), at=1)).reason == "new_conversation"


async def test_what_the_upstream_forgot_is_asked_for_once():
    """A parent that one replica was told is not there is not proposed again to a third."""
    async with scene(count=3) as (_, upstream, pair):
        first = await pair.create(asked(HELLO), at=0)
        upstream.forget(first.answer["id"])
        history = grown(HELLO, first, "one")
        written = (await pair.index(1))["written"]
        seen = await pair.create(asked(history), at=1, told=False)
        assert (seen.status, seen.mode, seen.reason) == (200, "full", "not_found")
        await pair.until(1, lambda index: index["written"] >= written + 1)
        tries = len(upstream.journal.creates())
        assert (await pair.create(asked(history), at=2)).mode == "full"
        assert len(upstream.journal.creates()) == tries + 1


async def test_an_upstream_without_retention_is_not_asked_again_and_again():
    """Where stored responses are not found, the index is left alone for that key."""
    async with scene(Options(seed="shared", zero_retention=True)) as (_, _upstream, pair):
        for text in ("hello", "good morning", "good day", "good evening"):
            # A few may have been deleted by somebody.
            opening = [{"role": "user", "content": text}]
            first = await pair.create(asked(opening), at=0)
            history = grown(opening, first, "one")
            assert (await pair.create(asked(history), at=1, told=False)).reason == "not_found"
        before = await pair.index(1)
        again = await pair.create(
            asked([*history[:-1], {"role": "user", "content": "two"}]), at=1, told=False
        )
        assert again.status == 200
        after = await pair.index(1)
        assert (after["hits"], after["misses"]) == (before["hits"], before["misses"])


async def test_an_upstream_that_cannot_reload_shares_nothing(capsys):
    """Where a response lives on its socket only, the index is not even opened, and the log says so."""
    async with running_redis() as redis, running_simulator() as upstream:
        async with running_pair(upstream.url, redis.url, count=1, works=False, profile="generic") as pair:
            assert (await pair.create(asked(HELLO), told=False)).status == 200
            assert (await pair.index(0))["state"] == "off"
            assert await redis.client.dbsize() == 0
    assert "unused" in "".join(capsys.readouterr())


async def test_a_missing_package_is_named(monkeypatch):
    """Without the package the gateway does not start, and says what to install."""
    monkeypatch.setitem(sys.modules, "redis", None)
    for name in [
        name
        for name in sys.modules
        if name.startswith(("redis.", "gateway.index.redis", "gateway.index.shared", "gateway.index.telling"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Exception, match=r"pip install 'upwire\[redis\]'"):
        async with running_pair("http://127.0.0.1:1/v1", "redis://127.0.0.1:1/0", works=False):
            pass
