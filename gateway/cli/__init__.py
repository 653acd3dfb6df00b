"""The command ``upwire``. Each subcommand is imported when it is used, so that none pays for what another needs."""

from __future__ import annotations

import importlib
from typing import NoReturn

import click

from gateway import __version__
from gateway.config import ConfigError

COMMANDS = (
    "serve",
    "demo",
    "connect",
    "exec",
    "check",
    "config",
    "stats",
    "tail",
    "health",
    "label",
    "simulate",
)


class Commands(click.Group):
    """The subcommands by name, each the object ``command`` of its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All names in the order in which a new user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        found = importlib.import_module(f"gateway.cli.{cmd_name}").command
        assert isinstance(found, click.Command)  # noqa: S101
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="upwire", message="%(prog)s %(version)s")
def upwire() -> None:
    """Give every HTTP client of the OpenAI Responses API its WebSocket mode.

    Start with "upwire serve", then set OPENAI_BASE_URL as it prints.
    """


def main() -> NoReturn:
    """Run the command line; exit 2 for what was asked wrongly, 1 for what could not be done."""
    try:
        code = upwire(prog_name="upwire", standalone_mode=False)
    except click.exceptions.Exit as asked:
        code = asked.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except ConfigError as error:
        click.echo(f"upwire: {error}", err=True)
        code = 2
    except (click.Abort, KeyboardInterrupt):
        code = 130
    raise SystemExit(code if isinstance(code, int) else 0)
