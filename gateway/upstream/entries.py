"""The upstreams of a gateway: what an entry of the configuration says of one, and whether that makes sense.

The main one has no entry: the settings ``upstream``, ``profile`` and ``upstream_key_file`` say where it is, and it is found under ``/v1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any
from urllib.parse import urlsplit

from gateway.settings import MAIN, Settings, UpstreamEntry
from gateway.upstream.identity import CLIENT_KEYS, HOP_BY_HOP, OWN_PREFIX
from gateway.upstream.profile import AUTO, PROFILES

MAIN_PATH = "/v1"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]{1,80}", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
"""What the name of an environment variable looks like."""
_KEYS = tuple(f.name for f in fields(UpstreamEntry) if f.name != "name")
_OURS = frozenset({"stats", "metrics", "events", "healthz", "readyz", "dashboard", "-"})
_ROOTS = frozenset({"v1", "openai", "responses"})
"""Where clients of the main upstream may look for it."""
_NOT_TO_SET = HOP_BY_HOP | {
    "host",
    "expect",
    "content-length",
    "content-encoding",
    "content-type",
    "idempotency-key",
}
_MOST = 64
"""Upstreams beside the main one; each has connections, a label in the statistics and a place in every look-up of a path."""


class EntryWrong(Exception):
    """An entry makes no sense. The text says which and what would be right, and quotes no value that may be a secret."""


def parse_entries(tables: Any) -> tuple[UpstreamEntry, ...]:
    """The entries of the tables ``[upstreams.NAME]``, each right in itself. Raises EntryWrong."""
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise EntryWrong("upstreams must be tables, [upstreams.NAME], each with path and url")
    return tuple(_parsed(name, table) for name, table in tables.items())


def routed(text: str) -> UpstreamEntry:
    """The entry that ``PATH=URL`` stands for; its name is made of the path. Raises EntryWrong."""
    path, sign, url = text.partition("=")
    if not sign or not path.startswith("/"):
        # Not quoted: its query may hold a key.
        raise EntryWrong("route must be PATH=URL, such as /xai/v1=https://api.x.ai/v1")
    named = re.sub(r"[^A-Za-z0-9_-]", "-", path).strip("-_")[:40]
    entry = UpstreamEntry(name="route" if named in {"", MAIN} else named, path=path, url=url)
    _check(entry, f"route {path}")
    return entry


def further_entries(settings: Settings) -> tuple[UpstreamEntry, ...]:
    """All upstreams but the main one. Raises EntryWrong."""
    entries = (*settings.upstreams, *map(routed, settings.route))
    if len(entries) > _MOST:
        raise EntryWrong(f"there may be {_MOST} further upstreams at most")
    for number, entry in enumerate(entries):
        for other in entries[:number]:
            _compare(other, entry)
    return entries


def all_entries(settings: Settings) -> tuple[UpstreamEntry, ...]:
    """Every upstream, the main one first, as if it had an entry. Raises EntryWrong."""
    main = UpstreamEntry(
        name=MAIN,
        path=MAIN_PATH,
        url=settings.upstream,
        profile=settings.profile,
        key_file=settings.upstream_key_file,
        key_env=settings.upstream_key_env,
    )
    return main, *further_entries(settings)


def settings_for(settings: Settings, entry: UpstreamEntry) -> Settings:
    """The settings of a gateway that had ``entry`` as its only upstream."""
    return replace(
        settings,
        upstream=entry.url,
        profile=entry.profile,
        upstream_key_file=entry.key_file,
        upstream_key_env=entry.key_env,
        upstreams=(),
        route=(),
    )


def revived(told: Iterable[Mapping[str, Any]]) -> tuple[UpstreamEntry, ...]:
    """Entries that went through JSON as dictionaries."""
    return tuple(
        UpstreamEntry(**{**each, "headers": tuple((name, value) for name, value in each["headers"])})
        for each in told
    )


def wrong_url(url: str) -> str | None:
    """What is wrong with the URL of an upstream, without quoting it: its query or user part may hold a key."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "must be a URL such as https://api.openai.com/v1"
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return "must be an http or https URL such as https://api.openai.com/v1"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user name or password; clients send their own key, or see upstream_key_file"
    if parts.fragment or any(c.isspace() for c in url):
        return "must not hold a fragment or a space"
    return None


