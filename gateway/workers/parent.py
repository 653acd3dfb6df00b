"""The process that starts the workers, keeps their number, and speaks for all of them: to the terminal, to the service manager, to signals.

It serves nothing itself. A worker that ends is replaced, its connections and conversations are gone, and those of the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from gateway import log
from gateway.server.fellows import WorkerUnusable
from gateway.server.handover import inherited, listen
from gateway.server.lifecycle import BREAK_OFF, CLOSE, HURRY, Stop
from gateway.server.listen import CannotListen, url_of
from gateway.server.signals import attend
from gateway.server.supervisor import Supervisor
from gateway.settings import Settings
from gateway.tasks import Tasks
from gateway.upstream.team import Team, read_team, told_team
from gateway.workers.control import PATIENCE, Control

VARIABLE = "_UPWIRE_WORKER"
"""Tells a process that it is a worker, by which descriptor its parent speaks to it, and on which loop it runs."""
STARTING = 60.0
"""Seconds in which a worker must be up."""
LIVES = 10.0
"""Seconds after which a worker that ends is replaced at once; one that ends sooner, a little later each time."""

BEAT = 2.5
"""Seconds between two questions to a worker whether its event loop still turns; the longest work of one turn takes a fraction."""
MISSED = 6
"""Questions without an answer, one after the other, after which it is taken for dead. Counted, because all may have been stopped."""

_BACKOFF, _BACKOFF_CAP = 0.1, 5.0
_ENDING = BREAK_OFF + 2 * CLOSE + 5.0


async def serve_workers(
    settings: Settings,
    *,
    token: Mapping[str, str] | None = None,
    ready: Callable[[str], None] | None = None,
    again: Callable[[], Settings] | None = None,
) -> int:
    """Run ``settings.workers`` workers until a signal ends them; returns the exit code.

    Arguments are those of ``gateway.server.serve``. Raises CannotListen, TeamUnusable and WorkerUnusable.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise CannotListen("this system has no unix sockets, so there can be one worker only")
    tokens = dict(token or {})
    team = read_team(settings.team_file, tokens)
    before = inherited(os.environ)
    listeners = listen(settings, before)
    url = url_of(settings.host, listeners)
    stop = Stop()
    supervisor = Supervisor(os.environ)
    tasks = Tasks(log.failed)
    tasks.spawn(supervisor.keep_telling(), name="signs of life")
    folder = tempfile.mkdtemp(prefix="upwire-")
    crew = _Workers(settings, tokens, team=team, listeners=listeners, folder=folder, stop=stop)
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if not stop.ask(number):
            supervisor.stopping()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    attend(settings, listeners, stop, supervisor, tasks, again=again, reconfigure=crew.reconfigure)
    try:
        if await crew.start(tasks):
            supervisor.ready(url)
            before.ready()
            if ready is not None:
                ready(url)
        await crew.run()
    finally:
        crew.kill()
        await tasks.close()
        shutil.rmtree(folder, ignore_errors=True)
        for listener in listeners:
            listener.close()
    return 128 + stop.number if stop.hurried.is_set() else 0


class _Worker:
    """The process that has a number now, if any."""

    def __init__(self) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self.control: Control | None = None
        self.ready = asyncio.Event()
        self.complaint: str | None = None
        self.patience: asyncio.TimerHandle | None = None


