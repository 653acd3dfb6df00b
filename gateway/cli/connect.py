"""``upwire connect``: print the settings that make a client use the gateway."""

from __future__ import annotations

import difflib
from importlib import resources
from typing import Any

import click

from gateway.cli.options import URL_VARIABLE, read, setting_options
from gateway.cli.stats import base_url

PLACE = "{base_url}"


@click.command("connect")
@click.argument("client", required=False)
@click.option("--url", metavar="URL", envvar=URL_VARIABLE, help=f"Base URL of the gateway.  [{URL_VARIABLE}]")
@setting_options(("host", "port"))
def command(client: str | None, url: str | None, config: str | None, **given: Any) -> None:
    """Print the settings for CLIENT, or without it the names of all known clients."""
    base = (url or base_url(read(config, given).settings)).rstrip("/").removesuffix("/v1")
    known = names()
    if client is None:
        for name in known:
            click.echo(f"{name:<16}{title(name)}")
        return
    if client not in known:
        near = difflib.get_close_matches(client, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        raise click.UsageError(f"no recipe for {client!r}; {hint} Any other client: base URL {base}/v1")
    click.echo(recipe(client, base + "/v1"), nl=False)


def names() -> list[str]:
    """The names of all clients with a recipe."""
    files = resources.files("gateway.cli").joinpath("clients").iterdir()
    return sorted(file.name.removesuffix(".md") for file in files if file.name.endswith(".md"))


def title(client: str) -> str:
    """The first line of a recipe: what the client is called."""
    return _text(client).partition("\n")[0].lstrip("# ")


def recipe(client: str, url: str) -> str:
    """The recipe with the gateway's base URL, which ends in ``/v1``, filled in."""
    return _text(client).replace(PLACE, url)


def _text(client: str) -> str:
    return resources.files("gateway.cli").joinpath("clients", f"{client}.md").read_text(encoding="utf-8")
