"""A conversation that goes through trouble, and the same one held directly."""

from __future__ import annotations

import time

from gateway.simulator import Options
from tests.gateways import Api, running_simulator
from tests.replicas.pair import asked, grown

HELLO = [{"role": "user", "content": "hello"}]


def upstream():
    return running_simulator(Options(seed="troubles"))


class Talk:
    """One conversation, at one replica and then the other; ``said`` are its answers without ids."""

    def __init__(self, create):
        self.create = create
        self._history = HELLO
        self.said = []
        self.modes = []
        self.slowest = 0.0

    async def go_on(self, turns):
        for _ in range(turns):
            began = time.perf_counter()
            seen = await self.create(asked(self._history))
            self.slowest = max(self.slowest, time.perf_counter() - began)
            assert seen.status == 200
            self.modes.append(seen.mode)
            self.said.append({key: value for key, value in seen.answer["output"][-1].items() if key != "id"})
            self._history = grown(self._history, seen, f"go on {len(self.said)}")
        return self.modes[-turns:]


async def is_right(talk):
    """The answers are those of a conversation that was held directly."""
    async with upstream() as plain, Api(plain.url) as api:
        straight = Talk(api.create)
        await straight.go_on(len(talk.said))
    assert talk.said == straight.said
