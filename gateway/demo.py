"""The demo: one agent loop driven twice by the unmodified ``openai`` SDK, directly and through the gateway, and compared.

Upstream and gateway are processes of their own, so that neither's work is counted as the other's.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, cast

from openai import DefaultHttpxClient, OpenAI

from gateway.config import PREFIX

TURNS = 30
DEADLINE = 55.0
"""Seconds after which the demo gives up."""
START = 15.0
COST_PER_REQUEST = 0.1
COST_PER_KB = 0.003
TOKEN_PACE = 0.001
MODEL = "gpt-5"
INSTRUCTIONS = "You are a careful agent. Read what you need before you answer."
READ_FILE = {
    "type": "function",
    "name": "read_file",
    "description": "Read a file of the project.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
}
CONDITIONS = (
    f"The upstream is simulated, and so are its costs: {COST_PER_REQUEST * 1000:.0f} ms per request, "
    f"{COST_PER_KB * 1000:.0f} ms per KB of context that it does not hold yet, {TOKEN_PACE * 1000:.0f} ms per token. "
    "There is no network in between. Turns, bytes and the equality of answers are measured; the times follow from those costs."
)


class DemoFailed(Exception):
    """The demo could not be run to its end; the text says at which step."""


@dataclass(slots=True)
class Loop:
    """What one run of the agent loop gave: the output of each turn, its waiting time in seconds, and the bytes sent."""

    outputs: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    sent: int = 0


def run(say: Callable[[str], Any]) -> int:
    """Run the demo, printing with ``say``; 0 if answers were equal and every turn but the first was a delta."""
    deadline = time.monotonic() + DEADLINE
    with ExitStack() as stack:
        say("Starting a simulated upstream and the gateway in front of it.")
        upstream = stack.enter_context(
            _process(
                "simulate", "--port", "0", "--cost-per-request", str(COST_PER_REQUEST), "--cost-per-kb", str(COST_PER_KB),
                "--token-pace", str(TOKEN_PACE),
            )
        )  # fmt: skip
        upwire = stack.enter_context(
            _process(
                "serve",
                "--port",
                "0",
                "--upstream",
                f"{upstream}/v1",
                "--log-level",
                "error",
                "--config",
                os.devnull,
            )
        )
        say(f"Directly: {TURNS} turns over plain HTTP.")
        direct = _drive(upstream, deadline, say)
        say(f"Through upwire: the same {TURNS} turns.")
        through = _drive(upwire, deadline, say)
        stats = _stats(upwire)
    lines, good = comparison(direct, through, stats)
    for line in lines:
        say(line)
    return 0 if good else 1


def comparison(direct: Loop, through: Loop, stats: dict[str, Any]) -> tuple[list[str], bool]:
    """The closing table as lines, and whether the gateway did what it promises."""
    turns, sent = stats["turns"], stats["bytes"]["upstream_out"]
    equal = direct.outputs == through.outputs and len(direct.outputs) == TURNS
    deltas = (turns["delta"], turns["full"], turns["http"]) == (TURNS - 1, 1, 0)
    rows = [
        ("", "directly", "through upwire", ""),
        ("turns", f"{len(direct.outputs)}", f"{len(through.outputs)}", ""),
        ("  delta / full / http", "-", f"{turns['delta']} / {turns['full']} / {turns['http']}", ""),
        ("bytes sent upstream", f"{direct.sent:,}", f"{sent:,}", _factor(direct.sent, sent)),
        _waiting("waiting per turn", direct, through, median),
        _waiting("waiting, last turn", direct, through, lambda waits: waits[-1]),
        _waiting("waiting in all", direct, through, sum),
    ]
    lines = [
        "",
        *(f"{name:<24}{left:>14}{right:>18}   {more}".rstrip() for name, left, right, more in rows),
        "",
    ]
    lines.append(f"Answers are {'equal, turn by turn' if equal else 'NOT EQUAL'}.")
    if not deltas:
        counted = ", ".join(f"{reason} {count}" for reason, count in stats["reasons"].items() if count)
        lines.append(f"NOT every turn but the first was a delta; the reasons of the others: {counted}.")
    return [*lines, *textwrap.wrap(CONDITIONS, 100)], equal and deltas


def _waiting(
    name: str, direct: Loop, through: Loop, of: Callable[[list[float]], float]
) -> tuple[str, str, str, str]:
    left, right = of(direct.waits), of(through.waits)
    return name, f"{left:.2f} s", f"{right:.2f} s", _factor(left, right)


def _factor(more: float, less: float) -> str:
    return f"{more / less:.1f} x less" if less and more > less else ""


def _drive(base: str, deadline: float, say: Callable[[str], Any]) -> Loop:
    """A loop of tool calls as an agent would make it; the history grows by what each tool gives back."""
    loop = Loop()

    def count(request: Any) -> None:
        loop.sent += len(request.content)

    # Settings of whoever runs the demo (proxies, organisations) have no place in it.
    transport = DefaultHttpxClient(trust_env=False, event_hooks={"request": [count]})
    with OpenAI(
        api_key="sk-demo",
        organization="",
        project="",
        base_url=f"{base}/v1",
        max_retries=0,
        http_client=transport,
    ) as client:
        history: list[Any] = [{"role": "user", "content": f"loop {TURNS - 1}"}]
        while len(loop.outputs) < TURNS:
            left = deadline - time.monotonic()
            if left <= 0:
                raise DemoFailed(f"turn {len(loop.outputs) + 1} was not reached within {DEADLINE:.0f} s")
            began = time.monotonic()
            response = _turn(client, history, left)
            loop.waits.append(time.monotonic() - began)
            loop.outputs.append(_content(response.output))
            say(f"  turn {len(loop.outputs):>2} of {TURNS}: {loop.waits[-1]:.2f} s")
            calls = [item for item in response.output if item.type == "function_call"]
            history += response.output
            history += [
                {"type": "function_call_output", "call_id": call.call_id, "output": file_text(call.arguments)}
                for call in calls
            ]
            if not calls:
                break
    return loop


def _turn(client: OpenAI, history: list[Any], timeout: float) -> Any:
    events = client.responses.create(
        model=MODEL,
        instructions=INSTRUCTIONS,
        tools=cast("Any", [READ_FILE]),
        input=history,
        stream=True,
        store=False,
        include=["reasoning.encrypted_content"],
        timeout=timeout,
    )
    for event in events:
        if event.type == "response.completed":
            return event.response
        if event.type in ("response.failed", "response.incomplete", "error"):
            raise DemoFailed(f"a turn ended with {event.type}")
    raise DemoFailed("a stream ended before its response was completed")


def _content(output: list[Any]) -> str:
    """An answer as text, without the ids, which no two responses share."""
    return json.dumps([item.model_dump(exclude={"id"}, exclude_none=True) for item in output], sort_keys=True)


def file_text(arguments: str) -> str:
    """What the tool reads: a few kilobytes that depend on what was asked for."""
    return "\n".join(f"{number:>3}  {arguments} holds this line, number {number}" for number in range(1, 61))


def _stats(base: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{base}/stats", timeout=5) as answer:
        return cast("dict[str, Any]", json.load(answer))


@contextmanager
def _process(*arguments: str) -> Iterator[str]:
    """A process of this command, running while the block does; gives the URL that it listens on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    # -P: a directory named gateway where the demo is started is not ours.
    child = subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, "-P", "-m", "gateway", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield _url_of(child, arguments[0])
    finally:
        child.terminate()
        try:
            child.wait(timeout=3)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _url_of(child: subprocess.Popen[str], name: str) -> str:
    found: queue.Queue[str] = queue.Queue()

    def read() -> None:
        lines = child.stdout or ()
        found.put(next((line.split()[-1] for line in lines if line.startswith("listening on ")), ""))

    threading.Thread(target=read, daemon=True).start()
    try:
        url = found.get(timeout=START)
    except queue.Empty:
        raise DemoFailed(f"upwire {name} did not start within {START:.0f} s") from None
    if not url:
        raise DemoFailed(f"upwire {name} ended before it was ready")
    return url
