"""``upwire stats``: show what a running gateway has counted."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from gateway.cli.numbers import counts, explaining, ms, share, size, span
from gateway.cli.options import JSON_VARIABLE, URL_VARIABLE, WATCH_VARIABLE, read, setting_options
from gateway.cli.reach import base_url, fetch, without_root
from gateway.config import load_token
from gateway.stats import FIELDS, REASON_TEXTS, RECOVERY_TEXTS

__all__ = ["base_url", "command", "fetch", "table"]

SHOWN = {
    path.removesuffix(".*"): text
    for path, text in FIELDS.items()
    if path.startswith(
        ("turns.", "bytes.", "connections.", "conversations.", "latency_ms.", "reasons", "recoveries")
    )
}


@click.command("stats", cls=explaining(SHOWN))
@click.option("--url", metavar="URL", envvar=URL_VARIABLE, help=f"Base URL of the gateway.  [{URL_VARIABLE}]")
@click.option("--watch", is_flag=True, envvar=WATCH_VARIABLE, help="Show again each second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, envvar=JSON_VARIABLE, help="Print the JSON of /stats.")
@setting_options(("host", "port", "token_file"))
def command(*, url: str | None, watch: bool, as_json: bool, config: str | None, **given: Any) -> None:
    """Show the statistics of a running gateway."""
    settings = read(config, given).settings
    base = without_root(url or base_url(settings))
    token = load_token(settings)
    try:
        if watch and not as_json and sys.stdout.isatty():
            from gateway.cli.live import show  # noqa: PLC0415 (takes rich with it)

            show(lambda: fetch(base, token))
        while True:
            seen = fetch(base, token)
            click.echo(json.dumps(seen) if as_json else table(seen))
            if not watch:
                return
            time.sleep(1)
    except KeyboardInterrupt:
        return


def table(seen: dict[str, Any]) -> str:
    """The statistics for people, as lines of text."""
    turns, sizes, sockets, kept = (
        seen.get(k, {}) for k in ("turns", "bytes", "connections", "conversations")
    )
    total = turns.get("total", 0)
    lines = [
        f"upwire {seen.get('version', '')}, up {span(seen.get('uptime_seconds', 0))}",
        upstream_line(seen.get("upstream", {})),
        "",
    ]
    lines += [
        *(
            _line(mode, f"{turns.get(mode, 0)} turns", share(turns.get(mode, 0), total))
            for mode in ("delta", "full", "http")
        ),
        _line("all", f"{total} turns", counts(turns, "in_flight", "failed", "cancelled")),
        "",
        _line("received", size(sizes.get("client_in", 0))),
        _line("sent upstream", size(sizes.get("upstream_out", 0))),
        _line("saved", size(sizes.get("saved", 0)), saving(seen)),
        "",
        _line("sockets", f"{sockets.get('open', 0)} open", counts(sockets, "busy", "opened", "reused")),
        _line("conversations", f"{kept.get('known', 0)} known", counts(kept, "evicted")),
    ]
    for name, values in seen.get("latency_ms", {}).items():
        shown = "   ".join(f"{q} {ms(value)}" for q, value in values.items())
        lines.append(f"{name.replace('_', ' '):<14}{'':>4}{shown}")
    if len(upstreams := seen.get("upstreams", {})) > 1:
        lines += ["", "upstreams:", *(_upstream(name, each) for name, each in upstreams.items())]
    if labels := seen.get("identities", {}):
        lines += ["", "identities:", *(_identity(label, each) for label, each in labels.items())]
    for title, texts in (("reasons", REASON_TEXTS), ("recoveries", RECOVERY_TEXTS)):
        counted = sorted(((n, k) for k, n in seen.get(title, {}).items() if n), reverse=True)
        if counted:
            lines += ["", f"{title}:"]
            for count, name in counted:
                text = texts.get(name)
                lines.append(f"{name:<20}{count:>6}   {text.meaning if text else ''}".rstrip())
    return "\n".join(lines)


def _upstream(name: str, each: dict[str, Any]) -> str:
    """What was counted for one of several upstreams, and how it fares."""
    turns = each["turns"]
    told = (
        f"{share(turns['delta'], turns['total'])} delta",
        counts(turns, "failed"),
        counts(each["connections"], "open"),
        f"{each['path']} -> {upstream_line(each).removeprefix('upstream ')}",
    )
    return f"{name:<20}{turns['total']:>6} turns   {', '.join(told)}"


def _identity(label: str, each: dict[str, Any]) -> str:
    """What was counted for one label of the team."""
    turns = each["turns"]
    told = (
        f"{share(turns['delta'], turns['total'])} delta",
        counts(turns, "in_flight", "failed"),
        counts(each, "sockets"),
        f"{size(each['bytes']['saved'])} saved",
    )
    return f"{label:<20}{turns['total']:>6} turns   {', '.join(told)}"


def saving(seen: dict[str, Any]) -> str:
    """The share of bytes that was saved. Before the first delta it is below nothing by the few bytes that make a body a frame."""
    sizes, turns = seen.get("bytes", {}), seen.get("turns", {})
    saved, received = sizes.get("saved", 0), sizes.get("client_in", 0)
    if received and saved <= 0 and not turns.get("delta"):
        return "nothing yet: a conversation saves from its second turn on"
    return share(saved, received)


def upstream_line(upstream: dict[str, Any]) -> str:
    """Where turns go and whether that takes sockets, in one line."""
    refusal = upstream.get("refusal")
    words = [str(word) for word in (refusal["reason"], refusal["status"]) if word] if refusal else []
    why = f" ({' '.join(words)})" if words else ""
    told = [f"WebSocket {upstream.get('websocket', '?')}{why}"]
    if upstream.get("mode") == "http":
        told.append("mode http: nothing is upgraded")
    if upstream.get("nothing_chained_seconds"):
        told.append("ignores parents, so nothing is chained now")
    if upstream.get("streams_over_http_seconds"):
        told.append("streams go over plain HTTP now")
    return f"upstream {upstream.get('url', '?')}, {', '.join(told)}"


def _line(name: str, value: str, more: str = "") -> str:
    return f"{name:<14}{value:>16}   {more}".rstrip()
