"""``upwire demo``: see it work without a key."""

from __future__ import annotations

import click


@click.command("demo")
def command() -> int:
    """Compare an agent loop with and without the gateway, against a simulated upstream.

    Takes under a minute, needs no key and no network. Exit code 0 if all answers were equal and every turn but the first was a
    delta.
    """
    try:
        from gateway.demo import DemoFailed, run  # noqa: PLC0415 (takes the SDK with it)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "openai":
            raise
        raise click.ClickException('the demo drives the openai SDK: pip install "upwire[demo]"') from None
    try:
        return run(click.echo)
    except DemoFailed as error:
        raise click.ClickException(str(error)) from None
