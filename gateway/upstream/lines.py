"""What the socket pool keeps apart by upstream: how it is dialled, what came of it, and its spare sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gateway.pool import MAIN, Dial, Line, Pool
from gateway.tasks import Tasks
from gateway.upstream.dial import DialOptions, Refusal
from gateway.upstream.opening import Openings
from gateway.upstream.socket import UpstreamSocket
from gateway.upstream.spares import Spares
from gateway.upstream.waiting import Target


def named(line: Line) -> dict[str, str]:
    """What names a line in the log: nothing, for the main one."""
    return {} if line.name == MAIN.name else {"upstream": line.name}


class Lines:
    """The openings and spares of every line, by its name. Arguments are those of Openings and Spares, which it makes of them."""

    def __init__(
        self,
        pool: Pool,
        *,
        upgrade_memory: float,
        tasks: Tasks,
        clock: Callable[[], float],
        tell: Callable[[str, Mapping[str, Any]], None],
        keep: Callable[[Target, Dial, UpstreamSocket], None],
        freed: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._upgrade_memory = upgrade_memory
        self._tasks = tasks
        self._clock = clock
        self._tell = tell
        self._keep = keep
        self._freed = freed
        self._openings: dict[str, Openings] = {}
        self._spares: dict[str, Spares] = {}

    def add(self, line: Line, options: DialOptions) -> None:
        """Know how the upstream of ``line`` is dialled; once for each, before anything is asked of it."""
        openings = self._openings[line.name] = Openings(
            self._pool,
            options=options,
            upgrade_memory=self._upgrade_memory,
            clock=self._clock,
            tell=lambda what, fields: self._tell(what, {**fields, **named(line)}),
        )
        self._spares[line.name] = Spares(
            self._pool, openings, tasks=self._tasks, clock=self._clock, keep=self._keep, freed=self._freed
        )

    def openings(self, line: Line) -> Openings:
        """How sockets of ``line`` are opened."""
        return self._openings[line.name]

    def spares(self, line: Line) -> Spares:
        """The spare sockets of ``line``."""
        return self._spares[line.name]

    @property
    def in_progress(self) -> int:
        """Dials of all lines that were reserved and have not ended."""
        return sum(openings.in_progress for openings in self._openings.values())

    @property
    def refused(self) -> dict[str, int]:
        """How many dials ended for which reason, for the statistics."""
        found: Counter[str] = Counter({reason.value: 0 for reason in Refusal})
        for openings in self._openings.values():
            found.update(openings.refused)
        return dict(found)

    def cancel_spares(self) -> None:
        """Give up the spare sockets that are being opened."""
        for spares in self._spares.values():
            spares.cancel()
