"""``upwire tail``: one line per turn as it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import click

from gateway.cli.numbers import explaining, ms, size
from gateway.cli.options import JSON_VARIABLE, URL_VARIABLE, read, setting_options
from gateway.cli.reach import base_url, events, without_root
from gateway.config import load_token
from gateway.stats import TURN_FIELDS

COLOURS = {"delta": "green", "full": "yellow", "http": "blue"}
WIDTHS = {
    "time": 9, "model": 14, "mode": 6, "reason": 19, "outcome": 10, "status": 7, "in": 10, "sent": 10, "first": 9, "total": 9,
}  # fmt: skip
PAUSE = 1.0
"""Seconds after which a gateway that is gone is tried again."""


@click.command("tail", cls=explaining(TURN_FIELDS))
@click.option("--url", metavar="URL", envvar=URL_VARIABLE, help=f"Base URL of the gateway.  [{URL_VARIABLE}]")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(0, 100),
    default=10,
    help="Turns before now to begin with, 10 by default.",
)
@click.option("--json", "as_json", is_flag=True, envvar=JSON_VARIABLE, help="Print one JSON object per turn.")
@setting_options(("host", "port", "token_file"))
def command(*, url: str | None, last: int, as_json: bool, config: str | None, **given: Any) -> None:
    """Show each turn of a running gateway as it ends, one line each, until Ctrl-C.

    No line holds anything of what was asked or answered. A gateway that restarts is waited for.
    """
    settings = read(config, given).settings
    base = without_root(url or base_url(settings))
    token = load_token(settings)
    try:
        if not as_json:
            click.echo(click.style(heading(), dim=True))
        for turn in turns(base, token, last):
            click.echo(json.dumps(turn) if as_json else line(turn))
    except KeyboardInterrupt:
        return


def turns(base: str, token: str | None, last: int) -> Iterator[dict[str, Any]]:
    """The ``last`` turns that have ended and each new one, across restarts of the gateway."""
    reached = False
    while True:
        seen = 0
        try:
            for kind, value in events(base, token):
                reached = True
                # All that is kept comes first, and again if we were too slow.
                fresh = value["turns"] if kind == "recent" else [value] if kind == "turn" else []
                if kind == "recent" and seen == 0:
                    fresh = fresh[len(fresh) - last :] if last < len(fresh) else fresh
                for turn in fresh:
                    if turn["n"] > seen:
                        seen = turn["n"]
                        yield turn
        except click.ClickException:
            if not reached:
                raise
        else:
            click.echo(f"{base} is gone; waiting for it", err=True)
        time.sleep(PAUSE)
        # The turns of a new process are all new.
        last = 100


def heading() -> str:
    """The names of the columns."""
    return "".join(_cell(name, name) for name in WIDTHS).rstrip()


def line(turn: dict[str, Any]) -> str:
    """One turn."""
    cells = {
        "time": time.strftime("%H:%M:%S", time.localtime(turn["at"])),
        "model": turn["model"],
        "mode": turn["mode"],
        "reason": turn["reason"] or "-",
        "outcome": turn["outcome"],
        "status": str(turn["status"]),
        "in": size(turn["bytes_in"]),
        "sent": size(turn["bytes_sent"]),
        "first": ms(turn["first_event_ms"]),
        "total": ms(turn["duration_ms"]),
    }
    shown = {name: _cell(name, text) for name, text in cells.items()}
    shown["mode"] = click.style(shown["mode"], fg=COLOURS.get(turn["mode"]))
    if turn["outcome"] == "failed":
        shown["outcome"] = click.style(shown["outcome"], fg="red")
    again = f" again: {', '.join(turn['recoveries'])}" if turn["recoveries"] else ""
    return ("".join(shown.values()) + again).rstrip()


def _cell(name: str, text: str) -> str:
    width = WIDTHS[name]
    return f"{text:>{width - 1}} " if name in ("in", "sent", "first", "total") else f"{text:<{width}}"
