"""Opening an upstream socket, with every way in which that fails sorted into a closed set."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect
from websockets.client import ClientProtocol
from websockets.exceptions import (
    InvalidHandshake,
    InvalidHeaderValue,
    InvalidMessage,
    InvalidProxyStatus,
    InvalidURI,
    NegotiationError,
    ProxyError,
    WebSocketException,
)
from websockets.uri import parse_uri

from gateway.upstream.deflate import Compression
from gateway.upstream.liveness import Patience
from gateway.upstream.proxy import Proxy
from gateway.upstream.socket import UpstreamSocket
from gateway.upstream.tcp import ProxyRefused, open_tcp, open_tcp_through

# At debug level the library logs headers and frames, keys and prompts with them: its records go nowhere.
_SILENT = logging.Logger("upwire.upstream.silent", logging.CRITICAL + 1)  # noqa: LOG001

_SET_BY_THE_HANDSHAKE = frozenset(
    {
        "host", "connection", "upgrade", "content-length", "content-type", "content-encoding", "transfer-encoding",
        "te", "trailer", "expect", "keep-alive", "proxy-connection",
    }
)  # fmt: skip
_UNSENT_LIMIT = 128 * 1024


class Refusal(StrEnum):
    """Why a socket could not be opened."""

    STATUS = "status"
    """The upgrade was answered with an HTTP status other than 101."""
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    EOF = "eof"
    """The connection was closed before the upgrade was answered."""
    PROTOCOL = "protocol"
    """The answer to the upgrade was not what WebSocket asks for."""
    PROXY = "proxy"
    """The proxy answered, and does not let this connection pass."""
    URL = "bad_url"
    HEADERS = "bad_headers"


class UpgradeRefused(Exception):
    """No socket: the upstream refused the upgrade or could not be reached; nothing of the turn was sent.

    ``status`` is the HTTP status of the refusal, or None. ``reason`` is a word of Refusal, or ``closed_early``.
    ``remembered`` says that it was an earlier dial's, and that none was made now.
    """

    def __init__(self, status: int | None, reason: str, *, remembered: bool = False) -> None:
        super().__init__(f"upgrade refused: {reason}" + (f" {status}" if status is not None else ""))
        self.status = status
        self.reason = reason
        self.remembered = remembered


@dataclass(frozen=True, slots=True)
class DialOptions:
    """How sockets are opened and kept. ``dial_timeout`` (seconds) covers connecting, TLS and the upgrade together.

    ``ssl`` is used for wss URLs and for a proxy that speaks TLS (None: the system's trust); ``max_event`` bounds one message,
    unpacked. By default no ``compression`` is offered.
    """

    ssl: ssl.SSLContext | None = None
    proxy: Proxy | None = None
    dial_timeout: float = 10.0
    max_event: int = 128 * 1024 * 1024
    patience: Patience = field(default_factory=Patience)
    compression: Compression = field(default_factory=lambda: Compression(offered=False))


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow none: a redirect could carry the key to another origin, so it is a refusal."""
        return exc

    async def open_tcp_connection(self) -> ClientConnection:
        """On loops other than Python's own nothing shows what waits below TLS, so there TLS begins on a connection that is ours.

        What the library opens itself (through an HTTP proxy) stays dark: of a frame that moves slowly there, no progress is seen.
        """
        loop = asyncio.get_running_loop()
        kwargs = self.create_connection_kwargs
        sock = kwargs.get("sock")
        if isinstance(loop, asyncio.BaseEventLoop) or sock is None or not self.ws_uri.secure:
            return await super().open_tcp_connection()
        context = kwargs.get("ssl") or ssl.create_default_context()
        below, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
        connection = self.factory(self.ws_uri)
        assert isinstance(connection, UpstreamSocket)  # noqa: S101 (it is made by ``create`` below)
        try:
            transport = await loop.start_tls(below, connection, context, server_hostname=self.ws_uri.host)
        except BaseException:
            below.abort()
            raise
        assert transport is not None  # noqa: S101 (only a connection that is closing has none, and this one raised then)
        connection.below_tls = below
        connection.connection_made(transport)
        return connection


async def dial(url: str, headers: Iterable[tuple[str, str]], options: DialOptions) -> UpstreamSocket:
    """Open a socket to the ws or wss ``url`` with ``headers`` beside those of the handshake.

    The caller owns the socket and must ``start`` it and in the end close or abort it. Raises UpgradeRefused.
    """
    try:
        return await _dial(url, headers, options)
    except _BadAgreement:
        options.compression.failed()
    return await _dial(url, headers, options)


class _BadAgreement(Exception):
    """The upstream answered the offer of compression in a way that cannot be used."""


async def _dial(url: str, headers: Iterable[tuple[str, str]], options: DialOptions) -> UpstreamSocket:
    opened: list[UpstreamSocket] = []

    def create(protocol: ClientProtocol, **kwargs: Any) -> ClientConnection:
        opened.append(UpstreamSocket(protocol, patience=options.patience, **kwargs))
        return opened[-1]

    offer = options.compression.offer()
    deadline = asyncio.get_running_loop().time() + options.dial_timeout
    connected: socket.socket | None = None
    try:
        way: dict[str, Any] = {"ssl": options.ssl} if options.ssl and url[:4].lower() == "wss:" else {}
        if options.proxy is not None and not options.proxy.is_socks:
            way["proxy"] = _with_credentials(options.proxy)
            if options.proxy.scheme == "https" and options.ssl is not None:
                way["proxy_ssl"] = options.ssl
        else:
            async with asyncio.timeout_at(deadline):
                way["sock"] = connected = await _connect_tcp(url, options.proxy)
        connector = _Connect(
            url,
            additional_headers=_handshake_headers(headers),
            user_agent_header=None,
            compression=None,
            extensions=offer or None,
            open_timeout=max(0.001, deadline - asyncio.get_running_loop().time()),
            ping_interval=None,
            ping_timeout=None,
            close_timeout=options.patience.close_timeout,
            max_size=options.max_event,
            max_queue=None,
            logger=_SILENT,
            create_connection=create,  # type: ignore[arg-type]
            **{"proxy": None, **way},
        )
        await connector
    except (OSError, WebSocketException, ValueError, ProxyRefused, AssertionError) as failure:
        # The library asserts what does not hold where a connection ends while the request for the upgrade is being written.
        if isinstance(failure, NegotiationError) and offer:
            raise _BadAgreement from None
        status = opened[-1].refused_status if opened else None
        reason = Refusal.STATUS if status is not None else _reason(failure)
    else:
        _bound_kernel_buffer(opened[-1])
        return opened[-1]
    finally:
        if connected is not None and not opened:
            connected.close()
    # Outside the handler, so that texts of the failure, which can quote headers, are not chained to it.
    raise UpgradeRefused(status, reason.value)


async def _connect_tcp(url: str, proxy: Proxy | None) -> socket.socket:
    upstream = parse_uri(url)
    if proxy is None:
        return await open_tcp(upstream.host, upstream.port)
    return await open_tcp_through(proxy, upstream.host, upstream.port)


def _with_credentials(proxy: Proxy) -> str:
    """An HTTP proxy's URL as the library wants it, which decodes the credentials again."""
    if proxy.username is None:
        return proxy.url
    credentials = f"{quote(proxy.username, safe='')}:{quote(proxy.password or '', safe='')}"
    return proxy.url.replace("://", f"://{credentials}@", 1)


def _handshake_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers that may go up, with bytes beyond ASCII as they came (the server reads them as UTF-8)."""
    return [
        (name, value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("latin-1"))
        for name, value in headers
        if (lower := name.lower()) not in _SET_BY_THE_HANDSHAKE and not lower.startswith("sec-websocket-")
    ]


def _reason(failure: Exception) -> Refusal:
    if isinstance(failure, TimeoutError):
        return Refusal.TIMEOUT
    if isinstance(failure, socket.gaierror):
        return Refusal.DNS
    if isinstance(failure, ssl.SSLError):
        return Refusal.TLS
    if isinstance(failure, InvalidProxyStatus) and failure.response.status_code >= 500:
        # The proxy is willing, and did not reach the upstream.
        return Refusal.CONNECT
    if isinstance(failure, (ProxyError, ProxyRefused)):
        return Refusal.PROXY
    if isinstance(failure, OSError):
        return Refusal.CONNECT
    if isinstance(failure, (InvalidHeaderValue, UnicodeError)):
        return Refusal.HEADERS
    if isinstance(failure, (InvalidURI, ValueError)):
        return Refusal.URL
    if isinstance(failure, InvalidMessage):
        return Refusal.EOF if isinstance(failure.__cause__, EOFError) else Refusal.PROTOCOL
    return Refusal.PROTOCOL if isinstance(failure, InvalidHandshake) else Refusal.EOF


def _bound_kernel_buffer(opened: UpstreamSocket) -> None:
    """Keep unsent bytes in our transport, where their progress is seen, instead of megabytes in the kernel."""
    raw = opened.transport.get_extra_info("socket")
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if raw is not None and option is not None:
        # A connection that is already closed again is reported when its owner starts it.
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.IPPROTO_TCP, option, _UNSENT_LIMIT)