class _Workers:
    """The workers of one run."""

    def __init__(
        self,
        settings: Settings,
        tokens: dict[str, str],
        *,
        team: Team,
        listeners: Sequence[socket.socket],
        folder: str,
        stop: Stop,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        # A worker that comes later must know the same people as its fellows, whatever the file says by then.
        self._team = team
        self._listeners = listeners
        self._stop = stop
        # Drawn for this run: another one understands nothing of it.
        self._given = {"key": secrets.token_hex(32), "secret": secrets.token_hex(32), "folder": folder}
        self._workers = [_Worker() for _ in range(settings.workers)]
        self._go = asyncio.Event()
        self._up = 0
        self._left_out: set[int] = set()
        self._unusable: str | None = None
        self._trouble = asyncio.Event()
        self._keeping: list[asyncio.Task[None]] = []

    async def start(self, tasks: Tasks) -> bool:
        """Start all; True when all are ready, False if asked to stop before. Raises WorkerUnusable."""
        self._keeping = [
            tasks.spawn(self._keep(number, worker), name="worker")
            for number, worker in enumerate(self._workers)
        ]
        readies = [tasks.spawn(worker.ready.wait(), name="ready") for worker in self._workers]
        asked = tasks.spawn(self._stop.changed.wait(), name="asked")
        trouble = tasks.spawn(self._trouble.wait(), name="trouble")
        waiting = set(readies)
        while waiting and not asked.done() and not trouble.done():
            await asyncio.wait({*waiting, asked, trouble}, return_when=asyncio.FIRST_COMPLETED)
            waiting = {each for each in waiting if not each.done()}
        if self._unusable is not None:
            raise WorkerUnusable(self._unusable)
        return not waiting

    async def run(self) -> None:
        """Wait until asked to stop, and until every worker has ended."""
        stop, settings = self._stop, self._settings
        await stop.changed.wait()
        self._go.set()
        bound = settings.drain_grace + settings.drain_timeout + _ENDING
        if stop.moved:
            self._say("move")
            await self._ended(settings.handover_timeout + bound, until=stop.asked)
        if stop.asked.is_set():
            self._say("stop", number=signal.SIGTERM)
        await self._ended(bound, until=stop.hurried)
        if stop.hurried.is_set():
            self._say("stop", number=stop.number)
            await self._ended(HURRY / 2)

    def reconfigure(self, settings: Settings) -> None:
        """Go on with other settings, in every worker. Raises TeamUnusable."""
        self._team = read_team(settings.team_file, self._tokens)
        self._settings = settings
        self._say("reload", settings=asdict(settings), team=told_team(self._team))

    def kill(self) -> None:
        """End what still runs."""
        for worker in self._workers:
            if worker.process is not None and worker.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    worker.process.kill()

    def _say(self, what: str, **more: object) -> None:
        for worker in self._workers:
            if worker.control is not None:
                worker.control.say(what, **more)

    async def _ended(self, seconds: float, until: asyncio.Event | None = None) -> None:
        """Wait until every worker has ended, or for so many seconds, or ``until`` something happens."""
        async with asyncio.TaskGroup() as group:
            happens = group.create_task(until.wait()) if until is not None else None
            all_ended = group.create_task(asyncio.wait(self._keeping))
            waits = [all_ended] if happens is None else [all_ended, happens]
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()

    async def _keep(self, number: int, worker: _Worker) -> None:
        """Run the worker of this number, again and again, until the end."""
        loop = asyncio.get_running_loop()
        pause = _BACKOFF
        while True:
            began = loop.time()
            served = False
            try:
                served = await self._run(number, worker)
            except OSError as error:
                self._complain(number, f"it could not be started: {os.strerror(error.errno or 0)}")
            if self._stop.changed.is_set():
                return
            if not self._go.is_set():
                self._unusable = self._unusable or "a worker ended before it was ready"
                self._trouble.set()
                return
            if served:
                worker.patience = loop.call_later(PATIENCE, self._leave_out, number)
            else:
                self._leave_out(number)
            pause = _BACKOFF if loop.time() - began >= LIVES else min(2 * pause, _BACKOFF_CAP)
            await asyncio.sleep(pause if loop.time() - began < LIVES else 0)
            if self._stop.changed.is_set():
                return

    def _leave_out(self, number: int) -> None:
        """No process has this number, and none is about to: the others take its conversations."""
        if number not in self._left_out:
            self._left_out.add(number)
            self._say("left_out", numbers=sorted(self._left_out))

    def _serves(self, number: int) -> None:
        """The worker of this number takes turns."""
        worker = self._workers[number]
        worker.complaint = None
        if worker.patience is not None:
            worker.patience.cancel()
        if number in self._left_out:
            self._left_out.remove(number)
            self._say("left_out", numbers=sorted(self._left_out))
        worker.ready.set()

    def _complain(self, number: int, how: str) -> None:
        """Log how a worker ended; what keeps it from starting is logged once, however often it is tried."""
        worker = self._workers[number]
        if worker.complaint != how:
            worker.complaint = how
            log.worker_ended(number, how)

    async def _run(self, number: int, worker: _Worker) -> bool:
        """Start the process and see it through to its end; whether it ever took turns."""
        mine, its = socket.socketpair()
        with its:
            numbers = [listener.fileno() for listener in self._listeners]
            # The very command that runs here: the same interpreter finds the same package.
            process = worker.process = await asyncio.create_subprocess_exec(
                *sys.orig_argv,
                pass_fds=(its.fileno(), *numbers),
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, VARIABLE: f"{its.fileno()}:{self._settings.loop}"},
            )
        control = worker.control = await Control.over(mine)
        try:
            control.say(
                "begin", number=number, count=len(self._workers), listeners=numbers, tokens=self._tokens,
                settings=asdict(self._settings), team=told_team(self._team), **self._given,
            )  # fmt: skip
            served = await self._see_ready(number, process, control)
            await self._see_alive(process, control)
            code = await process.wait()
        finally:
            worker.control = None
            await control.close()
        if not self._stop.changed.is_set() and self._go.is_set():
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            self._complain(number, self._unusable or how)
            self._unusable = None
        return served

    async def _see_ready(self, number: int, process: asyncio.subprocess.Process, control: Control) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTING):
                while (heard := await control.hear()) is not None:
                    if heard["say"] == "unusable":
                        self._unusable = heard["why"]
                    elif heard["say"] == "up":
                        self._up += 1
                        if self._up >= len(self._workers):
                            self._go.set()
                        await self._go.wait()
                        control.say("go", left_out=sorted(self._left_out))
                    elif heard["say"] == "ready":
                        self._serves(number)
                        return True
                return False
        process.kill()
        return False

    async def _see_alive(self, process: asyncio.subprocess.Process, control: Control) -> None:
        """Ask again and again whether it lives, until it has ended; one that hangs is killed."""
        missed = 0
        while missed < MISSED:
            control.say("beat")
            missed += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    while await control.hear() is not None:
                        missed = 0
                    return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
