"""Ports for servers that a test starts."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port():
    """A port that nobody has and that no outgoing connection is given, so that it is still free a moment later.

    Who connects to a port of that other kind before its server listens may even be connected to itself.
    """
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
