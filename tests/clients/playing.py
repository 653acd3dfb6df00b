"""One client, run once directly against the simulated upstream and once through the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.simulator import Options, Simulator
from tests.clients import catalog
from tests.clients.answering import STALL, stall_fault
from tests.clients.catalog import Place
from tests.clients.tap import Tap
from tests.gateways import running_gateway

STEP_LIMIT = 60.0
"""Seconds that one process of a client may take."""
SETTLE = 0.5
"""Seconds that a client is left with the beginning of an answer before it is interrupted, so that it has taken it in."""
PATIENCE = 5.0
"""Seconds that it then has to end by itself."""
PROXY_KEY = "sk-" + "0123456789abcdef" * 4
STALLED_DELTAS = 2


@dataclass
class Run:
    """What one run showed. ``steps`` are exit code and what the client printed; ``turns`` what passed on the wire."""

    steps: list[Any] = field(default_factory=list)
    turns: list[Any] = field(default_factory=list)
    exchanges: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    contexts: list[Any] = field(default_factory=list)

    @property
    def outcomes(self):
        """What became of each turn, by the gateway's own headers."""
        return [turn.outcome for turn in self.turns]

    @property
    def answers(self):
        """Status and items of each answer without what differs from run to run by right."""
        return [answer_of(turn) for turn in self.turns]


def answer_of(turn):
    """An answer's status and items, without ids and without the digest that only ``exact`` keeps."""
    response = turn.response or {}
    items = [{k: v for k, v in item.items() if k != "id"} for item in response.get("output") or ()]
    whole = items if response.get("status") != "in_progress" else len(turn.events)
    return turn.status, response.get("status"), catalog.without_strict(whole)


async def direct(row, place):
    """The client against the simulated upstream, which speaks plain HTTP only."""
    async with _upstream(Options(websocket=False), row) as upstream:
        return await _play(row, place, upstream, upstream.url)


async def through(row, place, level):
    """The client through a gateway of that ``match`` level."""
    async with _upstream(Options(), row) as upstream, running_gateway(upstream.url, match=level) as gateway:
        run = await _play(row, place, upstream, gateway.url)
        run.stats = await asyncio.to_thread(_stats, gateway.root)
        run.contexts = [_contexts(upstream, turn) for turn in run.turns]
        return run


@contextlib.asynccontextmanager
async def _upstream(options, row):
    simulator = Simulator(options, row.script())
    await simulator.start()
    simulator.faults.add(stall_fault())
    try:
        yield simulator
    finally:
        await simulator.stop()


async def _play(row, place: Place, upstream, url):
    run = Run()
    async with Tap(url) as tap:
        environment = catalog.environment(row, place, tap.url)
        for command in catalog.prepare(row, place, tap.url):
            code, out, err = await _process(command, place, environment)
            run.steps.append([code, out and "", ""])
            run.errors.append(err)
        if row.agent is None:
            async with _between(row, place, environment) as proxy:
                command = catalog.driven(row, place)
                code, out, err = await _process(command, place, {**environment, **proxy})
            run.steps.append([code, catalog.shown(out)])
            run.errors.append(err)
        else:
            await _play_agent(row.agent, place, environment, tap, run)
        await upstream.until(lambda journal: not any(one.outcome == "running" for one in journal.creates()))
        run.exchanges = tap.exchanges()
        run.turns = [one for one in run.exchanges if one.is_turn]
    return run


@contextlib.asynccontextmanager
async def _between(row, place, environment):
    """The variables by which the client talks to a proxy, which runs as long; none if there is no proxy."""
    if not row.proxied:
        yield {}
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = str(place.installed / "bin" / "litellm")
    process = await asyncio.create_subprocess_exec(
        *(program, "--config", str(place.home / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)),
        cwd=place.work,
        env={**environment, "LITELLM_MASTER_KEY": PROXY_KEY},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    root = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(STEP_LIMIT):
            while not await asyncio.to_thread(_answers, root + "/health/liveliness"):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        yield {"OPENAI_BASE_URL": root + "/v1", "OPENAI_API_KEY": PROXY_KEY}
    finally:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _answers(url):
    try:
        _fetch(url)
    except OSError:
        return False
    return True


def _in_order(shown):
    """Calls that ran side by side end in any order; texts stay where they are."""
    found, group = [], []
    for one in [*shown, ["text", ""]]:
        if one[0] != "text":
            group.append(one)
            continue
        found += [*sorted(group, key=json.dumps), one]
        group = []
    return found[:-1]


async def _play_agent(agent, place, environment, tap, run):
    environment = {**environment, **agent.environment(place)}
    for number, text in enumerate(agent.steps):
        command = await asyncio.to_thread(agent.command, place, text, first=number == 0)
        interrupt = (lambda: _stalled(tap)) if STALL in text else None
        code, out, err = await _process(command, place, environment, interrupt)
        run.steps.append(["interrupted" if interrupt else code, _in_order(agent.shown(out))])
        run.errors.append(err)


async def _process(command, place, environment, interrupt=None):
    """Run a process to its end, or interrupt it as Ctrl-C does once ``interrupt`` says that it is time."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=place.work,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(process.communicate())
        try:
            async with asyncio.timeout(STEP_LIMIT):
                if interrupt is not None:
                    while not interrupt() and not ending.done():  # noqa: ASYNC110 (a wire announces nothing)
                        await asyncio.sleep(0.05)
                    await asyncio.sleep(SETTLE)
                    await _stop(process, ending)
                await asyncio.wait((ending,))
        except TimeoutError:
            _signal(process, signal.SIGKILL)
    out, err = (text.decode("utf-8", "replace") for text in ending.result())
    return process.returncode, out, err


async def _stop(process, ending):
    """Ctrl-C, and what an impatient person does next."""
    for number in (signal.SIGINT, signal.SIGTERM):
        _signal(process, number)
        await asyncio.wait((ending,), timeout=PATIENCE)
        if ending.done():
            return
    _signal(process, signal.SIGKILL)


def end_daemons(home):
    """End what a client left running behind its back, known by the home folder that it was given."""
    mark = f"HOME={home}\0".encode()
    for place in Path("/proc").glob("[0-9]*/environ"):
        # Processes of others, and those that end just now, cannot be read.
        with contextlib.suppress(OSError):
            if mark in place.read_bytes() + b"\0":
                os.kill(int(place.parent.name), signal.SIGKILL)


def _signal(process, number):
    with contextlib.suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _stalled(tap):
    open_ones = [turn for turn in tap.turns() if not turn.whole]
    return any(
        turn.answer.count(b"event: response.output_text.delta") >= STALLED_DELTAS for turn in open_ones
    )


def _fetch(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
        return answer.read()


def _stats(root):
    return json.loads(_fetch(root + "/stats"))


def _contexts(upstream, turn):
    """The digests of what the upstream held when it answered, and of what the client had asked for; None if not to be told."""
    response = turn.response or {}
    entry = next((one for one in upstream.journal.creates() if one.response_id == response.get("id")), None)
    if entry is None or entry.digests is None or turn.body.get("previous_response_id"):
        return None
    return entry.digests, upstream.digest_of(turn.body["input"])
