"""What the pool tells about sockets and upstreams, for the statistics."""

from gateway.pool import AgeLimits, Closed, Pool, PoolLimits, UpgradeMemory, Want

UPSTREAM = "wss://h/v1/responses"


def told(pool, now):
    """The sockets without their ages."""
    keys = ("socket", "state", "state_seconds", "turns", "holds")
    return [tuple(each[key] for key in keys) for each in pool.sockets(now, 10)]


def test_what_sockets_are_doing():
    """Number, state and for how long, turns and what only it holds; busy ones first, and nothing of whose they are."""
    pool = Pool(PoolLimits())
    first = pool.reserve(b"a", [], 0.0, upstream=UPSTREAM)
    assert told(pool, 1.0) == [(1, "dialling", 1.0, 0, "nothing")]
    pool.opened(first.socket_id, 2.0)
    assert told(pool, 5.0) == [(1, "busy", 3.0, 1, "nothing")]
    pool.release(first.socket_id, 6.0, tip="r1", stored=False)
    second = pool.reserve(b"b", [], 7.0, upstream=UPSTREAM)
    pool.opened(second.socket_id, 7.0)
    assert told(pool, 10.0) == [(2, "busy", 3.0, 1, "nothing"), (1, "idle", 4.0, 1, "alone")]
    pool.reserve(b"a", [Want("r1", stored=False)], 11.0, upstream=UPSTREAM)
    assert told(pool, 12.0)[0] == (1, "busy", 1.0, 2, "alone")
    pool.give_back(1)
    assert told(pool, 12.0)[1][3] == 1
    pool.close(1, Closed.ERROR)
    pool.release(second.socket_id, 13.0, tip="r2", stored=True)
    assert told(pool, 13.0) == [(2, "idle", 0.0, 1, "stored")]
    assert set(pool.sockets(13.0, 1)[0]) == {
        "socket", "state", "state_seconds", "age_seconds", "turns", "holds",
    }  # fmt: skip
    assert pool.sockets(13.0, 0) == []


def test_sockets_by_state():
    """Each place counts in one of three states."""
    pool = Pool(PoolLimits())
    pool.opened(pool.reserve(b"a", [], 0.0, upstream=UPSTREAM).socket_id, 0.0)
    pool.reserve(b"a", [], 0.0, upstream=UPSTREAM)
    seen = pool.snapshot()
    assert (seen["open"], seen["busy"], seen["idle"], seen["dialling"]) == (1, 1, 0, 1)


def test_the_upgrade_in_a_word():
    """Untried, refused with its cause and the time of the next try, and working again."""
    memory = UpgradeMemory(memory=100)
    assert memory.summary(0.0) == {"websocket": "untried", "refusal": None, "retry_in_seconds": None}
    memory.refused(UPSTREAM, 426, "status", 0.0)
    assert memory.summary(40.0) == {
        "websocket": "refused",
        "refusal": {"status": 426, "reason": "status"},
        "retry_in_seconds": 60.0,
    }
    assert memory.summary(100.0)["websocket"] == "untried"
    memory.accepted(UPSTREAM)
    assert memory.summary(101.0)["websocket"] == "works"


def test_the_age_that_an_upstream_taught():
    """None until one is learned, then the lowest."""
    ages = AgeLimits(3300, floor=10)
    assert ages.lowest_learned(0) is None
    ages.refused("a", 1000, 0)
    ages.refused("b", 500, 0)
    assert ages.lowest_learned(100) == (400, 86_300)
