"""Reaching a running gateway from a command: where it is, and what it says."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import IO, Any

import click

from gateway.settings import Settings

TIMEOUT = 5.0
"""Seconds without a byte after which a gateway counts as gone; its event stream brings something every second."""


class TokenAsked(click.ClickException):
    """The gateway does not answer without its token."""


def base_url(settings: Settings) -> str:
    """Where a gateway with these settings is reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host.strip("[]"), settings.host.strip("[]"))
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def without_root(url: str) -> str:
    """The gateway's own root, when a user gives the base URL that clients have."""
    return url.rstrip("/").removesuffix("/v1")


def fetch(base: str, token: str | None = None) -> dict[str, Any]:
    """The value of ``/stats`` of the gateway at ``base``. Raises click.ClickException in one sentence."""
    with _open(base, "/stats", token) as answer:
        try:
            seen = json.load(answer)
        except ValueError:
            seen = None
        except (OSError, http.client.HTTPException):
            raise click.ClickException(f"{base}/stats broke off") from None
    if not isinstance(seen, dict) or "turns" not in seen:
        raise click.ClickException(f"{base}/stats did not answer with statistics; is that an upwire gateway?")
    return seen


def events(base: str, token: str | None = None) -> Iterator[tuple[str, Any]]:
    """What happens in the gateway at ``base``, as kinds of events with their values, until it ends.

    Raises click.ClickException in one sentence if there is no such stream.
    """
    with _open(base, "/events", token) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            raise click.ClickException(f"{base}/events is no event stream; is that an upwire gateway?")
        kind = ""
        try:
            for line in answer:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)
        except (OSError, ValueError, http.client.HTTPException):
            return


def _open(base: str, path: str, token: str | None) -> Any:
    if not base.startswith(("http://", "https://")):
        raise click.UsageError("--url must begin with http:// or https://")
    # What this machine does is never asked for through a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(base + path, headers={"x-upwire-token": token} if token else {})  # noqa: S310
    try:
        answer: IO[bytes] = opener.open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 401:
            raise TokenAsked(f"{base} asks for its token: give --token-file") from None
        raise click.ClickException(
            f"{base}{path} answered {error.code}; is that an upwire gateway?"
        ) from None
    except (OSError, http.client.HTTPException):
        raise click.ClickException(
            f"{base}{path} cannot be reached; is upwire serve running there?"
        ) from None
    return answer
