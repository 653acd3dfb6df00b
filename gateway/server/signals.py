"""Signals that a running gateway takes beside those that end it: to read its settings again, and to start its successor."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence

from gateway.server.handover import Handover
from gateway.server.lifecycle import Stop
from gateway.server.reload import Hangup
from gateway.server.supervisor import Supervisor
from gateway.settings import Settings
from gateway.tasks import Tasks


def attend(
    settings: Settings,
    listeners: Sequence[socket.socket],
    stop: Stop,
    supervisor: Supervisor,
    tasks: Tasks,
    *,
    again: Callable[[], Settings] | None,
    reconfigure: Callable[[Settings], None],
) -> None:
    """Take SIGHUP, if ``again`` can read the settings, and SIGUSR2 from now on, where the system has them.

    ``again`` and ``reconfigure`` are those of Hangup. A successor is given ``listeners``; once it is ready ``stop`` is moved and
    ``supervisor`` told, and one that is not ready is ended with this process.
    """
    loop = asyncio.get_running_loop()

    def moved(process: int) -> None:
        supervisor.moved(process)
        stop.move()

    if again is not None and hasattr(signal, "SIGHUP"):
        hangup = Hangup(settings, again=again, reconfigure=reconfigure, end=stop.ask)
        loop.add_signal_handler(signal.SIGHUP, hangup.take)
    if hasattr(signal, "SIGUSR2"):
        handover = Handover(settings, listeners, tasks, moved)
        loop.add_signal_handler(signal.SIGUSR2, handover.take)
        stop.on_ask = handover.forget
