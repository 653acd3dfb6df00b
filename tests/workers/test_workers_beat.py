"""The parent asks its workers whether they live."""

import asyncio
import socket

import pytest

from gateway.server import Stop
from gateway.settings import Settings
from gateway.upstream.team import Team
from gateway.workers import parent
from gateway.workers.control import Control


class Process:
    """A process that can be killed."""

    def __init__(self):
        self.killed = asyncio.Event()

    def kill(self):
        self.killed.set()


@pytest.fixture
async def ends(monkeypatch):
    """Both ends of a pair, with short beats."""
    monkeypatch.setattr(parent, "BEAT", 0.02)
    one, other = [await Control.over(end) for end in socket.socketpair()]
    yield one, other
    await one.close()
    await other.close()


def crew():
    return parent._Workers(Settings(workers=2), {}, team=Team(), listeners=[], folder="/nowhere", stop=Stop())


async def test_a_worker_that_says_nothing_for_long_is_killed(ends):
    """After six questions without an answer."""
    mine, its = ends
    process = Process()
    await crew()._see_alive(process, mine)
    assert process.killed.is_set()
    asked = [await its.hear() for _ in range(parent.MISSED)]
    assert asked == [{"say": "beat"}] * parent.MISSED


async def test_one_that_answers_now_and_then_is_left_alone_until_it_ends(ends):
    """Every answer counts anew, and an end of the pair is the end of the process."""
    mine, its = ends
    process = Process()
    async with asyncio.TaskGroup() as group:
        seeing = group.create_task(crew()._see_alive(process, mine))
        for _ in range(4):
            for _ in range(parent.MISSED - 2):
                assert await its.hear() == {"say": "beat"}
            its.say("beat")
        await its.close()
        await seeing
    assert not process.killed.is_set()
