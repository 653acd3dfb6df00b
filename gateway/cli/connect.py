"""``upwire connect``: print the settings that make a client use the gateway."""

from __future__ import annotations

import difflib
from typing import Any

import click

from gateway.cli.options import URL_VARIABLE, read, setting_options
from gateway.cli.reach import base_url, without_root
from gateway.cli.recipes import names, recipe


@click.command("connect")
@click.argument("client", required=False)
@click.option("--url", metavar="URL", envvar=URL_VARIABLE, help=f"Base URL of the gateway.  [{URL_VARIABLE}]")
@setting_options(("host", "port"))
def command(client: str | None, url: str | None, config: str | None, **given: Any) -> None:
    """Print the settings for CLIENT, or without it the names of all known clients."""
    base = client_url(url, config, given)
    known = names()
    if client is None:
        for name in known:
            click.echo(f"{name:<18}{recipe(name, base).title}")
        return
    if client not in known:
        near = difflib.get_close_matches(client, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}."
        raise click.UsageError(f"no recipe for {client!r}; {hint} Any other client: base URL {base}.")
    click.echo(recipe(client, base).text(), nl=False)


def client_url(url: str | None, config: str | None, given: dict[str, Any]) -> str:
    """The base URL for clients, with ``/v1``: of the gateway at ``url``, else of one with these settings."""
    return without_root(url or base_url(read(config, given).settings)) + "/v1"
