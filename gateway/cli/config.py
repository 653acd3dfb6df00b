"""``upwire config``: every setting with its value, where that came from, and what it means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any
from urllib.parse import urlsplit

import click

from gateway.cli.options import JSON_VARIABLE, read, setting_options
from gateway.config import FILE_NAME, SYSTEM_FILE, Loaded, flag_name, variable_name
from gateway.settings import Settings, UpstreamEntry

HEAD = f"""\
# Settings of upwire as "upwire config" prints them: what each means, where its value comes from, and the value.
# What is at its default is commented out; take the sign away to set it. Times are in seconds, sizes in bytes.
# The file is looked for at --config FILE, $UPWIRE_CONFIG, $XDG_CONFIG_HOME/upwire/{FILE_NAME} (without that variable
# ~/.config/upwire/{FILE_NAME}) and {SYSTEM_FILE}. Flags win over the environment, the environment over the file.
# SIGHUP makes a running gateway read the file again; settings without "reload" then keep their value until a restart.
"""

HIDDEN = "..."


@click.command("config")
@click.option("--json", "as_json", is_flag=True, envvar=JSON_VARIABLE, help="Print JSON instead of TOML.")
@click.option(
    "--reveal", is_flag=True, help="Show also what may hold a secret: the query or password in a URL."
)
@setting_options()
def command(*, as_json: bool, reveal: bool, config: str | None, **given: Any) -> None:
    """Print every setting with its value, where it came from and what it means, as a configuration file.

    "upwire config > ~/.config/upwire/config.toml" is a good start of your own.
    """
    loaded = read(config, given)
    if as_json:
        click.echo(json.dumps(list(rows(loaded, reveal=reveal)), indent=2))
    else:
        click.echo(as_toml(loaded, reveal=reveal), nl=False)


def rows(loaded: Loaded, *, reveal: bool = False) -> Iterator[dict[str, Any]]:
    """Every setting as a record."""
    for setting in fields(Settings):
        table = setting.metadata["table"]
        yield {
            "name": setting.name,
            "value": _value(loaded, setting.name, reveal=reveal),
            "default": {} if table else setting.default,
            "source": loaded.sources[setting.name],
            "flag": None if table else flag_name(setting.name),
            "variable": None if table else variable_name(setting.name),
            "choices": setting.metadata["choices"],
            "reload": setting.metadata["reload"],
            "meaning": setting.metadata["help"],
        }


def as_toml(loaded: Loaded, *, reveal: bool = False) -> str:
    """The settings as a configuration file that gives the same settings again, but for secrets that are not revealed."""
    parts = [HEAD]
    for row in rows(loaded, reveal=reveal):
        secret = row["value"] != _value(loaded, row["name"], reveal=True)
        source = "default" if row["source"] == "default" else f"from {row['source']}"
        ways = (row["flag"], row["variable"]) if row["flag"] else ("in the file only",)
        how = ", ".join((*ways, *(["reload"] if row["reload"] else [])))
        line = f"{row['name']} = {toml(row['value'])}"
        if secret:
            line = f"# {line}  # not shown in full: --reveal does"
        elif row["source"] == "default":
            line = f"# {line}"
        choices = f" ({', '.join(row['choices'])})" if row["choices"] else ""
        parts.append(f"# {row['meaning']}{choices}\n# [{source}; {how}]\n{line}\n")
    return "\n".join(parts)


def _value(loaded: Loaded, name: str, *, reveal: bool) -> Any:
    value = getattr(loaded.settings, name)
    if name == "upstreams":
        return {entry.name: _table(entry, reveal=reveal) for entry in value}
    return value if reveal else shown(value)


def _table(entry: UpstreamEntry, *, reveal: bool) -> dict[str, Any]:
    """An entry as its table, without what is at its default. The value of any header may be a secret."""
    told = asdict(entry) | {"headers": {name: value if reveal else HIDDEN for name, value in entry.headers}}
    del told["name"]
    kept = {name: value for name, value in told.items() if value and (name, value) != ("profile", "auto")}
    return kept if reveal else kept | {"url": shown(entry.url)}


def toml(value: Any) -> str:
    """A value as it is written in TOML, whose texts escape as those of JSON do."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (str, bool)):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def shown(value: Any) -> Any:
    """A value without what may be a secret: the query, user and password of a URL."""
    if isinstance(value, tuple):
        return tuple(shown(each) if "?" in each else each for each in value)
    if not isinstance(value, str):
        return value
    if "://" not in value:
        # A proxy may be written without its scheme.
        _, at, place = value.rpartition("@")
        return f"{HIDDEN}@{place}" if at and not value.startswith(("/", ".")) else value
    try:
        parts = urlsplit(value)
    except ValueError:
        return HIDDEN
    host = parts.netloc.rpartition("@")
    netloc = f"{HIDDEN}@{host[2]}" if host[1] else parts.netloc
    return parts._replace(netloc=netloc, query=HIDDEN if parts.query else "").geturl()
