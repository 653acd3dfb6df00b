"""Putting the parts of a gateway together: the only place that names them all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from time import monotonic

from aiohttp import web

from gateway import log
from gateway.admin import admin_routes
from gateway.downstream.app import GUARD, build_app, build_runner
from gateway.downstream.body import take_body
from gateway.downstream.responses import responder
from gateway.pool import PoolLimits
from gateway.server.lifecycle import Gateway, Requests
from gateway.server.observe import Observation
from gateway.settings import Settings
from gateway.store import Store, StoreLimits
from gateway.tasks import Tasks
from gateway.turn.call import Headers
from gateway.turn.driver import TurnDriver
from gateway.upstream.dial import DialOptions
from gateway.upstream.identity import CLIENT_KEYS, header_pairs, with_key
from gateway.upstream.key import upstream_key
from gateway.upstream.liveness import Patience
from gateway.upstream.plain import PlainHttp, PlainOptions
from gateway.upstream.profile import profile_of
from gateway.upstream.route import Route, route_to
from gateway.upstream.socket_pool import SocketPool

TOKEN_HEADER = "x-upwire-token"  # noqa: S105 (a name, no secret)
SHUTDOWN = 1.0
"""Seconds for the last bytes of answers, after the drain."""


def assemble(settings: Settings, *, token: str | None) -> Gateway:
    """A gateway that is not listening yet; needs a running event loop. Raises NoRoute, KeyUnusable and NoTraces.

    ``token`` is what clients must present in ``x-upwire-token``, or None where none is asked for.
    """
    route = route_to(
        settings.upstream,
        os.environ,
        proxy=settings.proxy,
        ca_file=settings.ca_file,
        client_cert=settings.client_cert,
        tls_minimum=settings.tls_minimum,
    )
    profile = profile_of(settings.upstream, settings.profile)
    key = upstream_key(settings.upstream_key_file, settings.upstream_key_env, os.environ)
    tasks = Tasks(log.failed)
    plain = PlainHttp(
        PlainOptions(
            connect_timeout=settings.dial_timeout,
            tls=route.tls,
            proxy=route.proxy,
            max_header=settings.max_header,
        )
    )
    pool = SocketPool(
        limits=_limits(settings), dial=_dial(settings, route), tasks=tasks, on_event=log.SocketLog().line
    )
    store = Store(_store_limits(settings))
    observed = Observation(settings)
    driver = TurnDriver(settings, store=store, pool=pool, plain=plain, counter=observed.stats)
    observed.of(store=store, pool=pool, driver=driver)
    requests = Requests()

    async def close() -> None:
        await pool.close()
        await plain.close()
        await tasks.close()
        await observed.close()

    # Where no token is asked for, a header of that name tells nobody apart. A client's key that goes no further still does.
    ours = [*([TOKEN_HEADER] if token is not None else []), *(sorted(CLIENT_KEYS) if key is not None else [])]

    def presented(request: web.Request) -> str | None:
        return "\n".join(request.headers.get(name, "") for name in ours) if ours else None

    def received(request: web.Request) -> Headers:
        headers = header_pairs(request.raw_headers)
        return headers if key is None else with_key(headers, key.current(), profile.key_header)

    async def read(request: web.Request, take: Callable[[bytes], None]) -> None:
        await take_body(request, take, max_decoded=settings.max_body)

    def identify(request: web.Request) -> bytes:
        query = request.raw_path.partition("?")[2]
        return driver.identity(received(request), presented(request), query)

    def deleted(identity: bytes, response_id: str) -> None:
        store.delete(identity, response_id)
        pool.forget(identity, response_id)

    app = build_app(
        settings=settings,
        plain=plain,
        respond=responder(driver, read, presented, received),
        received=received,
        identify=identify,
        on_deleted=deleted,
        on_failure=log.failed,
        admin_routes=admin_routes(
            snapshot=observed.snapshot,
            phase=lambda: requests.phase,
            metrics=observed.metrics,
            feed=observed.feed,
        ),
        token=token,
        middlewares=(requests.middleware,),
    )
    app.on_shutdown.append(observed.end)
    runner = build_runner(app, settings, on_failure=log.failed, shutdown_timeout=SHUTDOWN)
    tasks.spawn(_let_go(store, settings.conversation_age), name="let go of conversations")

    def reconfigure(wanted: Settings) -> None:
        driver.reconfigure(wanted)
        pool.reconfigure(_limits(wanted))
        store.reconfigure(_store_limits(wanted), monotonic())
        app[GUARD].reconfigure(wanted)
        observed.reconfigure(wanted)

    return Gateway(requests=requests, runner=runner, close=close, reconfigure=reconfigure)


async def _let_go(store: Store, age: float) -> None:
    """Drop conversations that were unused for ``age`` seconds, also while nobody asks for anything."""
    while True:
        await asyncio.sleep(max(0.02, min(60.0, age / 20)))
        store.expire(monotonic())


def _store_limits(settings: Settings) -> StoreLimits:
    return StoreLimits(
        responses=settings.conversations,
        items=settings.conversation_items,
        age=settings.conversation_age,
    )


def _limits(settings: Settings) -> PoolLimits:
    return PoolLimits(
        sockets_per_identity=settings.sockets_per_identity,
        sockets=settings.sockets,
        socket_wait=settings.socket_wait,
        socket_idle=settings.socket_idle,
        socket_age=min(settings.socket_age, profile_of(settings.upstream, settings.profile).socket_age),
        upgrade_memory=settings.upgrade_memory,
    )


def _dial(settings: Settings, route: Route) -> DialOptions:
    return DialOptions(
        ssl=route.tls,
        proxy=route.proxy,
        dial_timeout=settings.dial_timeout,
        max_event=settings.max_event,
        patience=Patience(
            ping_interval=settings.ping_interval,
            ping_timeout=settings.ping_timeout,
            write_timeout=settings.write_timeout,
        ),
    )
