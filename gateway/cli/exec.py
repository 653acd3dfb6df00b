"""``upwire exec``: run a program with the environment that makes it use the gateway."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import click

from gateway.cli.connect import client_url
from gateway.cli.options import URL_VARIABLE, setting_options
from gateway.cli.recipes import environment


@click.command("exec", context_settings={"ignore_unknown_options": True})
@click.option("--url", metavar="URL", envvar=URL_VARIABLE, help=f"Base URL of the gateway.  [{URL_VARIABLE}]")
@setting_options(("host", "port"))
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def command(program: tuple[str, ...], url: str | None, config: str | None, **given: Any) -> NoReturn:
    """Run CMD with the variables set that upwire connect names.

    CMD takes the place of this process: its exit code and signals are its own. Clients that read a file instead of the
    environment need their recipe.
    """
    variables = environment(client_url(url, config, given))
    try:
        os.execvpe(program[0], program, {**os.environ, **variables})  # noqa: S606 (the user's own command)
    except OSError as error:
        click.echo(f"Error: cannot run {program[0]}: {error.strerror}", err=True)
        raise click.exceptions.Exit(127 if isinstance(error, FileNotFoundError) else 126) from None
