"""Who gets the next place: the rule by itself, and the queue of those who are below their share."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Unavailable
from gateway.pool.party import GREED, Party, may_take, share
from gateway.tasks import Tasks
from gateway.turn import places as places_module
from gateway.turn.places import Places


def spawn(work):
    """A running task."""
    return Tasks(lambda *_: None).spawn(work, name="waits")


def fill(limit, parties):
    """What each of so many parties holds when all take whatever they may."""
    held = [0] * parties
    while True:
        before = sum(held)
        for number in range(parties):
            if may_take(held[number], sum(held), limit):
                held[number] += 1
        if sum(held) == before:
            return held


@given(st.integers(9, 3000), st.integers(1, 40))
def test_all_that_want_everything_get_the_same(limit, parties):
    """Their shares differ by one at most, and come to all places but the few that are kept free."""
    held = fill(limit, parties)
    assert max(held) - min(held) <= 1
    assert limit - sum(held) <= max(held) / GREED + 1
    assert share(limit, parties) <= max(held) + 1


@given(st.integers(9, 3000), st.integers(1, 8))
def test_whoever_comes_last_finds_a_place(limit, parties):
    """However long the others had everything to themselves, a newcomer need not wait, unless places are very few."""
    held = fill(limit, parties)
    if max(held) > GREED:
        assert may_take(0, sum(held), limit)


@given(st.integers(1, 8))
def test_few_places_can_all_be_taken(limit):
    """Where there are hardly any places, none is kept free."""
    assert fill(limit, 1) == [limit]


async def test_below_the_share_one_waits_and_above_it_not():
    """At the limit the busy key is refused at once, and the other gets the next place, before any of the busy key's."""
    places, busy, other = Places(4, 0), Party(), Party()
    for _ in range(4):
        assert places.take(busy)
    with pytest.raises(Unavailable, match="full share") as refused:
        places.take(busy)
    assert (refused.value.code, refused.value.retry_after) == ("too_many_turns", 1)
    assert not places.take(other)
    waiting = spawn(places.wait(other))
    await asyncio.sleep(0)
    assert places.waiting == 1
    places.leave(busy)
    with pytest.raises(Unavailable):
        places.take(busy)
    await waiting
    assert (busy.turns, other.turns, places.taken, places.waiting) == (3, 1, 4, 0)


async def test_who_holds_fewest_is_next():
    """Among those who wait it is not the first, but the one with the least; each gets what comes free in turn."""
    places, busy, second, third = Places(8, 0), Party(), Party(), Party()
    assert places.take(second)
    while places.taken < 8:
        assert places.take(busy)
    order = []

    async def one(name, party):
        assert not places.take(party)
        await places.wait(party)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        for name, party in (("second", second), ("third", third), ("third again", third)):
            group.create_task(one(name, party))
            await asyncio.sleep(0)
        for count in range(3):
            places.leave(busy)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert places.taken == 8, count
    assert order == ["third", "second", "third again"]


async def test_no_place_is_lost(monkeypatch):
    """Whoever gives up waiting, before or in the moment in which the place comes, leaves nothing behind."""
    places, busy, other = Places(1, 0), Party(), Party()
    assert places.take(busy)
    waiting = spawn(places.wait(other))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert places.waiting == 0
    waiting = spawn(places.wait(other))
    await asyncio.sleep(0)
    places.leave(busy)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (places.taken, other.turns) == (0, 0)
    assert places.take(busy)
    monkeypatch.setattr(places_module, "PATIENCE", 0.01)
    with pytest.raises(Unavailable, match="as many requests as it may; send"):
        await places.wait(other)
    places.leave(busy)
    assert (places.taken, places.waiting, other.turns) == (0, 0, 0)


async def test_limits_of_ones_own():
    """A party stays below its own limit, and the common one where it has none; more room is handed out at once."""
    places, one, two = Places(10, 2), Party(most_turns=1), Party()
    assert places.take(one)
    with pytest.raises(Unavailable, match="as many requests at once as it may"):
        places.take(one)
    assert places.take(two)
    assert places.take(two)
    with pytest.raises(Unavailable, match="as many requests at once as it may"):
        places.take(two)
    places.reconfigure(3, 0)
    three = Party()
    assert not places.take(three)
    waiting = spawn(places.wait(three))
    await asyncio.sleep(0)
    places.reconfigure(4, 0)
    await waiting
    assert places.taken == 4
