"""Listening sockets, and why there are none."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

BACKLOG = 1024
"""Connections that may wait to be accepted."""


class CannotListen(Exception):
    """The address cannot be listened on; the text says why and what to do."""


def url_of(host: str, listeners: list[socket.socket]) -> str:
    """The base URL under which clients reach the listeners."""
    port = listeners[0].getsockname()[1]
    bare = host.strip("[]")
    return f"http://[{bare}]:{port}" if ":" in bare else f"http://{bare}:{port}"


def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets on every address of ``host`` (``localhost`` has two), all on one port; 0 picks a free one.

    Raises CannotListen.
    """
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE, proto=socket.IPPROTO_TCP
        )
    except OSError:
        raise CannotListen(f"cannot listen on {host}: the name has no address on this machine") from None
    listeners: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
            # Where port 0 was asked, the first address picks, and the others follow.
            chosen = listeners[0].getsockname()[1] if listeners else port
            try:
                listeners.append(_bind_one(family, (address[0], chosen, *address[2:])))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
        if not listeners:
            raise CannotListen(f"cannot listen on {host}: no such address on this machine")
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise CannotListen(_why_not(host, port, error)) from None
    return listeners


def _bind_one(family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for connections of the process before.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        # Two sockets may both bind with SO_REUSEADDR, but only one may listen.
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the other process, or choose another with --port (0 picks a free one)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"port {port} on {host} needs rights that this process lacks; choose one above 1023 with --port"
        )
    return f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}"
