"""A restart without a gap: the running process starts its successor and gives it its listening sockets.

Both listen on the same sockets, so no connection is refused. The successor says over a pipe that it is ready; from then on the
first process accepts nothing more, finishes what runs, and ends. Where the successor does not get ready, the first goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway import log
from gateway.config import unix_path
from gateway.server.listen import CannotListen, bind
from gateway.server.unix_socket import UnixListener, bind_unix
from gateway.settings import Settings
from gateway.tasks import Tasks

VARIABLE = "_UPWIRE_HANDOVER"
"""Tells a successor what it inherits, as JSON."""
PATIENCE = 60.0
"""Seconds in which a successor must be ready."""

_READY = b"1"


@dataclass(slots=True)
class Inherited:
    """What this process was given by the one before it: sockets by the address that it was told to listen on."""

    tcp: dict[str, list[int]] = field(default_factory=dict)
    unix: dict[str, int] = field(default_factory=dict)
    pipe: int | None = None

    def ready(self) -> None:
        """Tell the process before that requests are answered here."""
        pipe, self.pipe = self.pipe, None
        if pipe is not None:
            with contextlib.suppress(OSError):
                os.write(pipe, _READY)
            os.close(pipe)


def inherited(environment: MutableMapping[str, str]) -> Inherited:
    """What ``environment`` says was handed over, once: the entry is taken out."""
    text = environment.pop(VARIABLE, "")
    if not text:
        return Inherited()
    given = json.loads(text)
    for number in (
        given["pipe"],
        *given["unix"].values(),
        *(n for each in given["tcp"].values() for n in each),
    ):
        os.set_inheritable(number, False)
    return Inherited(given["tcp"], given["unix"], given["pipe"])


def listen(settings: Settings, before: Inherited) -> list[socket.socket]:
    """The sockets that ``settings`` name: those that were handed over, and new ones. Raises CannotListen."""
    numbers = before.tcp.pop(_address(settings), None)
    listeners: list[socket.socket] = []
    try:
        if numbers is None:
            listeners += bind(settings.host, settings.port)
        else:
            listeners += [_adopted(number) for number in numbers]
        for path in map(unix_path, settings.listen):
            number = before.unix.pop(path, None)
            listeners.append(bind_unix(path) if number is None else UnixListener(Path(path), number))
    except CannotListen:
        for listener in listeners:
            listener.close()
        raise
    for number in (*before.unix.values(), *(number for each in before.tcp.values() for number in each)):
        # No longer asked for by the settings of this process.
        os.close(number)
    return listeners


class Handover:
    """The successor of a running process; ``take`` is what SIGUSR2 does.

    ``done`` is called with the number of a successor that is ready, and closes ``listeners`` without removing anything.
    """

    def __init__(
        self,
        settings: Settings,
        listeners: Sequence[socket.socket],
        tasks: Tasks,
        done: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._tasks = tasks
        self._done = done
        self._process: int | None = None
        self._over = False

    def take(self) -> None:
        """Start a successor, unless one is being started already."""
        if self._over or self._process is not None:
            return
        if os.getpid() == 1:
            log.not_handed_over(
                "the first process of a container ends it when it ends; replace the container"
            )
            return
        pipe, far = os.pipe()
        try:
            self._process = self._start(far)
        except OSError as error:
            os.close(pipe)
            log.not_handed_over(f"the successor could not be started: {os.strerror(error.errno or 0)}")
            return
        finally:
            os.close(far)
        self._tasks.spawn(self._await_ready(pipe, self._process), name="hand over")

    def forget(self) -> None:
        """End a successor that is not ready: this process is asked to end as well."""
        process, self._over = self._process, True
        if process is not None:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGTERM)

    def _start(self, pipe: int) -> int:
        tcp = [one.fileno() for one in self._listeners if not isinstance(one, UnixListener)]
        unix = {str(one.path): one.fileno() for one in self._listeners if isinstance(one, UnixListener)}
        given = {"tcp": {_address(self._settings): tcp}, "unix": unix, "pipe": pipe}
        numbers = (*tcp, *unix.values(), pipe)
        # The service manager's signs of life were asked of this process by its number.
        environment = {k: v for k, v in os.environ.items() if k != "WATCHDOG_PID"}
        for number in numbers:
            os.set_inheritable(number, True)
        try:
            return os.posix_spawnp(
                sys.orig_argv[0], sys.orig_argv, environment | {VARIABLE: json.dumps(given)}
            )
        finally:
            for number in numbers:
                os.set_inheritable(number, False)

    async def _await_ready(self, pipe: int, process: int) -> None:
        told = await _read(pipe)
        self._process = None
        if self._over:
            return
        if told == _READY:
            self._over = True
            for listener in self._listeners:
                if isinstance(listener, UnixListener):
                    listener.keep()
            log.handed_over(process)
            self._done(process)
            return
        with contextlib.suppress(OSError):
            # It has ended, or hangs.
            os.kill(process, signal.SIGKILL)
        status = await asyncio.to_thread(_wait_for, process)
        log.not_handed_over(f"the successor did not get ready ({status}); its own output says why")


async def _read(pipe: int) -> bytes:
    """What comes through ``pipe``: one byte, or nothing if its other end was closed or took too long."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(pipe, readable.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await readable.wait()
        return os.read(pipe, 1)
    except TimeoutError:
        return b""
    finally:
        loop.remove_reader(pipe)
        os.close(pipe)


def _wait_for(process: int) -> str:
    with contextlib.suppress(ChildProcessError):
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        return f"exit code {code}" if code >= 0 else f"signal {-code}"
    return "gone"


def _adopted(number: int) -> socket.socket:
    listener = socket.socket(fileno=number)
    listener.setblocking(False)
    return listener


def _address(settings: Settings) -> str:
    return f"{settings.host} {settings.port}"
