"""Where settings come from: flags, then the environment, then one TOML file, then defaults; and whether they make sense.

A file in the working directory is not looked for: a repository that somebody cloned could send their keys to its own upstream.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from gateway.settings import Settings
from gateway.upstream.entries import VARIABLE, EntryWrong, further_entries, parse_entries, wrong_url
from gateway.upstream.team import check_label

PREFIX = "UPWIRE_"
CONFIG_VARIABLE = "UPWIRE_CONFIG"
FILE_NAME = "config.toml"
SYSTEM_FILE = Path("/etc/upwire") / FILE_NAME
TOKEN_LENGTH = 16
"""The fewest characters of a token that is worth presenting."""

_KINDS: dict[str, Any] = get_type_hints(Settings)
_CHOICES: dict[str, tuple[str, ...] | None] = {f.name: f.metadata["choices"] for f in fields(Settings)}
_TABLES = frozenset(f.name for f in fields(Settings) if f.metadata["table"])
_KEY_ENVS = ("upstream_key_env", "index_key_env")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_MAY_BE_ZERO = frozenset({
    "port", "socket_wait", "drain_timeout", "drain_grace", "upgrade_memory", "in_flight_per_identity", "warm",
})  # fmt: skip


class ConfigError(Exception):
    """A setting is unknown or makes no sense. The text says which, where it came from and what would be right."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, where each of them came from, and the file that was read, if any.

    A source is ``"flag --port"``, ``"environment UPWIRE_PORT"``, ``"file PATH"`` or ``"default"``.
    """

    settings: Settings
    sources: dict[str, str]
    file: Path | None


def flag_name(name: str) -> str:
    """The flag of a setting: ``max_body`` is ``--max-body``."""
    return "--" + name.replace("_", "-")


def variable_name(name: str) -> str:
    """The environment variable of a setting: ``max_body`` is ``UPWIRE_MAX_BODY``."""
    return PREFIX + name.upper()


def load(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    config: str | None = None,
    also_known: Iterable[str] = (),
) -> Loaded:
    """Collect all settings and check them.

    ``flags`` holds the values given on the command line, ``config`` the file named there; ``also_known`` are variables of other
    commands that may stand in the environment. Raises ConfigError.
    """
    values: dict[str, Any] = {}
    sources = dict.fromkeys(_KINDS, "default")
    file = find_file(config, environment)
    if file is not None:
        for key, value in _read(file).items():
            if key not in _KINDS:
                raise ConfigError(f"unknown key {key!r} in {file}{_close(key, _KINDS)}")
            sources[key] = f"file {file}"
            values[key] = _from_toml(key, value, sources[key])
    known = {variable_name(name): name for name in _KINDS if name not in _TABLES}
    named = (flags, {name: environment.get(variable_name(name)) for name in _KEY_ENVS}, values)
    # Those that hold a key may be called like our own.
    holders = (next((v for v in (s.get(name) for s in named) if v), None) for name in _KEY_ENVS)
    others = {CONFIG_VARIABLE, *also_known, *holders, *(e.key_env for e in values.get("upstreams", ()))}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or (variable in others and variable not in known):
            continue
        if variable not in known:
            raise ConfigError(
                f"unknown environment variable {variable}{_close(variable, (*known, CONFIG_VARIABLE))}"
            )
        name = known[variable]
        sources[name] = f"environment {variable}"
        values[name] = _from_text(name, environment[variable], sources[name])
    for name, value in flags.items():
        sources[name] = f"flag {flag_name(name)}"
        values[name] = _from_toml(name, list(value) if isinstance(value, tuple) else value, sources[name])
    settings = Settings(**values)
    _check(settings, sources)
    return Loaded(settings, sources, file)


def find_file(config: str | None, environment: Mapping[str, str]) -> Path | None:
    """The file to read: the one named by flag or environment, which must exist, else the user's, else the system's, else None."""
    named = config or environment.get(CONFIG_VARIABLE)
    if named:
        path = Path(named)
        if not path.exists():
            raise ConfigError(f"there is no configuration file {path}")
        return path
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(  # noqa: PTH118 (HOME may be unset: then no path at all)
        environment.get("HOME", ""), ".config"
    )
    for path in (Path(home) / "upwire" / FILE_NAME, SYSTEM_FILE):
        if path.is_absolute() and path.is_file():
            return path
    return None


def load_token(settings: Settings) -> str | None:
    """A token that clients may present, or None if none is asked for. Raises ConfigError without quoting the file."""
    return next(iter(load_tokens(settings)), None)


def load_tokens(settings: Settings) -> dict[str, str]:
    """The tokens of which clients must present one, each with its label or an empty text; empty if none is asked for.

    Raises ConfigError without quoting the file.
    """
    if not settings.token_file:
        return {}
    try:
        lines = Path(settings.token_file).read_text(encoding="ascii").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"token_file {settings.token_file} cannot be read ({type(error).__name__}); it must hold one line of ASCII, or one for "
            "each label"
        ) from None
    lines = [line.strip() for line in lines if line.strip()]
    tokens: dict[str, str] = {}
    for line in lines or [""]:
        label, _, token = (part.strip() for part in line.rpartition(": "))
        if len(token) < TOKEN_LENGTH or not token.isprintable() or " " in token:
            raise ConfigError(
                f"token_file {settings.token_file} must hold one word of at least {TOKEN_LENGTH} printable characters, "
                "such as the output of: openssl rand -hex 32; or several lines, each a label, a colon and such a word"
            )
        if len(lines) > 1 and not label:
            raise ConfigError(
                f"token_file {settings.token_file} has several lines, so each needs a label: alice: TOKEN"
            )
        if label and (wrong := check_label(label)):
            raise ConfigError(f"token_file {settings.token_file}: {wrong}")
        if token in tokens:
            raise ConfigError(f"token_file {settings.token_file} has one token twice")
        tokens[token] = label
    return tokens


def key_place(settings: Settings) -> str:
    """Where the gateway has the upstream's key from, in a few words; empty if clients bring their own."""
    if settings.upstream_key_file:
        return settings.upstream_key_file
    return f"the environment variable {settings.upstream_key_env}" if settings.upstream_key_env else ""


