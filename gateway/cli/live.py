"""The live view of ``upwire stats --watch``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway.cli.numbers import ms, share, size, span
from gateway.cli.stats import saving, upstream_line
from gateway.stats import REASON_TEXTS

COLOURS = {"delta": "green", "full": "yellow", "http": "blue"}
REASONS_SHOWN = 6


def show(fetch: Callable[[], dict[str, Any]], *, console: Console | None = None, every: float = 1.0) -> None:
    """Show what ``fetch`` gives, again and again until Ctrl-C; a gateway that is gone for a while is waited for."""
    seen = fetch()
    before = seen
    with Live(console=console, auto_refresh=False, screen=console is None) as live:
        while True:
            live.update(view(seen, before), refresh=True)
            time.sleep(every)
            try:
                before, seen = seen, fetch()
            except click.ClickException as gone:
                live.update(Group(view(seen, seen), Text(gone.message, style="bold red")), refresh=True)


def view(seen: dict[str, Any], before: dict[str, Any]) -> RenderableType:
    """The statistics, with what was added since ``before``."""
    head = Text(f"upwire {seen['version']}", style="bold")
    head.append(f"  up {span(seen['uptime_seconds'])}  {upstream_line(seen['upstream'])}", style="not bold")
    several: list[RenderableType] = []
    if len(seen.get("upstreams", {})) > 1:
        several = [Text(), _upstreams(seen)]
    return Group(head, Text(), _turns(seen, before), Text(), _numbers(seen), *several, Text(), _reasons(seen))


def _upstreams(seen: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, each in seen["upstreams"].items():
        turns, state = each["turns"], each["websocket"]
        told = Text(f"WebSocket {state}", style="red" if state == "refused" else "")
        told.append(f", {each['path']} -> {each['url']}", style="dim")
        deltas = f"{share(turns['delta'], turns['total'])} delta"
        table.add_row(name, f"{turns['total']} turns", deltas, f"{each['connections']['open']} open", told)
    return table


def _turns(seen: dict[str, Any], before: dict[str, Any]) -> Table:
    turns, old = seen["turns"], before["turns"]
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "right", "left"):
        table.add_column(justify=justify)
    table.add_row(*(Text(t, style="dim") for t in ("turns", "all", "share", "new", "")))
    for mode, colour in COLOURS.items():
        bar = Bar(max(1, turns["total"]), 0, turns[mode], width=30, color=colour)
        table.add_row(
            mode,
            str(turns[mode]),
            share(turns[mode], turns["total"]),
            f"+{max(0, turns[mode] - old[mode])}",
            bar,
        )
    for name in ("failed", "cancelled", "in_flight"):
        style = "red" if name == "failed" and turns[name] else ""
        table.add_row(Text(name.replace("_", " "), style=style), Text(str(turns[name]), style=style))
    return table


def _numbers(seen: dict[str, Any]) -> Table:
    sizes, sockets, kept = seen["bytes"], seen["connections"], seen["conversations"]
    table = Table.grid(padding=(0, 2))
    table.add_row("received", size(sizes["client_in"]), "what plain HTTP would have sent")
    table.add_row("sent", size(sizes["upstream_out"]), "")
    style = "green" if sizes["saved"] > 0 else "red" if seen["turns"]["delta"] else ""
    table.add_row("saved", Text(size(sizes["saved"]), style=style), saving(seen))
    doing = f"{sockets['busy']} busy, {sockets['idle']} idle, {sockets['reused']} reused"
    table.add_row("sockets", f"{sockets['open']} open", doing)
    table.add_row("conversations", f"{kept['known']} known", f"{kept['evicted']} evicted")
    for name, values in seen["latency_ms"].items():
        told = "  ".join(f"{q} {ms(value)}" for q, value in values.items() if q != "p50")
        table.add_row(name.replace("_", " "), f"p50 {ms(values['p50'])}", told)
    return table


def _reasons(seen: dict[str, Any]) -> RenderableType:
    counted = sorted(((n, name) for name, n in seen["reasons"].items() if n), reverse=True)[:REASONS_SHOWN]
    if not counted:
        return Text("no turn yet that was not a delta", style="dim")
    table = Table.grid(padding=(0, 2))
    for count, name in counted:
        text = REASON_TEXTS.get(name)
        table.add_row(name, str(count), Text(text.remedy if text else "", style="dim"))
    return table
