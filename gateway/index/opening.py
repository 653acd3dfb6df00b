"""Opening the shared index that the settings name: its secret, its server, and what makes a deployment one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from gateway import __version__
from gateway.index.names import LONGEST_SECRET, Deployment
from gateway.settings import Settings
from gateway.tasks import Tasks

if TYPE_CHECKING:
    from gateway.index.redis_server import RedisServer
    from gateway.index.shared import SharedIndex

SHORTEST_SECRET = 32
"""Characters of a secret that nobody guesses."""


class IndexUnusable(Exception):
    """The shared index cannot be used as the settings say; the text says why, and quotes neither secret nor URL."""


def open_index(
    settings: Settings, environment: Mapping[str, str], tasks: Tasks, *, reloads: bool
) -> SharedIndex | None:
    """The index of these settings; None where none is set, or where it is of no use. Nothing is waited for. Raises IndexUnusable.

    ``reloads`` says whether the upstream continues a stored response on any socket; without that nothing can be shared.
    """
    if not settings.index:
        return None
    secret = index_secret(settings.index_key_file, settings.index_key_env, environment)
    if not reloads:
        structlog.get_logger("upwire").warning(
            "shared_index",
            state="unused",
            remedy="this upstream continues a response only where it was made, so gateways have nothing to share; see profile",
        )
        return None
    server = open_server(settings.index)
    from gateway.index.shared import SharedIndex  # noqa: PLC0415 (takes redis with it)

    # Another version may read items otherwise.
    deployment = Deployment(secret, __version__)
    return SharedIndex(
        server, deployment, timeout=settings.index_timeout, age=settings.conversation_age, tasks=tasks
    )


def open_server(url: str) -> RedisServer:
    """The server at ``url``, not connected yet. Raises IndexUnusable."""
    try:
        from gateway.index.redis_server import RedisServer  # noqa: PLC0415 (optional, and slow to import)
    except ImportError:
        raise IndexUnusable(
            "index needs a package that is not installed: pip install 'upwire[redis]'"
        ) from None
    try:
        return RedisServer(url)
    except (ValueError, TypeError):
        raise IndexUnusable(
            "index must be a URL such as redis://host:6379/0, rediss://... or unix:///path"
        ) from None


def index_secret(file: str, variable: str, environment: Mapping[str, str]) -> bytes:
    """The secret of the deployment. Raises IndexUnusable."""
    if bool(file) == bool(variable):
        raise IndexUnusable(
            "index needs a secret that all gateways of a deployment share: set index_key_file or index_key_env, one of both"
        )
    try:
        if file:
            with Path(file).open("rb") as opened:
                secret = opened.read(LONGEST_SECRET).strip()
        else:
            secret = environment.get(variable, "").strip().encode()
    except OSError as error:
        raise IndexUnusable(f"index_key_file {file} cannot be read ({type(error).__name__})") from None
    if len(secret) < SHORTEST_SECRET:
        where = f"index_key_file {file}" if file else "the environment variable that index_key_env names"
        raise IndexUnusable(
            f"{where} must hold at least {SHORTEST_SECRET} characters, such as the output of: openssl rand -hex 32"
        )
    return secret
