"""From what it is concluded that an upstream keeps nothing."""

import pytest

from gateway.simulator import Options
from gateway.turn.retention import Retention
from tests.gateways import Api, running_gateway, running_simulator

ME, YOU = b"me", b"you"


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def retention(clock):
    return Retention(clock)


def test_two_of_ones_own_are_enough(retention):
    """One may have been deleted by somebody."""
    for name in ("r1", "r2"):
        retention.made(ME, name)
    assert [retention.missing(ME, name) for name in ("r1", "r2")] == [False, True]


def test_what_others_made_counts_half(retention):
    """It may have been deleted past this gateway, or before it came."""
    assert [retention.missing(ME, f"r{n}") for n in range(4)] == [False, False, False, True]


def test_what_was_made_long_ago_is_like_what_others_made(retention, clock):
    """Whoever keeps things keeps them for a time."""
    for name in ("r1", "r2"):
        retention.made(ME, name)
    clock.now += 600
    assert not any(retention.missing(ME, name) for name in ("r1", "r2"))


def test_one_that_was_found_ends_the_count(retention):
    """An upstream that reloads one response reloads others."""
    retention.made(ME, "r1")
    retention.made(ME, "r2")
    assert not retention.missing(ME, "r1")
    retention.found(ME)
    assert not retention.missing(ME, "r2")


def test_each_identity_for_itself_and_not_for_ever(retention, clock):
    """Another key may belong to another organisation; old evidence counts no more."""
    for name in ("r1", "r2"):
        retention.made(ME, name)
        retention.made(YOU, name)
    assert not retention.missing(ME, "r1")
    assert not retention.missing(YOU, "r1")
    clock.now += 600
    assert not retention.missing(ME, "r2")


async def test_a_reloaded_response_clears_the_upstream():
    """A stored conversation goes on elsewhere after one that was deleted past the gateway, and after a second one too."""
    async with (
        running_simulator(Options(seed="kept")) as simulator,
        running_gateway(simulator.url) as gateway,
        Api(gateway.url) as api,
    ):

        async def lost_socket():
            await simulator.close_sockets(1001)
            await simulator.until(lambda _: not simulator.open_sockets)

        async def turn(history):
            seen = await api.create({"model": "gpt-5", "store": True, "input": history})
            assert seen.status == 200
            return seen, [*history, *seen.answer["output"], {"role": "user", "content": "go on"}]

        for text in ("one", "two", "three"):
            _, kept = await turn([{"role": "user", "content": f"kept {text}"}])
            gone, history = await turn([{"role": "user", "content": f"gone {text}"}])
            simulator.forget(gone.answer["id"])
            await lost_socket()
            assert (await turn(history))[0].reason == "not_found"
            await lost_socket()
            assert (await turn(kept))[0].mode == "delta"
