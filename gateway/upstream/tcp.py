"""TCP connections to the upstream, opened in one way for plain HTTP and for sockets: directly, or through a SOCKS proxy.

HTTP proxies are asked by the libraries of each transport, since plain HTTP and sockets ask them differently.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import aiohappyeyeballs

from gateway.upstream.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Sequence

_NEXT_ADDRESS = 0.25
"""Seconds after which the next address is tried beside one that does not answer (RFC 8305)."""

_NOT_ALLOWED = 2
"""The answer of a SOCKS5 proxy whose rules forbid the connection."""

_EVER = 86_400.0


class ProxyRefused(Exception):
    """The proxy answered and will not connect: by its rules, for want of credentials, or because it speaks another protocol."""


async def open_tcp(host: str, port: int) -> socket.socket:
    """A connected, non-blocking socket, which the caller must close. Has no time limit of its own. Raises OSError.

    The name is looked up anew each time, and addresses of both families race, so that a dead family costs a moment only.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    infos: Sequence[aiohappyeyeballs.AddrInfoType] = found
    return await aiohappyeyeballs.start_connection(
        infos, happy_eyeballs_delay=_NEXT_ADDRESS, interleave=1 if len(infos) > 1 else None
    )


async def open_tcp_through(proxy: Proxy, host: str, port: int) -> socket.socket:
    """A socket connected to ``host`` through a SOCKS proxy; otherwise as ``open_tcp``. Raises OSError or ProxyRefused."""
    # Only those who have such a proxy need it.
    from python_socks import ProxyError, ProxyType  # noqa: PLC0415
    from python_socks.async_.asyncio import Proxy as Socks  # noqa: PLC0415

    socks = Socks(
        ProxyType.SOCKS5,
        proxy.host,
        proxy.port,
        proxy.username,
        proxy.password,
        rdns=proxy.scheme == "socks5h",
        forward=_Direct(),  # type: ignore[arg-type]
    )
    try:
        return await socks.connect(host, port, timeout=_EVER)
    except ProxyError as error:
        code = error.error_code
    if code is None or code == _NOT_ALLOWED:
        raise ProxyRefused
    # The texts of the library name addresses.
    raise ConnectionError("the proxy could not connect")


class _Direct:
    """The way to the proxy itself, in the form in which the library takes a proxy before the proxy."""

    async def connect(self, dest_host: str, dest_port: int, timeout: float | None = None) -> socket.socket:  # noqa: ARG002, ASYNC109
        return await open_tcp(dest_host, dest_port)
