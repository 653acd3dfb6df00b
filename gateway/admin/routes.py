"""The paths beside the API: ``/stats``, ``/healthz`` and ``/readyz``. None of them touches the upstream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import orjson
from aiohttp import web

Phase = Literal["starting", "ready", "draining"]

PATHS = frozenset({"/stats", "/metrics", "/healthz", "/readyz", "/dashboard"})
"""Paths that are answered in every phase, and that are no turn."""


def admin_routes(
    *, snapshot: Callable[[], dict[str, Any]], phase: Callable[[], Phase]
) -> list[web.AbstractRouteDef]:
    """The routes; ``snapshot`` gives the value of ``/stats`` and ``phase`` where the process is in its life."""

    async def stats(_request: web.Request) -> web.Response:
        return _json(snapshot())

    async def healthz(_request: web.Request) -> web.Response:
        # Liveness means that this process answers; an upstream that is down must not get it restarted.
        return _json({"status": "alive"})

    async def readyz(_request: web.Request) -> web.Response:
        now = phase()
        return _json({"status": now}, status=200 if now == "ready" else 503)

    return [web.get("/stats", stats), web.get("/healthz", healthz), web.get("/readyz", readyz)]


def _json(value: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(
        body=orjson.dumps(value),
        status=status,
        content_type="application/json",
        headers={"cache-control": "no-store"},
    )
