"""The ways on: what answers the requests that a local path leads to one upstream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

Answer = Callable[[web.Request, str], Awaitable[web.StreamResponse]]
"""Answers a request whose target, as it would be under ``/v1``, is given beside it."""


@dataclass(frozen=True, slots=True)
class Way:
    """One upstream, as far as the client side knows it.

    ``respond`` answers ``POST /v1/responses`` and may raise GatewayError before it has begun to answer; ``through`` answers all else.
    ``keyed`` says that the gateway has the key for it, so that a client's key is one for the gateway.
    """

    respond: Answer
    through: Answer
    keyed: bool = False
