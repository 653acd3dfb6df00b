"""What all workers tell together, whichever of them is asked: statistics, metrics, and the turns that have just ended."""

from __future__ import annotations

import asyncio
import heapq
import operator
from collections.abc import Mapping
from time import time
from typing import TYPE_CHECKING, Any

import orjson

from gateway.admin import Feed, Metrics
from gateway.admin.feed import POINTS, RECENT, STEP, Watcher
from gateway.errors import GatewayError
from gateway.server.observe import SHOWN_SOCKETS, Observation
from gateway.stats.merging import exported, merged, merged_snapshot, summed
from gateway.tasks import Tasks
from gateway.workers import private
from gateway.workers.private import Fellow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

BOUND = 1.0
"""Seconds in which a worker must answer; one that does not is named, and its numbers are missing."""
PERIOD = 0.5
"""Seconds between two looks at the turns of the others, while anybody watches."""
SETTLED = 0.1
"""Seconds after which every worker's answer has a turn in it; before that, turns of several might come out of order."""


class Together:
    """Asks all workers; this one has the number ``number``."""

    def __init__(
        self, number: int, fellows: Mapping[int, Fellow], observed: Observation, tasks: Tasks
    ) -> None:
        self._number = number
        self._fellows = fellows
        self._observed = observed
        self._metrics: _Metrics | None = None
        self.feed: Feed = _Feed(self, observed.feed, tasks)

    def own(self, *, process: bool) -> dict[str, Any]:
        """What this worker tells the others; with ``process`` also what the system counts of it."""
        observed = self._observed
        return {
            "counted": exported(observed.stats, len(self._fellows) + 1),
            "seen": observed.snapshot(),
            "process": _process() if process else {},
        }

    async def stats(self) -> dict[str, Any]:
        """The value of ``/stats``."""
        found = await self._all(private.STATS, self.own(process=False))
        return self._snapshot(found, merged([each["counted"] for each in found.values()]))

    async def metrics(self, label: str | None) -> bytes:
        """The text of ``/metrics``."""
        await asyncio.to_thread(import_prometheus)
        own = self.own(process=True)
        found = await self._all(private.STATS + "?process=1", own)
        stats = merged([each["counted"] for each in found.values()])
        snapshot = self._snapshot(found, stats)
        metrics = _Metrics(stats, lambda: snapshot)
        metrics.process = _processes([each["process"] for each in found.values()])
        metrics.prepare()
        return metrics.render(label)

    async def recent(self) -> dict[int, dict[str, Any]]:
        """The newest turns of each worker."""
        return await self._all(private.RECENT, self._observed.feed.recent())

    def _snapshot(self, found: Mapping[int, Mapping[str, Any]], stats: Any) -> dict[str, Any]:
        seen = {number: each["seen"] for number, each in found.items()}
        whole = merged_snapshot(stats, seen, SHOWN_SOCKETS)
        silent = [number for number in self._fellows if number not in found]
        return whole | {"workers": {"count": len(self._fellows) + 1, "silent": sorted(silent)}}

    async def _all(self, target: str, own: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The answers by number, the own one among them."""
        asked = [self._ask(fellow, target) for fellow in self._fellows.values()]
        answers = await asyncio.gather(*asked)
        found = {
            f.number: answer for f, answer in zip(self._fellows.values(), answers, strict=True) if answer
        }
        return {self._number: own, **found}

    async def _ask(self, fellow: Fellow, target: str) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(BOUND), fellow.request("GET", target) as answer:
                text = b"".join([chunk async for chunk in answer.chunks()])
            found = orjson.loads(text) if answer.status == 200 else None
        except (GatewayError, TimeoutError, orjson.JSONDecodeError):
            return None
        return found if isinstance(found, dict) else None


class _Feed(Feed):
    """The turns of all workers, gathered while anybody watches here."""

    def __init__(self, together: Together, own: Feed, tasks: Tasks) -> None:
        self._own = own
        super().__init__()
        self._together = together
        self._tasks = tasks
        self._all: dict[str, Any] | None = None
        self._newest = 0
        self._gathering: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether this worker ends."""
        return self._own.closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        if closed:
            self._own.close()

    def recent(self) -> dict[str, Any]:
        """The newest turns of all, the oldest first, and the history."""
        return self._all or _merged({}, time())

    def watch(self) -> Watcher | None:
        """Begin to watch."""
        watcher = super().watch()
        if watcher is not None and self._all is None:
            # Turns of this worker alone would make it believe that it has seen all before them.
            watcher.behind = False
        if watcher is not None and self._gathering is None:
            self._gathering = self._tasks.spawn(self._gather(), name="turns of all workers")
        return watcher

    async def _gather(self) -> None:
        self._newest = 0
        try:
            while self._watchers and not self.closed:
                await self._look()
                await asyncio.sleep(PERIOD)
        finally:
            self._gathering = self._all = None

    async def _look(self) -> None:
        settled = time() - SETTLED
        found = self._all = _merged(await self._together.recent(), settled)
        turns = [turn for turn in found["turns"] if turn["n"] > self._newest]
        missed = self._newest == 0 or len(turns) == len(found["turns"]) == RECENT
        for watcher in self._watchers:
            if missed:
                watcher.behind = True
                watcher.wake()
            else:
                for turn in turns:
                    watcher.tell(turn)
        self._newest = max([self._newest, 1, *(turn["n"] for turn in turns)])


def _merged(recent: Mapping[int, Mapping[str, Any]], settled: float) -> dict[str, Any]:
    """What several workers kept, as one would have; turns are numbered by when they ended, alike in every worker."""
    turns = [
        turn | {"n": round(turn["at"] * 1000) * 1024 + turn["n"] % 32 * 32 + number % 32}
        for number, each in recent.items()
        for turn in each["turns"]
        if turn["at"] <= settled
    ]
    points: dict[int, dict[str, Any]] = {}
    for each in recent.values():
        for point in each["history"]:
            before = points.get(point["at"])
            points[point["at"]] = point if before is None else summed([before, point]) | {"at": point["at"]}
    return {
        "turns": sorted(
            heapq.nlargest(RECENT, turns, key=lambda turn: turn["n"]), key=lambda turn: turn["n"]
        ),
        "history": [points[at] for at in sorted(points)[-POINTS:]],
        "step_seconds": STEP,
    }


class _Metrics(Metrics):
    """The metrics of all workers; what the system counts of a process is added up."""

    process: Mapping[str, tuple[str, float]] = {}

    def prepare(self) -> None:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415

        registry = CollectorRegistry()
        registry.register(self)
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        yield from super().collect()
        for name, (text, value) in self.process.items():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(name, text, value=value)


def import_prometheus() -> None:
    """Import the library, which takes many milliseconds; may be done in a thread, as counting must not."""
    import prometheus_client  # noqa: F401, PLC0415


def _process() -> dict[str, list[Any]]:
    """What the system counts of this process: name, text and value."""
    from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415

    families = ProcessCollector(registry=CollectorRegistry(auto_describe=False)).collect()
    return {s.name: [family.documentation, s.value] for family in families for s in family.samples}


def _processes(seen: list[Mapping[str, Any]]) -> dict[str, tuple[str, float]]:
    """The sums; a start is the earliest."""
    found: dict[str, tuple[str, float]] = {}
    for each in seen:
        for name, (text, value) in each.items():
            before = found.get(name)
            add = min if name.endswith("start_time_seconds") else operator.add
            found[name] = (text, value if before is None else add(before[1], value))
    return found
