"""Telling the service manager how it goes, by the protocol of systemd: datagrams to the socket that ``NOTIFY_SOCKET`` names.

Where nothing asks to be told, nothing is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

_MICROSECONDS = 1_000_000


class Supervisor:
    """Whoever started this process and wants to know how it goes, according to ``environment``."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # A path, or the name of an abstract socket; other kinds are for virtual machines.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._known = address.startswith(("/", "@"))
        self.interval = _interval(environment) if self._known else None

    def ready(self, url: str) -> None:
        """Requests are answered at ``url``."""
        self._tell("READY=1", f"STATUS=listening on {url}")

    def stopping(self) -> None:
        """The end has begun."""
        self._tell("STOPPING=1", "STATUS=finishing running turns")

    def moved(self, process: int) -> None:
        """Another process has taken over, and is the one to watch; nothing is told of this one from now on."""
        self._tell(f"MAINPID={process}", "READY=1")
        self._known = False

    async def keep_telling(self) -> None:
        """Tell again and again that the event loop still turns, where the manager restarts a process that does not."""
        while self.interval is not None:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self.interval)

    def _tell(self, *lines: str) -> None:
        if not self._known:
            return
        # A manager that cannot be told is no reason not to serve.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), self._address)


def _interval(environment: Mapping[str, str]) -> float | None:
    """Seconds between two signs of life: half of what the manager waits; None if it does not wait for any of ours."""
    asked, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not asked.isdecimal() or int(asked) == 0 or process not in ("", str(os.getpid())):
        return None
    return int(asked) / _MICROSECONDS / 2
