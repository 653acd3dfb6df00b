"""What the pool keeps apart by upstream: all else, limits above all, is for the sockets of every upstream together."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from gateway import settings
from gateway.pool.age import AgeLimits
from gateway.pool.choice import PoolLimits

_FORGETFUL_IDENTITIES = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """One upstream as the pool knows it: its name, and the age in seconds that its sockets reach at most."""

    name: str = settings.MAIN
    socket_age: float = inf


MAIN = Line()
"""The line of whoever names none."""


class Learned:
    """What the sockets of one line have taught."""

    def __init__(self, line: Line, limits: PoolLimits) -> None:
        self.ages = AgeLimits(min(limits.socket_age, line.socket_age), floor=limits.learn_floor)
        self._forgetful: dict[bytes, float] = {}

    def forgets_stored(self, identity: bytes, until: float) -> None:
        """The upstream did not find a stored response of ``identity``: until then only socket memory is used for it."""
        self._forgetful.pop(identity, None)
        if len(self._forgetful) >= _FORGETFUL_IDENTITIES:
            del self._forgetful[next(iter(self._forgetful))]
        self._forgetful[identity] = until

    def finds_stored(self, identity: bytes, now: float) -> bool:
        """Whether nothing is known against continuing stored responses of ``identity`` on any socket."""
        return self._forgetful.get(identity, now) <= now

    def forgetful(self, now: float) -> int:
        """For how many identities the upstream does not find what it was asked to store."""
        return sum(now < until for until in self._forgetful.values())
