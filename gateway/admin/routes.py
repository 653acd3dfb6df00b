"""The paths beside the API, which tell about the gateway. None of them touches the upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import time
from typing import Any, Literal, Protocol

import orjson
from aiohttp import web

from gateway.admin import page
from gateway.admin.feed import WATCHERS, Feed
from gateway.admin.metrics import CONTENT_TYPE, Metrics, only

Phase = Literal["starting", "ready", "draining"]

PATHS = frozenset({"/stats", "/metrics", "/events", "/healthz", "/readyz", "/dashboard"})
"""Paths that are answered in every phase, and that are no turn."""

TICK = 1.0
"""Seconds between two states of the statistics in the event stream."""
TAKES_NOTHING = 30.0
"""Seconds for which a watcher may take nothing before it is dropped."""


class Everywhere(Protocol):
    """What all processes of one gateway tell together, whichever of them is asked."""

    @property
    def feed(self) -> Feed:
        """The turns of all."""

    async def stats(self) -> dict[str, Any]:
        """The value of ``/stats``."""

    async def metrics(self, label: str | None) -> bytes:
        """The text of ``/metrics``, with the numbers of one label or of all."""


def admin_routes(
    *,
    snapshot: Callable[[], dict[str, Any]],
    phase: Callable[[], Phase],
    metrics: Metrics,
    feed: Feed,
    may_see: Callable[[web.Request], str | None] = lambda _: None,
    everywhere: Everywhere | None = None,
) -> list[web.AbstractRouteDef]:
    """The routes; ``snapshot`` gives the value of ``/stats`` and ``phase`` where the process is in its life.

    ``may_see`` tells for a request the only label of the team whose numbers it is shown, None for all. ``everywhere`` answers
    instead where this is one of several processes.
    """

    async def seen() -> dict[str, Any]:
        return snapshot() if everywhere is None else await everywhere.stats()

    async def stats(request: web.Request) -> web.Response:
        return _json(only(may_see(request), await seen()))

    async def scrape(request: web.Request) -> web.Response:
        headers = {"content-type": CONTENT_TYPE, "cache-control": "no-store"}
        if everywhere is not None:
            return web.Response(body=await everywhere.metrics(may_see(request)), headers=headers)
        if not metrics.prepared:
            await asyncio.to_thread(metrics.prepare)
        return web.Response(body=metrics.render(may_see(request)), headers=headers)

    async def healthz(_request: web.Request) -> web.Response:
        # Liveness means that this process answers; an upstream that is down must not get it restarted.
        return _json({"status": "alive"})

    async def readyz(_request: web.Request) -> web.Response:
        now = phase()
        return _json({"status": now}, status=200 if now == "ready" else 503)

    async def dashboard(_request: web.Request) -> web.Response:
        return web.Response(body=page.body(), headers=page.headers())

    async def state(request: web.Request) -> bytes:
        return _event(
            "stats", only(may_see(request), await seen()) | {"phase": phase(), "at": round(time(), 3)}
        )

    return [
        web.get("/stats", stats),
        web.get("/metrics", scrape),
        web.get("/events", _events(feed if everywhere is None else everywhere.feed, state)),
        web.get("/healthz", healthz),
        web.get("/readyz", readyz),
        web.get("/dashboard", dashboard),
    ]


def _events(
    feed: Feed, state: Callable[[web.Request], Awaitable[bytes]]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of ``/events``: ``recent`` with all that is kept, then ``turn`` for each new one, and ``stats`` every second."""

    async def events(request: web.Request) -> web.StreamResponse:
        watcher = feed.watch()
        if watcher is None:
            message = f"This gateway is shutting down, or {WATCHERS} others watch already."
            refusal = {
                "error": {
                    "message": message,
                    "type": "service_unavailable_error",
                    "code": "too_many_watchers",
                }
            }
            return _json(refusal, status=503)
        try:
            response = web.StreamResponse(
                headers={"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}
            )
            # Whoever asks again shall not be bound to this process.
            response.force_close()
            await response.prepare(request)
            if request.method == "HEAD":
                return response
            loop = asyncio.get_running_loop()
            due = loop.time()
            while not feed.closed:
                wait = 0.0 if watcher.behind else max(0.0, due - loop.time())
                pieces = [_event("turn", turn) for turn in await watcher.news(wait)]
                if watcher.behind:
                    watcher.behind = False
                    pieces = [_event("recent", feed.recent())]
                if loop.time() >= due:
                    # Not once per turn: the percentiles cost something.
                    due = loop.time() + TICK
                    pieces.append(await state(request))
                if pieces:
                    async with asyncio.timeout(TAKES_NOTHING):
                        await response.write(b"".join(pieces))
        except (TimeoutError, ConnectionError):
            # Whoever watched is gone, or takes nothing.
            if request.transport is not None:
                request.transport.abort()
        finally:
            feed.leave(watcher)
        return response

    return events


def _event(kind: str, value: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(value))


def _json(value: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(
        body=orjson.dumps(value),
        status=status,
        content_type="application/json",
        headers={"cache-control": "no-store"},
    )
