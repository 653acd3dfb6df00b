"""What the pool keeps apart by upstream, and what it shares between them."""

from gateway.pool import MAIN, Closed, Dial, Full, Line, Pool, PoolLimits, Use, Want

URL = "wss://h/v1/responses"
OTHER = Line("other", socket_age=100.0)
ME, YOU = b"me", b"you"


def opened(pool, identity, now=0.0, *, line=MAIN, tip=None, stored=False):
    """An idle socket, which holds ``tip``; its number."""
    grant = pool.reserve(identity, [], now, upstream=URL, line=line)
    assert isinstance(grant, Dial)
    pool.opened(grant.socket_id, now)
    pool.release(grant.socket_id, now, tip=tip, stored=stored)
    return grant.socket_id


def closings(pool):
    """What is to be closed now."""
    return [(each.socket_id, each.reason) for each in pool.take_closings()]


def test_each_line_has_its_own_age():
    """The lower one of the setting and of the line; what one taught is nothing to another, even of the same URL."""
    pool = Pool(PoolLimits(socket_age=1000.0))
    mine, other = opened(pool, ME), opened(pool, YOU, line=OTHER)
    pool.retire(100.0)
    assert closings(pool) == [(other, Closed.AGE)]
    other = pool.reserve(YOU, [], 100.0, upstream=URL, line=OTHER).socket_id
    pool.opened(other, 100.0)
    pool.aged(other, 150.0)
    assert pool.health(150.0, OTHER)["socket_age_seconds"] == 40.0
    assert pool.health(150.0, OTHER)["socket_age_learned"] is True
    assert pool.health(150.0)["socket_age_seconds"] == 1000.0
    pool.retire(900.0 - 1)
    assert closings(pool) == []
    assert pool.counted(MAIN) == {"open": 1, "busy": 0, "idle": 1, "dialling": 0}
    pool.close(mine, Closed.LOST)
    assert pool.counted(MAIN)["open"] == pool.counted(OTHER)["open"] == 0


def test_an_upstream_that_keeps_nothing_is_known_by_its_line():
    """A stored parent may still be reloaded at the other one."""
    pool = Pool(PoolLimits())
    pool.forgets_stored(ME, 0.0, line=OTHER)
    assert (pool.finds_stored(ME, 1.0), pool.finds_stored(ME, 1.0, line=OTHER)) == (True, False)
    wants = [Want("r1", stored=True)]
    assert pool.reserve(ME, wants, 1.0, upstream=URL).parent == wants[0]
    assert pool.reserve(ME, wants, 1.0, upstream=URL, line=OTHER).parent is None
    assert pool.health(1.0, OTHER)["identities_without_stored_parents"] == 1
    assert pool.health(1.0)["identities_without_stored_parents"] == 0


def test_limits_hold_for_all_lines_together():
    """A socket of one upstream makes room for one of another."""
    pool = Pool(PoolLimits(sockets=1))
    first = opened(pool, ME)
    assert isinstance(pool.reserve(YOU, [], 1.0, upstream=URL, line=OTHER), Dial)
    assert closings(pool) == [(first, Closed.EVICTED)]
    assert isinstance(pool.reserve(ME, [], 1.0, upstream=URL), Full)


def test_what_is_outdated_serves_no_further_turn():
    """Idle sockets of the line end now; those with a turn, being opened, or spare, as soon as they are idle. Others stay."""
    pool = Pool(PoolLimits(warm=1))
    other = opened(pool, ME)
    idle = opened(pool, YOU, line=OTHER, tip="r1")
    busy = pool.reserve(b"busy", [], 0.0, upstream=URL, line=OTHER).socket_id
    pool.opened(busy, 0.0)
    lent = opened(pool, b"lent", line=OTHER)
    assert isinstance(pool.reserve(b"lent", [], 0.0, upstream=URL, line=OTHER), Use)
    dialling = pool.reserve(b"dialling", [], 0.0, upstream=URL, line=OTHER).socket_id
    warming = pool.spare(b"warming", 0.0, upstream=URL, line=OTHER).socket_id
    pool.outdate(OTHER)
    assert closings(pool) == [(idle, Closed.KEY_CHANGED)]
    assert not pool.holds(YOU, "r1")
    pool.opened(dialling, 1.0)
    pool.spared(warming, 1.0)
    pool.give_back(lent)
    assert closings(pool) == [(warming, Closed.KEY_CHANGED), (lent, Closed.KEY_CHANGED)]
    for number in (busy, dialling):
        pool.release(number, 2.0, tip="r2", stored=True)
    assert closings(pool) == [(busy, Closed.KEY_CHANGED), (dialling, Closed.KEY_CHANGED)]
    assert pool.snapshot()["closed"]["key_changed"] == 5
    assert pool.counted(OTHER)["open"] == 0
    assert pool.reserve(ME, [], 3.0, upstream=URL).socket_id == other


def test_one_identity_alone_can_be_outdated():
    """Whoever has the new key keeps its sockets."""
    pool = Pool(PoolLimits())
    old, new = opened(pool, ME, line=OTHER), opened(pool, YOU, line=OTHER)
    pool.outdate(OTHER, ME)
    assert closings(pool) == [(old, Closed.KEY_CHANGED)]
    assert pool.reserve(YOU, [], 1.0, upstream=URL, line=OTHER).socket_id == new


def test_a_socket_that_is_outdated_while_the_pool_drains_is_drained():
    """It is closed once, for one reason."""
    pool = Pool(PoolLimits())
    busy = pool.reserve(ME, [], 0.0, upstream=URL).socket_id
    pool.opened(busy, 0.0)
    pool.outdate(MAIN)
    pool.drain()
    pool.release(busy, 1.0, tip=None, stored=False)
    assert closings(pool) == [(busy, Closed.DRAINED)]
