"""``upwire check``: find out why it does not work, one step after another."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any

import click

from gateway.cli.check_upstream import KEY_VARIABLE, Row, upstream_rows
from gateway.cli.config import rows as setting_rows
from gateway.cli.config import toml
from gateway.cli.numbers import share
from gateway.cli.options import JSON_VARIABLE, LIVE_VARIABLE, MODEL_VARIABLE, read, setting_options
from gateway.cli.reach import TokenAsked, base_url, fetch
from gateway.config import ConfigError, Loaded, load_tokens
from gateway.settings import Settings, UpstreamEntry
from gateway.upstream.entries import all_entries, settings_for
from gateway.upstream.team import TeamUnusable, read_team

__all__ = ["KEY_VARIABLE", "Row", "command", "port_row", "upstream_rows"]

LIVE_MODEL = "gpt-5-nano"
COST = "--live sends two short requests to the upstream with your key; they cost some hundred tokens."


@click.command("check")
@click.option(
    "--live", is_flag=True, envvar=LIVE_VARIABLE, help="Also try two real turns, which cost a few tokens."
)
@click.option(
    "--model",
    metavar="NAME",
    default=LIVE_MODEL,
    envvar=MODEL_VARIABLE,
    help=f"Model for --live; {LIVE_MODEL} by default.",
)
@click.option("--json", "as_json", is_flag=True, envvar=JSON_VARIABLE, help="Print one JSON object instead.")
@setting_options()
def command(*, live: bool, model: str, as_json: bool, config: str | None, **given: Any) -> int:
    """Find out why it does not work: configuration, port, proxy, names, TLS, upgrade, key and, with --live, deltas.

    Works whether the gateway runs or not. The key is the one that the gateway is set to use, else that in OPENAI_API_KEY; it
    is sent to the upstream only, and never shown. Every upstream is tried, further ones with their own key only, and --live asks
    the main one. Exit code 1 if a step failed.
    """
    if live:
        click.echo(COST, err=True)

    async def run() -> list[Row]:
        seen = []
        async for row in rows(config, given, live=live, model=model):
            seen.append(row)
            if not as_json:
                show(row)
        return seen

    seen = asyncio.run(run())
    failed = any(row.verdict == "failed" for row in seen)
    if as_json:
        click.echo(json.dumps({"ok": not failed, "rows": [asdict(row) for row in seen]}, indent=2))
    return 1 if failed else 0


async def rows(config: str | None, given: dict[str, Any], *, live: bool, model: str) -> AsyncIterator[Row]:
    """All steps, as they are done."""
    from gateway.upstream.key import KeyUnusable, held_key  # noqa: PLC0415 (takes structlog with it)

    try:
        loaded = read(config, given)
        settings = loaded.settings
        tokens = load_tokens(settings)
        read_team(settings.team_file, tokens)
        upstreams = [(entry, held_key(entry, os.environ)) for entry in all_entries(settings)]
    except (ConfigError, KeyUnusable, TeamUnusable) as error:
        yield Row("config", "failed", str(error), "Correct it; upwire config shows all settings.")
        return
    yield config_row(loaded)
    yield await asyncio.to_thread(port_row, settings, next(iter(tokens), None))
    if settings.index:
        from gateway.cli.check_index import index_row  # noqa: PLC0415

        yield await index_row(settings)
    (main, held), *further = upstreams
    failed = False
    # That key is the main upstream's, and nobody else's.
    key = held.current() if held else os.environ.get(KEY_VARIABLE, "")
    async for row in upstream_rows(settings_for(settings, main), key):
        yield row
        failed = failed or row.verdict == "failed"
    for entry, its in further:
        async for row in _further_rows(settings, entry, its.current() if its else ""):
            yield replace(row, upstream=entry.name)
    if live and failed:
        yield Row("live", "warning", "not tried: a step before it failed")
    elif live:
        from gateway.cli.check_live import live_rows  # noqa: PLC0415 (takes the whole gateway with it)

        async for row in live_rows(settings_for(settings, main), key, model):
            yield row


async def _further_rows(settings: Settings, entry: UpstreamEntry, key: str) -> AsyncIterator[Row]:
    """The steps towards an upstream beside the main one, after a line that says which it is."""
    from gateway.upstream.profile import profile_of  # noqa: PLC0415
    from gateway.upstream.urls import without_secrets  # noqa: PLC0415

    kind = profile_of(entry.url, entry.profile).name
    yield Row("upstream", "ok", f"{entry.name}, {entry.path} -> {without_secrets(entry.url)}, profile {kind}")
    async for row in upstream_rows(settings_for(settings, entry), key, more=entry.headers):
        if row.name == "key" and not key:
            yield Row("key", "warning", "none is set for it here", "Fine if the clients have it; not tried.")
        else:
            yield row


def show(row: Row) -> None:
    """Print one row, with its details and its remedy below it."""
    click.echo(f"{row.name:<9}{row.verdict:<9}{row.seen}")
    for more in (*row.details, row.remedy):
        if more:
            click.echo(f"{'':<18}{more}")


def config_row(loaded: Loaded) -> Row:
    """Which file was read, and every value that is not a default with where it came from."""
    details = tuple(
        f"{row['name']} = {toml(row['value'])}, from {row['source']}"
        for row in setting_rows(loaded)
        if row["source"] != "default"
    )
    seen = f"file {loaded.file}" if loaded.file else "no file"
    return Row(
        "config",
        "ok",
        f"{seen}; {len(details)} of {len(loaded.sources)} settings are not at their default",
        "",
        details,
    )


def port_row(settings: Settings, token: str | None) -> Row:
    """Whether the gateway's port is free, or answered by a gateway, and then how that fares."""
    where = f"{settings.host} port {settings.port}"
    if settings.port == 0:
        return Row("port", "ok", "0: a free one will be picked")
    try:
        return _running_row(settings, where, fetch(base_url(settings), token))
    except TokenAsked:
        remedy = "Give its token with --token-file, as clients do in the header x-upwire-token."
        return Row("port", "warning", f"a gateway that asks for a token answers on {where}", remedy)
    except click.ClickException:
        pass
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host.strip("[]"), settings.port))
            probe.listen()
        except OSError as error:
            remedy = "Stop the other process, or choose another port with --port."
            return Row("port", "failed", f"{where}: {os.strerror(error.errno or 0)}", remedy)
    return Row("port", "ok", f"{where} is free; no gateway runs there now")


def _running_row(settings: Settings, where: str, seen: dict[str, Any]) -> Row:
    from gateway.upstream.urls import without_secrets  # noqa: PLC0415

    turns, upstream = seen.get("turns", {}), seen.get("upstream", {})
    total, delta = turns.get("total", 0), turns.get("delta", 0)
    told = f"a gateway (upwire {seen.get('version', '?')}) answers on {where}: {total} turns, {share(delta, total)} deltas"
    there, here = upstream.get("url"), without_secrets(settings.upstream)
    if there and there != here:
        remedy = f"It was started with other settings: its upstream is {there}. The steps below are about {here}: give --upstream."
        return Row("port", "warning", told, remedy)
    if upstream.get("mode") == "http":
        return Row("port", "warning", told, "It runs with mode = http, so nothing is upgraded.")
    if upstream.get("websocket") == "refused":
        return Row("port", "warning", told, "Its upstream refuses sockets now; the steps below tell why.")
    return Row("port", "ok", told)
