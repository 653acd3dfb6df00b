"""Background tasks that keep a reference, have a name and report failures: the only place that calls create_task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """A set of running background tasks that ends as a whole.

    ``on_failure`` is called with the task's name and the exception of any task that fails; cancellation is no failure.
    """

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._on_failure = on_failure

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start ``work``; the set holds it until it ends."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel all that still runs and wait until it has ended."""
        while self._running:
            for task in tuple(self._running):
                task.cancel()
            await asyncio.wait(tuple(self._running))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._on_failure(task.get_name(), failure)