def _parsed(name: str, table: Mapping[str, Any]) -> UpstreamEntry:
    where = f"upstreams.{name}" if _NAME.fullmatch(name) else "upstreams"
    if where == "upstreams" or name == MAIN:
        raise EntryWrong(
            f"{where}: a name has at most 40 letters, digits, - and _, begins with a letter or digit, and is not {MAIN}"
        )
    if unknown := table.keys() - set(_KEYS):
        # Not quoted: it may be a key in the wrong place.
        raise EntryWrong(f"{where} has {len(unknown)} entries that are none of {', '.join(_KEYS)}")
    for key in _KEYS:
        kind, words = (dict, "a table of texts") if key == "headers" else (str, "a text")
        if key in table and not isinstance(table[key], kind):
            raise EntryWrong(f"{key} of {where} must be {words}")
    if not table.get("path") or not table.get("url"):
        raise EntryWrong(f"{where} needs path, where clients find it here, and url, where it is")
    headers = table.get("headers", {})
    if not all(isinstance(value, str) for value in headers.values()):
        raise EntryWrong(f"headers of {where} must be a table of texts")
    entry = UpstreamEntry(**{**table, "name": name, "headers": tuple(headers.items())})
    _check(entry, where)
    return entry


def _check(entry: UpstreamEntry, where: str) -> None:
    _check_path(entry.path, where)
    if wrong := wrong_url(entry.url):
        raise EntryWrong(f"the url of {where} {wrong}")
    if entry.profile != AUTO and entry.profile not in PROFILES:
        raise EntryWrong(f"profile of {where} must be one of {', '.join((AUTO, *PROFILES))}")
    if entry.key_file and entry.key_env:
        raise EntryWrong(f"{where} has both key_file and key_env; which of them holds the key?")
    if entry.key_env and not VARIABLE.fullmatch(entry.key_env):
        raise EntryWrong(f"key_env of {where} must be the name of an environment variable, not the key")
    names = [name.lower() for name, _ in entry.headers]
    for name, value in entry.headers:
        _check_header(name, value, where)
    if len(set(names)) != len(names):
        raise EntryWrong(f"headers of {where} has one name twice")


def _check_path(path: str, where: str) -> None:
    segments = path.split("/")[1:]
    if not path.startswith("/") or not all(map(_SEGMENT.fullmatch, segments)) or {".", ".."} & set(segments):
        raise EntryWrong(
            f"path of {where} must be a path such as /azure/openai/v1, of letters, digits, -, ., _ and ~, without a final slash"
        )
    if segments[0] in _ROOTS:
        raise EntryWrong(
            f"path of {where} begins with /{segments[0]}, where clients find the main upstream (the setting upstream); "
            f"put a name before it, such as /other{path}"
        )
    if segments[0] in _OURS:
        raise EntryWrong(
            f"path of {where} begins with /{segments[0]}, which the gateway answers itself; choose another path"
        )


def _check_header(name: str, value: str, where: str) -> None:
    low = name.lower()
    if (
        not _HEADER.fullmatch(name)
        or not value.isascii()
        or not value.isprintable()
        or value != value.strip()
    ):
        raise EntryWrong(
            f"headers of {where} must have names of letters, digits and - and values of printable ASCII, without spaces around them"
        )
    if low in CLIENT_KEYS:
        raise EntryWrong(
            f"headers of {where} has {low}, which carries a key; put the key into a file or a variable, and name that by key_file or "
            "key_env"
        )
    if low in _NOT_TO_SET or low.startswith((OWN_PREFIX, "sec-websocket-")):
        raise EntryWrong(f"headers of {where} has {low}, which the gateway or the connection decides")


def _compare(one: UpstreamEntry, other: UpstreamEntry) -> None:
    if one.name == other.name:
        raise EntryWrong(f"two upstreams are called {one.name}; rename one, or change the path of its route")
    if f"{one.path}/".startswith(f"{other.path}/") or f"{other.path}/".startswith(f"{one.path}/"):
        raise EntryWrong(
            f"upstreams {one.name} and {other.name} have paths of which one holds the other, {one.path} and {other.path}; a request "
            "must lead to one of them"
        )


__all__ = [
    "MAIN_PATH",
    "VARIABLE",
    "EntryWrong",
    "all_entries",
    "further_entries",
    "parse_entries",
    "revived",
    "routed",
    "settings_for",
    "wrong_url",
]
