"""One process: its listeners, its signals, and how it ends without cutting what runs.

The first SIGTERM or SIGINT drains; a second one ends the process within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable

from gateway.server.assemble import assemble
from gateway.server.lifecycle import HURRY, Gateway, Requests, Stop, run
from gateway.server.listen import CannotListen, bind, url_of
from gateway.settings import Settings

__all__ = ["CannotListen", "Gateway", "Requests", "Stop", "assemble", "bind", "run", "serve", "url_of"]


async def serve(
    settings: Settings, *, token: str | None = None, ready: Callable[[str], None] | None = None
) -> int:
    """Run the gateway until a signal ends it; returns the exit code.

    ``ready`` is called once with the base URL when requests are answered. Raises CannotListen.
    """
    listeners = bind(settings.host, settings.port)
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Loops without signal handlers (Windows) end by KeyboardInterrupt.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, _on_signal, stop, number)

    def tell() -> None:
        if ready is not None:
            ready(url_of(settings.host, listeners))

    gateway = assemble(settings, token=token)
    await run(gateway, listeners, drain_timeout=settings.drain_timeout, stop=stop, ready=tell)
    return 128 + stop.number if stop.hurried.is_set() else 0


def _on_signal(stop: Stop, number: int) -> None:
    if stop.ask(number):
        # Whatever hangs (a thread that resolves a name, say), the second signal is obeyed.
        watchdog = threading.Timer(HURRY, _leave, (128 + number,))
        watchdog.daemon = True
        watchdog.start()


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
