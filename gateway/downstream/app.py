"""The HTTP application: which path is answered by whom, and the server that carries it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.downstream.guards import Guard
from gateway.downstream.malformed import (
    OnFailure,
    Server,
    answer_errors,
    error_response,
    method_not_allowed,
    not_found,
)
from gateway.downstream.passthrough import Relayed
from gateway.downstream.ways import Way
from gateway.settings import Settings
from gateway.upstream.local_paths import LocalPaths
from gateway.upstream.urls import RESPONSES, api_path

GUARD = web.AppKey("guard", Guard)
"""Where the application keeps its guard."""

_MAX_HEADERS = 256
_LINGER = 5.0
"""Seconds for which the rest of a body is thrown away, so that its sender gets to read why it was refused."""


def build_app(
    *,
    settings: Settings,
    ways: LocalPaths[Way],
    on_failure: OnFailure,
    admin_routes: Iterable[web.AbstractRouteDef] = (),
    tokens: Collection[str] = (),
    middlewares: Sequence[Middleware] = (),
) -> web.Application:
    """The application.

    ``ways`` answer what is the API's, ``admin_routes`` are our own paths. ``on_failure`` takes failures of the gateway itself, one of
    ``tokens`` is asked of every client if there are any, and ``middlewares`` run outermost.
    """
    guard = Guard(settings, ways, tokens=tokens)
    app = web.Application(
        middlewares=[*middlewares, answer_errors(on_failure), guard.middleware],
        client_max_size=settings.max_body,
    )
    app[GUARD] = guard
    app.on_response_prepare.append(own_headers_only)
    app.on_response_prepare.append(guard.on_prepare)
    ours: dict[str, set[str]] = {}
    for route in app.add_routes(admin_routes):
        if route.resource is not None:
            ours[route.resource.canonical] = {each.method for each in route.resource}

    async def handle(request: web.Request) -> web.StreamResponse:
        found = ways.find(request.raw_path)
        if found is not None:
            way, target = found
            if request.method == "POST" and api_path(target) == RESPONSES:
                return await way.respond(request, target)
            return await way.through(request, target)
        methods = ours.get(request.raw_path.partition("?")[0])
        if methods is not None:
            return error_response(method_not_allowed(), Allow=", ".join(sorted(methods)))
        return error_response(not_found(ways.further))

    app.router.add_route("*", "/{path:.*}", handle, expect_handler=_ask_later)
    return app


def build_runner(
    app: web.Application, settings: Settings, *, on_failure: OnFailure, shutdown_timeout: float = 5.0
) -> web.AppRunner:
    """A runner that serves ``app`` with malformed requests answered by us; ``shutdown_timeout`` in seconds.

    A handler is cancelled as soon as its client is gone, also before the head of the answer, and when its client has taken
    nothing of what waits for it for ``settings.client_timeout`` seconds.
    """
    return _Runner(
        app,
        shutdown_timeout=shutdown_timeout,
        handler_cancellation=True,
        server_options={
            "on_failure": on_failure,
            "client_timeout": settings.client_timeout,
            "auto_decompress": False,
            "access_log": None,
            "max_line_size": settings.max_header,
            "max_field_size": settings.max_header,
            "max_headers": _MAX_HEADERS,
            "lingering_time": _LINGER,
        },
    )


class _Runner(web.AppRunner):
    """The library's runner, whose public ``server`` is what listeners make connections with."""

    __slots__ = ("_front", "_options")

    def __init__(self, app: web.Application, *, server_options: dict[str, Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._options = server_options
        self._front: Server | None = None

    @property
    def server(self) -> web.Server | None:
        made = super().server
        if made is None:
            return None
        if self._front is None or self._front.made is not made:
            self._front = Server(made, **self._options)
        return self._front


async def _ask_later(_request: web.Request) -> None:
    """Do not send 100 Continue yet: a request may be refused before its body is wanted. Whoever reads the body asks for it."""


async def own_headers_only(request: web.Request, response: web.StreamResponse) -> None:
    """Take out what the library adds, and close where the end of the connection is what ends or secures an exchange."""
    given = response.given if isinstance(response, Relayed) else frozenset({"date", "content-type"})
    for name in ("Server", "Date", "Content-Type"):
        if name.lower() not in given:
            response.headers.popall(name, None)
    if isinstance(response, Relayed) and response.status == 304 and response.length is not None:
        response.headers["Content-Length"] = response.length
    if not request.content.is_eof():
        response.force_close()
        if request.version >= (1, 1):
            response.headers["Connection"] = "close"
    elif request.version < (1, 1) and "Content-Length" not in response.headers:
        # Only the end of the connection tells such a client that the body is over, even if it asked to keep it.
        response.force_close()
