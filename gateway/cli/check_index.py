"""The step of ``upwire check`` that looks at the index which several gateways share."""

from __future__ import annotations

import os
import secrets
import time

from gateway.cli.check_upstream import Row
from gateway.cli.config import shown
from gateway.index.health import REMEDIES
from gateway.index.opening import IndexUnusable, index_secret, open_server
from gateway.settings import Settings
from gateway.upstream.profile import profile_of

TRIAL = 5.0
"""Seconds for which what is written in trying is kept."""


async def index_row(settings: Settings) -> Row:
    """Whether the index answers, in time, and takes data."""
    where = shown(settings.index)
    try:
        index_secret(settings.index_key_file, settings.index_key_env, os.environ)
        server = open_server(settings.index)
    except IndexUnusable as error:
        return Row("index", "failed", str(error), "Correct it; see several gateways in deploy/README.md.")
    from gateway.index.redis_server import DIAL, Unanswered, put  # noqa: PLC0415 (optional, and slow to import)

    try:
        await server.ping(DIAL)
        began = time.perf_counter()
        await server.ping(DIAL)
        took = (time.perf_counter() - began) / 2
        (written,) = await server.do([put(secrets.token_bytes(16), b"upwire check", TRIAL, over=False)])
        if isinstance(written, Unanswered):
            raise written
    except Unanswered as error:
        return Row("index", "failed", f"{where}: {error.cause}", REMEDIES[error.cause] + ".")
    finally:
        await server.close()
    seen = f"{where} answers in {took * 1000:.1f} ms and takes data"
    if took > settings.index_timeout / 4:
        # A look-up asks up to three times, and has to find a free moment of this process as well.
        return Row(
            "index", "warning", seen, "That is slow for index_timeout; a nearer one, or more patience."
        )
    if not profile_of(settings.upstream, settings.profile).reloads:
        remedy = "This upstream continues a response only where it was made, so there is nothing to share; see profile."
        return Row("index", "warning", seen, remedy)
    return Row("index", "ok", seen)
