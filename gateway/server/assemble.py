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
from gateway.downstream.ways import Way
from gateway.index.opening import open_index
from gateway.pool import PoolLimits
from gateway.server.fellows import Fellows, Parts, part_of, team_part
from gateway.server.lifecycle import Gateway, Requests
from gateway.server.links import Link, links_of, watch_keys
from gateway.server.observe import Observation
from gateway.settings import Settings
from gateway.store import Store, StoreLimits
from gateway.tasks import Tasks
from gateway.turn.shared import Shared
from gateway.upstream.identity import header_pairs
from gateway.upstream.socket_pool import SocketPool
from gateway.upstream.team import Team, read_team

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
    links = links_of(settings, os.environ, tokens=tokens)
    main = links.main
    tasks = Tasks(log.failed)
    index = open_index(settings, os.environ, tasks, reloads=any(link.profile.reloads for link in links))
    pool = SocketPool(
        limits=_limits(settings), dial=main.dial(), tasks=tasks, line=main.line, on_event=log.SocketLog().line
    )
    for link in links:
        if link is not main:
            pool.add(link.line, link.dial())
    store = Store(_store_limits(settings))
    observed = Observation(settings, [link.entry for link in links])
    shared = Shared(
        settings,
        store=store,
        pool=pool,
        counter=observed.stats,
        team=team,
        index=index,
        key=None if fellows is None or index is not None else fellows.key,
    )
    for link in links:
        link.open(shared)
    observed.stats.members.name(team.labels)
    observed.of(shared, {link.entry: link.driver for link in links})
    requests = Requests()

    async def close() -> None:
        await pool.close()
        for link in links:
            await link.close()
        if index is not None:
            await index.close()
        await tasks.close()
        await observed.close()

    async def read(request: web.Request, take: Callable[[bytes], None]) -> None:
        await take_body(request, take, max_decoded=settings.max_body, patience=settings.client_timeout)

    elsewhere: Elsewhere | None = None
    everywhere: Everywhere | None = None
    on_deleted: OnDeleted = shared.deleted
    if fellows is not None:
        elsewhere, everywhere = fellows.meet(Parts(settings, links, shared, observed, requests, read))
        on_deleted = fellows.deleted

    def way(link: Link) -> Way:
        respond = responder(link.driver, read, link.presented, link.received, elsewhere=elsewhere)
        return Way(respond, link.passthrough(on_deleted).handle, keyed=link.key is not None)

    app = build_app(
        settings=settings,
        ways=links.map(way),
        on_failure=log.failed,
        admin_routes=admin_routes(
            snapshot=observed.snapshot,
            phase=lambda: requests.phase,
            metrics=observed.metrics,
            feed=observed.feed,
            everywhere=everywhere,
            may_see=lambda request: shared.parties.may_see(
                header_pairs(request.raw_headers), main.presented(request)
            ),
        ),
        tokens=tokens,
        middlewares=(requests.middleware,),
    )
    app.on_shutdown.append(observed.end)
    runner = build_runner(app, settings, on_failure=log.failed, shutdown_timeout=SHUTDOWN)
    tasks.spawn(watch_keys(links), name="watch keys")
    tasks.spawn(_let_go(store, settings.conversation_age), name="let go of conversations")

    def reconfigure(wanted: Settings) -> None:
        wanted = wanted if fellows is None else part_of(wanted, fellows.count)
        team = team_of(wanted)
        shared.parties.reconfigure(team)
        observed.stats.members.name(team.labels)
        shared.reconfigure(wanted)
        for link in links:
            link.reconfigure(wanted)
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
        socket_age=settings.socket_age,
        upgrade_memory=settings.upgrade_memory,
        warm=settings.warm,
    )
