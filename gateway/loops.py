"""The event loop that a process runs on: Python's own, or uvloop where it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

Factory = Callable[[], asyncio.AbstractEventLoop]


class NoLoop(Exception):
    """The loop that the settings name is not there; the text says what to install."""


def factory(name: str) -> Factory | None:
    """What makes the loop called ``name``, None for Python's own; ``auto`` is uvloop where it is installed. Raises NoLoop."""
    if name == "asyncio":
        return None
    try:
        import uvloop  # noqa: PLC0415 (optional)
    except ImportError:
        if name == "auto":
            return None
        raise NoLoop(
            "loop = uvloop needs a package that is not installed: pip install 'upwire[uvloop]'"
        ) from None
    made: Factory = uvloop.new_event_loop
    return made


def run(main: Coroutine[Any, Any, T], loop: Factory | None) -> T:
    """Run ``main`` on a loop of this kind, as ``asyncio.run`` does."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


def running() -> str:
    """The name of the loop that runs here."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]
