"""Command-line options made from the fields of ``Settings``, and reading the settings for a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

import click

from gateway.config import CONFIG_VARIABLE, FILE_NAME, SYSTEM_FILE, Loaded, flag_name, load, variable_name
from gateway.settings import Settings

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

URL_VARIABLE = "UPWIRE_URL"
WATCH_VARIABLE = "UPWIRE_WATCH"
JSON_VARIABLE = "UPWIRE_JSON"
LIVE_VARIABLE = "UPWIRE_LIVE"
MODEL_VARIABLE = "UPWIRE_MODEL"
OTHER_VARIABLES = frozenset({URL_VARIABLE, WATCH_VARIABLE, JSON_VARIABLE, LIVE_VARIABLE, MODEL_VARIABLE})
"""Variables of options that are no settings."""
SIMULATE_PREFIX = "UPWIRE_SIMULATE_"

_KINDS: dict[str, Any] = get_type_hints(Settings)


def setting_options(names: Iterable[str] | None = None) -> Callable[[Decorated], Decorated]:
    """Add ``--config`` and a flag for each setting (or those in ``names``) to a command.

    Values that were not given on the command line arrive as None, so that ``read`` can tell where each value came from.
    """
    wanted = None if names is None else set(names)

    def decorate(command: Decorated) -> Decorated:
        for setting in reversed(fields(Settings)):
            about = setting.metadata
            if not about["table"] and (wanted is None or setting.name in wanted):
                command = _option(setting.name, setting.default, about["help"], about["choices"])(command)
        return click.option(
            "--config",
            metavar="FILE",
            help=f"TOML file with settings; otherwise the one named by {CONFIG_VARIABLE}, "
            f"$XDG_CONFIG_HOME/upwire/{FILE_NAME} (~/.config) or {SYSTEM_FILE}.",
        )(command)

    return decorate


def read(config: str | None, given: dict[str, Any]) -> Loaded:
    """The settings for a command that was decorated with ``setting_options``. Raises ConfigError."""
    flags = {name: value for name, value in given.items() if value is not None and value != ()}
    others = {v for v in os.environ if v.startswith(SIMULATE_PREFIX)}
    return load(flags, os.environ, config=config, also_known=OTHER_VARIABLES | others)


def _option(
    name: str, default: Any, text: str, choices: tuple[str, ...] | None
) -> Callable[[Decorated], Decorated]:
    kind = _KINDS[name]
    flag = flag_name(name)
    shown = (
        ",".join(default) if isinstance(default, tuple) else str(default).lower() if kind is bool else default
    )
    words = f"{text}  [{variable_name(name)}; default: {shown if shown != '' else 'none'}]"
    if kind is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=words)
    if choices:
        return click.option(flag, name, type=click.Choice(choices), help=words)
    if kind in (int, float, str):
        return click.option(
            flag, name, type=kind, metavar={str: "TEXT", int: "N", float: "SECONDS"}[kind], help=words
        )
    return click.option(flag, name, multiple=True, metavar="TEXT", help=words + " (may be repeated)")
