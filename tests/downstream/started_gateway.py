"""A started application in front of a raw upstream."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field, replace

from aiohttp import web

from gateway.downstream.app import build_app, build_runner
from gateway.downstream.body import read_body
from gateway.downstream.passthrough import Passthrough
from gateway.downstream.ways import Way
from gateway.settings import Settings
from gateway.upstream.identity import header_pairs, identity_digest
from gateway.upstream.local_paths import LocalPaths
from gateway.upstream.plain import PlainHttp, PlainOptions

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@dataclass
class Started:
    """A running gateway front."""

    port: int
    deleted: list[tuple[bytes, str]] = field(default_factory=list)
    failures: list[tuple[str, BaseException]] = field(default_factory=list)
    turns: list[bytes] = field(default_factory=list)


@contextlib.asynccontextmanager
async def start_gateway(upstream="http://127.0.0.1:9/v1", *, respond=None, token=None, **changes):
    """Start the application; ``respond`` answers turns, by default with the decoded body's size."""
    settings = replace(Settings(), upstream=upstream, **changes)
    started = Started(0)
    plain = PlainHttp(PlainOptions(connect_timeout=2))

    async def measure(request):
        body = await read_body(request, max_decoded=settings.max_body)
        started.turns.append(body)
        return web.json_response({"size": len(body)})

    def identify(request, _target):
        pairs = header_pairs(request.raw_headers)
        return identity_digest(b"k" * 32, settings.upstream, pairs, settings.per_request_headers, None)

    async def answer(request, _target):
        return await (respond or measure)(request)

    through = Passthrough(
        plain=plain,
        upstream=upstream,
        received=lambda request: header_pairs(request.raw_headers),
        identify=identify,
        on_deleted=lambda identity, name: started.deleted.append((identity, name)),
    ).handle

    async def stats(_request):
        return web.json_response({"ours": True})

    def on_failure(where, failure):
        started.failures.append((where, failure))

    app = build_app(
        settings=settings,
        ways=LocalPaths(Way(answer, through)),
        on_failure=on_failure,
        admin_routes=[web.get("/stats", stats), web.get("/healthz", stats)],
        tokens=() if token is None else (token,),
    )
    runner = build_runner(app, settings, on_failure=on_failure, shutdown_timeout=1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    await web.SockSite(runner, listener).start()
    started.port = listener.getsockname()[1]
    try:
        yield started
    finally:
        await runner.cleanup()
        await plain.close()
