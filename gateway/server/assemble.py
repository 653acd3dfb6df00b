"""Putting the parts of a gateway together: the only place that names them all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from time import monotonic

from aiohttp import web

from gateway import log
from gateway.admin import admin_routes
from gateway.admin.routes import Everywhere
from gateway.downstream.app import GUARD, build_app, build_runner
from gateway.downstream.body import take_body
from gateway.downstream.passthrough import OnDeleted
from gateway.downstream.responses import Elsewhere, responder
from gateway.index.opening import open_index
from gateway.pool import PoolLimits
from gateway.server.fellows import Fellows, Parts, part_of, team_part
from gateway.server.lifecycle import Gateway, Requests
from gateway.server.observe import Observation
from gateway.settings import Settings
from gateway.store import Store, StoreLimits
from gateway.tasks import Tasks
from gateway.turn.call import Headers
from gateway.turn.driver import TurnDriver
from gateway.upstream.deflate import Compression
from gateway.upstream.dial import DialOptions
from gateway.upstream.identity import CLIENT_KEYS, header_pairs, with_key
from gateway.upstream.key import upstream_key
from gateway.upstream.liveness import Patience
from gateway.upstream.plain import PlainHttp, PlainOptions
from gateway.upstream.profile import profile_of
from gateway.upstream.route import Route, route_to
from gateway.upstream.socket_pool import SocketPool
from gateway.upstream.team import Team, read_team

TOKEN_HEADER = "x-upwire-token"  # noqa: S105 (a name, no secret)
SHUTDOWN = 1.0
"""Seconds for the last bytes of answers, after the drain."""


def assemble(  # noqa: PLR0915 (it names every part once)
    settings: Settings, *, token: str | Mapping[str, str] | None, fellows: Fellows | None = None
) -> Gateway:
    """A gateway that is not listening yet; needs a running event loop.

    Raises NoRoute, KeyUnusable, TeamUnusable, IndexUnusable and NoTraces.
    ``token`` is what clients must present in ``x-upwire-token``, or several of which they must present one, each with its label;
    None or nothing where none is asked for. ``fellows`` are the other processes of a gateway of several, among which the limits of
    ``settings`` are divided.
    """
    if fellows is not None:
        settings = part_of(settings, fellows.count)
    tokens = {token: ""} if isinstance(token, str) else dict(token or {})

    def team_of(settings: Settings) -> Team:
        if fellows is not None:
            return team_part(fellows.team, fellows.count)
        return read_team(settings.team_file, tokens)

    team = team_of(settings)
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
    index = open_index(settings, os.environ, tasks, reloads=profile.reloads)
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
    driver = TurnDriver(
        settings,
        store=store,
        pool=pool,
        plain=plain,
        counter=observed.stats,
        team=team,
        index=index,
        key=None if fellows is None or index is not None else fellows.key,
    )
    observed.stats.members.name(team.labels)
    observed.of(store=store, pool=pool, driver=driver)
    requests = Requests()

    async def close() -> None:
        await pool.close()
        await plain.close()
        if index is not None:
            await index.close()
        await tasks.close()
        await observed.close()

    # Where no token is asked for, a header of that name tells nobody apart. A client's key that goes no further still does.
    ours = [*([TOKEN_HEADER] if tokens else []), *(sorted(CLIENT_KEYS) if key is not None else [])]

    def presented(request: web.Request) -> str | None:
        return "\n".join(request.headers.get(name, "") for name in ours) if ours else None

    def received(request: web.Request) -> Headers:
        headers = header_pairs(request.raw_headers)
        return headers if key is None else with_key(headers, key.current(), profile.key_header)

    async def read(request: web.Request, take: Callable[[bytes], None]) -> None:
        await take_body(request, take, max_decoded=settings.max_body, patience=settings.client_timeout)

    def identify(request: web.Request) -> bytes:
        query = request.raw_path.partition("?")[2]
        return driver.identity(received(request), presented(request), query)

    elsewhere: Elsewhere | None = None
    everywhere: Everywhere | None = None
    on_deleted: OnDeleted = driver.deleted
    if fellows is not None:
        parts = Parts(settings, driver, observed, requests, read, presented, received)
        elsewhere, everywhere = fellows.meet(parts)
        on_deleted = fellows.deleted

    app = build_app(
        settings=settings,
        plain=plain,
        respond=responder(driver, read, presented, received, elsewhere=elsewhere),
        received=received,
        identify=identify,
        on_deleted=on_deleted,
        on_failure=log.failed,
        admin_routes=admin_routes(
            snapshot=observed.snapshot,
            phase=lambda: requests.phase,
            metrics=observed.metrics,
            feed=observed.feed,
            everywhere=everywhere,
            may_see=lambda request: driver.parties.may_see(
                header_pairs(request.raw_headers), presented(request)
            ),
        ),
        tokens=tokens,
        middlewares=(requests.middleware,),
    )
    app.on_shutdown.append(observed.end)
    runner = build_runner(app, settings, on_failure=log.failed, shutdown_timeout=SHUTDOWN)
    tasks.spawn(_let_go(store, settings.conversation_age), name="let go of conversations")

    def reconfigure(wanted: Settings) -> None:
        wanted = wanted if fellows is None else part_of(wanted, fellows.count)
        team = team_of(wanted)
        driver.parties.reconfigure(team)
        observed.stats.members.name(team.labels)
        driver.reconfigure(wanted)
        pool.reconfigure(_limits(wanted))
        store.reconfigure(_store_limits(wanted), monotonic())
        app[GUARD].reconfigure(wanted)
        observed.reconfigure(wanted)

    def let_go() -> None:
        app[GUARD].leaving = True
        # Whoever watches comes again, and finds the other process.
        observed.feed.close()

    return Gateway(requests=requests, runner=runner, close=close, reconfigure=reconfigure, let_go=let_go)


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
        warm=settings.warm,
    )


def _dial(settings: Settings, route: Route) -> DialOptions:
    return DialOptions(
        ssl=route.tls,
        proxy=route.proxy,
        dial_timeout=settings.dial_timeout,
        max_event=settings.max_event,
        compression=Compression(offered=settings.compression == "auto"),
        patience=Patience(
            ping_interval=settings.ping_interval,
            ping_timeout=settings.ping_timeout,
            write_timeout=settings.write_timeout,
        ),
    )