def is_loopback(host: str) -> bool:
    """Whether listening on ``host`` reaches this machine only; any name but localhost counts as wider."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def unix_path(address: str) -> str:
    """The path in ``unix:PATH``; empty for all that is not of this form."""
    form, _, path = address.partition(":")
    return path if form == "unix" else ""


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None


def _from_text(name: str, text: str, source: str) -> Any:
    kind = _KINDS[name]
    if kind is bool:
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        raise ConfigError(f"{name} ({source}) must be true or false")
    if kind is int or kind is float:
        try:
            return kind(text)
        except ValueError:
            raise ConfigError(f"{name} ({source}) must be {_kind_words(name)}") from None
    if kind is str:
        return text
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _from_toml(name: str, value: Any, source: str) -> Any:
    if name in _TABLES:
        try:
            return parse_entries(value)
        except EntryWrong as error:
            raise ConfigError(f"{error} ({source})") from None
    kind = _KINDS[name]
    if kind is float and type(value) is int:
        return float(value)
    if kind in (str, int, float, bool):
        if type(value) is kind:
            return value
    elif isinstance(value, list) and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise ConfigError(f"{name} ({source}) must be {_kind_words(name)}")


def _kind_words(name: str) -> str:
    kind = _KINDS[name]
    words = {str: "a text", int: "a whole number", float: "a number of seconds", bool: "true or false"}
    return words.get(kind, "a list of texts")


def _close(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else "; see upwire serve --help for all settings"


def _check(settings: Settings, sources: Mapping[str, str]) -> None:
    def fail(name: str, rule: str) -> None:
        raise ConfigError(f"{name} ({sources[name]}) {rule}")

    for name, kind in _KINDS.items():
        value = getattr(settings, name)
        choices = _CHOICES[name]
        if choices and value not in choices:
            near = difflib.get_close_matches(value.lower(), choices, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            fail(name, f"must be one of {', '.join(choices)}{hint}")
        if kind is float and not math.isfinite(value):
            fail(name, "must be a finite number")
        if kind in (int, float) and (value < 0 or (value == 0 and name not in _MAY_BE_ZERO)):
            fail(name, "must not be negative" if name in _MAY_BE_ZERO else "must be greater than 0")
    if settings.port > 65535:
        fail("port", "must be between 0 and 65535")
    if not all(map(unix_path, settings.listen)):
        fail("listen", "must be unix:PATH; --host and --port say where to listen for TCP")
    if wrong := wrong_url(settings.upstream):
        fail("upstream", wrong)
    try:
        further_entries(settings)
    except EntryWrong as error:
        where = dict.fromkeys(sources[name] for name in ("route", "upstreams") if getattr(settings, name))
        raise ConfigError(f"{error} ({', '.join(where)})") from None
    if settings.upstream_key_file and settings.upstream_key_env:
        fail("upstream_key_env", "and upstream_key_file are both given; which of them holds the key?")
    if settings.upstream_key_env and not VARIABLE.fullmatch(settings.upstream_key_env):
        # Not quoted: it may be the key itself.
        fail("upstream_key_env", "must be the name of an environment variable, not the key")
    if settings.index and not settings.index.startswith(("redis://", "rediss://", "unix://")):
        # Not quoted: it may hold a password.
        fail(
            "index",
            "must be a URL such as redis://host:6379/0, rediss://host:6380/0 or unix:///path/redis.sock",
        )
    if settings.index and bool(settings.index_key_file) == bool(settings.index_key_env):
        fail(
            "index", "needs the secret that its gateways share: index_key_file or index_key_env, one of both"
        )
    if settings.index_key_env and not VARIABLE.fullmatch(settings.index_key_env):
        fail("index_key_env", "must be the name of an environment variable, not the secret")
    if not is_loopback(settings.host) and not (settings.allow_remote and settings.token_file):
        fail(
            "host",
            "is wider than loopback: anyone who reaches it could use the gateway. "
            "Give --allow-remote and --token-file FILE as well, or listen on 127.0.0.1",
        )
