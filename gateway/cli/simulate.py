"""``upwire simulate``: run the simulated upstream."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any

import click

from gateway.cli.options import SIMULATE_PREFIX


def _option(
    flag: str, kind: Any, default: Any, text: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    variable = SIMULATE_PREFIX + flag.lstrip("-").partition("/")[0].replace("-", "_").upper()
    words = f"{text}  [{variable}; default: {'none' if default is None else str(default).lower()}]"
    return click.option(flag, type=kind, default=default, envvar=variable, help=words)


@click.command("simulate")
@_option("--host", str, "127.0.0.1", "Address to listen on.")
@_option("--port", click.IntRange(0, 65535), 7412, "Port to listen on; 0 picks a free one.")
@_option("--seed", str, "upwire", "Answers are a function of this and of the context.")
@_option("--cost-per-request", click.FloatRange(min=0), 0.0, "Seconds that each request takes.")
@_option(
    "--cost-per-kb", click.FloatRange(min=0), 0.0, "Seconds per 1000 bytes of context that it does not hold."
)
@_option("--token-pace", click.FloatRange(min=0), 0.0, "Seconds before each delta event.")
@_option("--websocket/--no-websocket", bool, True, "Whether it takes WebSocket connections.")
@_option("--lanes/--no-lanes", bool, False, "Whether it understands stream_id.")
@_option("--survives-errors/--no-survives-errors", bool, True, "Whether a socket stays open after an error.")
@_option("--zero-retention/--no-zero-retention", bool, False, "Whether it forgets what it was told to store.")
@_option("--max-age", click.FloatRange(min=0), None, "Seconds after which a socket takes no more requests.")
@_option("--rounds", click.IntRange(min=0), None, "Rounds of tool calls per user message.")
@_option("--words", click.IntRange(min=0), 8, "Filler words of a final text.")
def command(host: str, port: int, **options: Any) -> None:
    """Run an upstream that speaks the API's protocol strictly, with made-up answers.

    Point the gateway at it with the command that it prints.
    """
    from gateway.simulator import Options, Simulator  # noqa: PLC0415 (heavy, and no other command needs it)

    async def run() -> None:
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(number, ended.set)
        simulator = Simulator(Options(**options))
        try:
            await simulator.start(host, port)
        except OSError as error:
            raise click.ClickException(f"cannot listen on {host} port {port}: {error.strerror}") from None
        try:
            url = simulator.url.removesuffix("/v1")
            click.echo(f"listening on {url}")
            click.echo(f"upwire serve --upstream {url}/v1")
            await ended.wait()
        finally:
            await simulator.stop()

    asyncio.run(run())
