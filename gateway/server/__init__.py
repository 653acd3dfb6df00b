"""One process: its listeners, its signals, and how it ends without cutting what runs.

The first SIGTERM or SIGINT lingers and drains; a second one ends the process within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping

from gateway import log
from gateway.server.assemble import assemble
from gateway.server.handover import inherited, listen
from gateway.server.lifecycle import HURRY, Gateway, Requests, Stop, run
from gateway.server.listen import CannotListen, bind, url_of
from gateway.server.signals import attend
from gateway.server.supervisor import Supervisor
from gateway.settings import Settings
from gateway.tasks import Tasks

__all__ = ["CannotListen", "Gateway", "Requests", "Stop", "assemble", "bind", "run", "serve", "url_of"]


async def serve(
    settings: Settings,
    *,
    token: str | Mapping[str, str] | None = None,
    ready: Callable[[str], None] | None = None,
    again: Callable[[], Settings] | None = None,
) -> int:
    """Run the gateway until a signal ends it; returns the exit code.

    ``ready`` is called once with the base URL when requests are answered. ``again`` reads the settings once more, on SIGHUP,
    and may raise ConfigError. ``token`` is that of ``assemble``. Raises CannotListen, and what ``assemble`` does.
    """
    before = inherited(os.environ)
    listeners = listen(settings, before)
    url = url_of(settings.host, listeners)
    stop = Stop()
    supervisor = Supervisor(os.environ)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Loops without signal handlers (Windows) end by KeyboardInterrupt.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, _on_signal, stop, number, supervisor)

    def tell() -> None:
        supervisor.ready(url)
        before.ready()
        if ready is not None:
            ready(url)

    tasks = Tasks(log.failed)
    tasks.spawn(supervisor.keep_telling(), name="signs of life")
    try:
        gateway = assemble(settings, token=token)
        attend(settings, listeners, stop, supervisor, tasks, again=again, reconfigure=gateway.reconfigure)
        await run(
            gateway,
            listeners,
            drain_timeout=settings.drain_timeout,
            drain_grace=settings.drain_grace,
            handover_timeout=settings.handover_timeout,
            stop=stop,
            ready=tell,
        )
    finally:
        await tasks.close()
        for listener in listeners:
            listener.close()
    return 128 + stop.number if stop.hurried.is_set() else 0


def _on_signal(stop: Stop, number: int, supervisor: Supervisor) -> None:
    if not stop.ask(number):
        supervisor.stopping()
        return
    # Whatever hangs (a thread that resolves a name, say), the second signal is obeyed.
    watchdog = threading.Timer(HURRY, _leave, (128 + number,))
    watchdog.daemon = True
    watchdog.start()


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
