"""How plain HTTP reaches the upstream: directly, through a proxy, or by the socket of another process of the gateway."""

from __future__ import annotations

import logging
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.upstream.proxy import Proxy
from gateway.upstream.tcp import ProxyRefused, open_tcp_through


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainOptions:
    """How to connect. Times in seconds, sizes in bytes.

    ``connect_timeout`` covers name, connection and TLS together; reading has no limit, since a model may think for many
    minutes. ``idle`` is for how long an unused connection may be reused: under the 5 seconds after which common servers close.
    ``tls`` is used for https and for a proxy that speaks TLS (None: the system's trust). ``unix`` is the path of a socket that
    everything goes to instead, whatever the URL's host.
    """

    connect_timeout: float = 10.0
    tls: ssl.SSLContext | None = None
    proxy: Proxy | None = None
    unix: str = ""
    idle: float = 4.0
    max_header: int = 64 * 1024


def http_proxy(proxy: Proxy | None) -> tuple[str | None, str | None]:
    """The URL of an HTTP proxy and what is told to it about who asks."""
    if proxy is None or proxy.is_socks:
        return None, None
    if proxy.username is None:
        return proxy.url, None
    return proxy.url, aiohttp.encode_basic_auth(proxy.username, proxy.password or "")


def connector(options: PlainOptions) -> aiohttp.BaseConnector:
    """What opens connections, and keeps them while they may be used again."""
    if options.unix:
        return aiohttp.UnixConnector(options.unix, limit=0, keepalive_timeout=options.idle)
    kept: dict[str, Any] = {"limit": 0, "keepalive_timeout": options.idle, "ssl": options.tls or True}
    if options.proxy is not None and options.proxy.is_socks:
        if all(hasattr(aiohttp.TCPConnector, name) for name in _REPLACED):
            return _ThroughSocks(options.proxy, **kept)
        logging.getLogger(__name__).warning(
            "This aiohttp cannot be led through a SOCKS proxy, so plain HTTP is refused; install the locked version"
        )
        return _Closed(**kept)
    return aiohttp.TCPConnector(**kept)


# Replaced, and used for what was opened.
_REPLACED = ("_wrap_create_connection", "_wrap_existing_connection")


class _Closed(aiohttp.TCPConnector):
    """Opens nothing: going around a proxy that was asked for would be worse."""

    async def connect(self, req: aiohttp.ClientRequest, *_arguments: Any, **_options: Any) -> Any:
        raise aiohttp.ClientConnectorError(req.connection_key, OSError())


class _ThroughSocks(aiohttp.TCPConnector):
    """Connects through a SOCKS proxy, in the one way that sockets use too.

    The library has no public place for a connection opened elsewhere; what it opens is replaced where it opens it.
    """

    def __init__(self, proxy: Proxy, **options: Any) -> None:
        super().__init__(resolver=_Unresolved(), use_dns_cache=False, **options)
        self._through = proxy

    async def _wrap_create_connection(
        self,
        *arguments: Any,
        addr_infos: list[Any],  # noqa: ARG002
        req: aiohttp.ClientRequest,
        **options: Any,
    ) -> Any:
        key = req.connection_key
        try:
            connected = await open_tcp_through(self._through, req.url.host or "", req.port or 0)
        except ProxyRefused:
            raise aiohttp.ClientHttpProxyError(req.request_info, (), status=403) from None
        except socket.gaierror as failure:
            raise aiohttp.ClientConnectorDNSError(key, failure) from None
        except OSError as failure:
            raise aiohttp.ClientConnectorError(key, failure) from None
        return await self._wrap_existing_connection(*arguments, sock=connected, req=req, **options)


class _Unresolved(AbstractResolver):
    """Looks nothing up: a name goes to the proxy, or is looked up on the way there."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [{"hostname": host, "host": "0.0.0.0", "port": port, "family": family, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass
