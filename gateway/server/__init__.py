"""One process: its listeners, its signals, and how it ends without cutting what runs.

The first SIGTERM or SIGINT lingers and drains; a second one ends the process within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

from gateway import log
from gateway.config import ConfigError, unix_path
from gateway.server.assemble import assemble
from gateway.server.lifecycle import HURRY, Gateway, Requests, Stop, run
from gateway.server.listen import CannotListen, bind, url_of
from gateway.server.reload import Terminal, reloaded
from gateway.server.supervisor import Supervisor
from gateway.server.unix_socket import bind_unix
from gateway.settings import Settings
from gateway.tasks import Tasks

__all__ = ["CannotListen", "Gateway", "Requests", "Stop", "assemble", "bind", "run", "serve", "url_of"]


async def serve(
    settings: Settings,
    *,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
    again: Callable[[], Settings] | None = None,
) -> int:
    """Run the gateway until a signal ends it; returns the exit code.

    ``ready`` is called once with the base URL when requests are answered. ``again`` reads the settings once more, on SIGHUP,
    and may raise ConfigError. Raises CannotListen.
    """
    listeners = _listen(settings)
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
        if ready is not None:
            ready(url)

    tasks = Tasks(log.failed)
    tasks.spawn(supervisor.keep_telling(), name="signs of life")
    try:
        gateway = assemble(settings, token=token)
        if again is not None and hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, _Hangup(gateway, settings, again, stop).take)
        await run(
            gateway,
            listeners,
            drain_timeout=settings.drain_timeout,
            drain_grace=settings.drain_grace,
            stop=stop,
            ready=tell,
        )
    finally:
        await tasks.close()
        for listener in listeners:
            listener.close()
    return 128 + stop.number if stop.hurried.is_set() else 0


class _Hangup:
    """What SIGHUP does: the settings are read again, or, if the terminal is gone, the gateway ends."""

    def __init__(
        self, gateway: Gateway, settings: Settings, again: Callable[[], Settings], stop: Stop
    ) -> None:
        self._gateway = gateway
        self._settings = settings
        self._again = again
        self._stop = stop
        self._terminal = Terminal()

    def take(self) -> None:
        if self._terminal.gone:
            self._stop.ask(signal.SIGHUP)
            return
        try:
            found = reloaded(self._settings, self._again())
        except ConfigError as error:
            log.not_reloaded(str(error))
            return
        self._settings = found.settings
        log.configure(found.settings.log_level, found.settings.log_format)
        self._gateway.reconfigure(found.settings)
        log.reloaded(found.changed, found.need_restart)


def _listen(settings: Settings) -> list[socket.socket]:
    listeners = bind(settings.host, settings.port)
    try:
        for address in settings.listen:
            listeners.append(bind_unix(unix_path(address)))
    except CannotListen:
        for listener in listeners:
            listener.close()
        raise
    return listeners


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
