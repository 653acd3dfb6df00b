"""Spare sockets: when the pool wants one, what they may take, and how turns use them."""

from __future__ import annotations

import pytest

from gateway.pool import Closed, Dial, Full, Party, Pool, PoolLimits, Use, Want

ME, YOU = b"me", b"you"
URL = "wss://api.example/v1/responses"


def pool_with(**limits: float) -> Pool:
    """A pool that keeps one spare socket, unless told otherwise."""
    return Pool(PoolLimits(**{"warm": 1} | limits))


def spare(pool: Pool, now: float = 1.0, identity: bytes = ME, **more: object) -> int | None:
    """One spare socket, opened; its number, or None if the pool wants none."""
    grant = pool.spare(identity, now, upstream=URL, **more)
    if grant is None:
        return None
    pool.spared(grant.socket_id, now)
    return grant.socket_id


def turn(pool: Pool, now: float = 1.0, identity: bytes = ME, **more: object) -> int:
    """A socket with a turn on it."""
    grant = pool.reserve(identity, (), now, upstream=URL, **more)
    assert isinstance(grant, Use | Dial)
    if isinstance(grant, Dial):
        pool.opened(grant.socket_id, now)
    return grant.socket_id


def test_off_by_default() -> None:
    """Nobody who did not ask for spare sockets gets one."""
    pool = Pool(PoolLimits())
    turn(pool)
    assert spare(pool) is None
    assert pool.snapshot()["open"] == 1


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_as_many_as_wanted_and_no_more(wanted: int) -> None:
    """Idle sockets without a conversation and those being opened for no turn count; busy ones and holders do not."""
    pool = pool_with(warm=wanted)
    holder = turn(pool)
    pool.release(holder, 1.0, tip="r1", stored=False)
    turn(pool)
    for _ in range(wanted):
        assert isinstance(pool.spare(ME, 2.0, upstream=URL), Dial)
    assert spare(pool) is None
    assert pool.snapshot()["dialling"] == wanted


def test_the_next_conversation_takes_it_and_then_another_is_wanted() -> None:
    """A first turn finds it idle, and the one that holds a conversation is left alone."""
    pool = pool_with()
    holder = turn(pool)
    pool.release(holder, 1.0, tip="r1", stored=False)
    ready = spare(pool)
    assert pool.reserve(ME, (), 2.0, upstream=URL) == Use(ready, None, None)
    assert pool.lacks_spare(ME, 2.0, model=None, party=None)


def test_what_lost_its_conversation_serves_as_one() -> None:
    """A socket whose response is void can take any turn, so no other is opened."""
    pool = pool_with()
    used = turn(pool)
    assert pool.lacks_spare(ME, 1.0, model=None, party=None)
    pool.release(used, 1.0, tip=None, stored=False)
    assert spare(pool) is None


def test_one_for_each_identity_and_model() -> None:
    """Another's spare socket, or one for another model, is no use."""
    pool = pool_with()
    assert None not in {
        spare(pool),
        spare(pool, identity=YOU),
        spare(pool, model="m1"),
        spare(pool, model="m2"),
    }
    assert spare(pool, model="m2") is None
    assert spare(pool, identity=YOU) is None


def test_within_the_limit_of_the_identity() -> None:
    """It is one of the sockets that an identity may have."""
    pool = pool_with(warm=5, sockets_per_identity=3)
    turn(pool)
    assert [spare(pool) is not None for _ in range(4)] == [True, True, False, False]


def test_within_the_limit_of_the_label() -> None:
    """A label with a limit of its own has no more for its spare sockets."""
    pool = pool_with(warm=5)
    party = Party(label="a", most_sockets=2)
    turn(pool, party=party)
    assert spare(pool, party=party) is not None
    assert spare(pool, party=party) is None


def test_room_is_left_for_others() -> None:
    """Spare sockets of one key never fill the pool; a key that comes later still finds a place without anybody's loss."""
    pool = pool_with(warm=100, sockets=18, sockets_per_identity=100)
    count = 0
    while spare(pool) is not None:
        count += 1
    assert count == 16
    turn(pool, identity=YOU)
    assert pool.snapshot()["open"] == 17
    assert pool.take_closings() == []


def test_it_yields_to_a_turn_at_the_limit() -> None:
    """It is closed for another's turn, before any socket that holds a conversation."""
    pool = pool_with(sockets=2)
    holder = turn(pool)
    pool.release(holder, 1.0, tip="r1", stored=False)
    ready = spare(pool)
    turn(pool, now=2.0, identity=YOU)
    assert [(each.socket_id, each.reason) for each in pool.take_closings()] == [(ready, Closed.EVICTED)]


def test_while_it_opens_it_serves_nobody() -> None:
    """At the limit a turn waits for it; it is lent as soon as it is open."""
    pool = pool_with(sockets=1, sockets_per_identity=1)
    grant = pool.spare(ME, 1.0, upstream=URL)
    assert grant is not None
    assert isinstance(pool.reserve(ME, (), 1.0, upstream=URL), Full)
    pool.spared(grant.socket_id, 1.5)
    assert pool.reserve(ME, (), 2.0, upstream=URL) == Use(grant.socket_id, None, None)


def test_a_dial_in_vain_leaves_nothing() -> None:
    """The place is free and nobody counts as busy."""
    pool = pool_with(sockets=1)
    party = Party()
    grant = pool.spare(ME, 1.0, upstream=URL, party=party)
    assert grant is not None
    assert (party.sockets, party.busy) == (1, 0)
    pool.dial_failed(grant.socket_id)
    assert (party.sockets, party.busy) == (0, 0)
    turn(pool, party=party)
    assert (party.sockets, party.busy) == (1, 1)


def test_it_never_makes_a_want_look_as_if_it_could_be_had() -> None:
    """A parent that only its own socket held is lost, with spare sockets or without."""
    pool = pool_with()
    ready = spare(pool)
    grant = pool.reserve(ME, (Want("r1", stored=False),), 2.0, upstream=URL)
    assert isinstance(grant, Use) and grant.socket_id == ready
    assert grant.parent is None and grant.fate is not None


def test_unused_and_old_ones_are_retired() -> None:
    """They are closed as any other that nobody uses, and one that is too old does not count."""
    pool = pool_with(socket_idle=10, socket_age=100)
    spare(pool, now=0.0)
    pool.retire(10.0)
    assert [each.reason for each in pool.take_closings()] == [Closed.IDLE]
    spare(pool, now=20.0)
    assert not pool.lacks_spare(ME, 119.0, model=None, party=None)
    assert pool.lacks_spare(ME, 120.0, model=None, party=None)


def test_draining_wants_none() -> None:
    """What opens while the pool drains is closed."""
    pool = pool_with(warm=2)
    grant = pool.spare(ME, 1.0, upstream=URL)
    assert grant is not None
    pool.drain()
    assert spare(pool) is None
    pool.spared(grant.socket_id, 2.0)
    assert [each.reason for each in pool.take_closings()] == [Closed.DRAINED]
    assert pool.snapshot()["open"] == 0
