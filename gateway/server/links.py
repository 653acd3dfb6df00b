"""What is opened for each upstream: the way there, its key, its client for plain HTTP, its part of the pool, who makes its turns."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from aiohttp import web

from gateway.downstream.passthrough import OnDeleted, Passthrough
from gateway.pool import Line
from gateway.settings import Settings, UpstreamEntry
from gateway.turn.call import Headers
from gateway.turn.driver import TurnDriver
from gateway.turn.shared import Shared
from gateway.upstream.deflate import Compression
from gateway.upstream.dial import DialOptions
from gateway.upstream.entries import all_entries, settings_for
from gateway.upstream.identity import CLIENT_KEYS, header_pairs, with_headers, with_key
from gateway.upstream.key import held_key
from gateway.upstream.liveness import Patience
from gateway.upstream.local_paths import LocalPaths
from gateway.upstream.plain import PlainHttp, PlainOptions
from gateway.upstream.profile import profile_of
from gateway.upstream.route import route_to

TOKEN_HEADER = "x-upwire-token"  # noqa: S105 (a name, no secret)
KEY_LOOK = 1.0
"""Seconds between two looks at the files that hold keys, for the sockets of upstreams that nobody asks for anything now."""


class Link:
    """One upstream of a running gateway. Usable once ``open`` has been called; ``close`` ends what that has opened.

    ``asks_token`` says that clients must present a token of the gateway. Raises NoRoute and KeyUnusable.
    """

    plain: PlainHttp
    driver: TurnDriver

    def __init__(
        self, entry: UpstreamEntry, settings: Settings, environment: Mapping[str, str], *, asks_token: bool
    ) -> None:
        self.entry = entry
        self.settings = settings_for(settings, entry)
        self.profile = profile_of(entry.url, entry.profile)
        self.line = Line(entry.name, self.profile.socket_age)
        self._route = route_to(
            entry.url,
            environment,
            proxy=settings.proxy,
            ca_file=settings.ca_file,
            client_cert=settings.client_cert,
            tls_minimum=settings.tls_minimum,
        )
        self.key = held_key(entry, environment)
        # Where no token is asked for, a header of that name tells nobody apart. A client's key that goes no further still does.
        keys = sorted(CLIENT_KEYS) if self.key is not None else []
        self._ours = [*([TOKEN_HEADER] if asks_token else []), *keys]

    def dial(self) -> DialOptions:
        """How its sockets are opened."""
        settings = self.settings
        return DialOptions(
            ssl=self._route.tls,
            proxy=self._route.proxy,
            dial_timeout=settings.dial_timeout,
            max_event=settings.max_event,
            compression=Compression(offered=settings.compression == "auto"),
            patience=Patience(
                ping_interval=settings.ping_interval,
                ping_timeout=settings.ping_timeout,
                write_timeout=settings.write_timeout,
            ),
        )

    def open(self, shared: Shared) -> None:
        """Be ready for requests; ``shared.pool`` must know the line."""
        self.plain = PlainHttp(
            PlainOptions(
                connect_timeout=self.settings.dial_timeout,
                tls=self._route.tls,
                proxy=self._route.proxy,
                max_header=self.settings.max_header,
            )
        )
        self.driver = TurnDriver(self.settings, shared, plain=self.plain, line=self.line, key=self.key)
        if self.key is not None:
            self.key.on_change = lambda: shared.pool.outdate(self.line)

    def reconfigure(self, settings: Settings) -> None:
        """Go on with other settings, from the next turn; those that say where the upstream is stay."""
        self.settings = settings_for(settings, self.entry)
        self.driver.reconfigure(self.settings)

    async def close(self) -> None:
        """Close what is no socket of the pool."""
        await self.plain.close()

    def presented(self, request: web.Request) -> str | None:
        """What a client presented to the gateway itself, None where nothing is asked for."""
        return "\n".join(request.headers.get(name, "") for name in self._ours) if self._ours else None

    def received(self, request: web.Request) -> Headers:
        """A request's headers for the upstream, with the operator's own and with the gateway's key."""
        headers = header_pairs(request.raw_headers)
        if self.entry.headers:
            headers = with_headers(headers, self.entry.headers)
        return headers if self.key is None else with_key(headers, self.key.current(), self.profile.key_header)

    def identify(self, request: web.Request, target: str) -> bytes:
        """Whose request it is."""
        return self.driver.identity(self.received(request), self.presented(request), target.partition("?")[2])

    def passthrough(self, on_deleted: OnDeleted) -> Passthrough:
        """What answers everything but turns."""
        return Passthrough(
            plain=self.plain,
            upstream=self.entry.url,
            received=self.received,
            identify=self.identify,
            on_deleted=on_deleted,
        )


def links_of(
    settings: Settings, environment: Mapping[str, str], *, tokens: Collection[str]
) -> LocalPaths[Link]:
    """A link for every upstream, none of them opened. Raises NoRoute, KeyUnusable and EntryWrong."""
    made = [Link(entry, settings, environment, asks_token=bool(tokens)) for entry in all_entries(settings)]
    return LocalPaths(made[0], {link.entry.path: link for link in made[1:]})


async def watch_keys(links: Iterable[Link]) -> None:
    """Take keys that have changed, also while nobody asks for anything."""
    keys = [link.key for link in links if link.key is not None and link.entry.key_file]
    while keys:
        await asyncio.sleep(KEY_LOOK)
        for key in keys:
            key.current()
