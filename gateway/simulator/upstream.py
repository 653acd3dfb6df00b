"""The state that all connections of one simulated upstream share, and the checks at its door."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from gateway.simulator.faults import FaultPlan
from gateway.simulator.journal import Entry, Journal, Kind
from gateway.simulator.model import Model
from gateway.simulator.options import Options
from gateway.simulator.records import Owner, Records
from gateway.simulator.refusal import Refusal
from gateway.simulator.script import Script


class Upstream:
    """Options, memory, journal and faults of one upstream."""

    def __init__(self, options: Options, script: Script | None) -> None:
        self.options = options
        self.records = Records()
        self.model = Model(options, self.records, script)
        self.journal = Journal(options.journal_limit)
        self.faults = FaultPlan()
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._connections = 0

    def connection_number(self, request: web.Request) -> int:
        """The number of the TCP connection that carries ``request``."""
        transport = request.transport
        number = self._numbers.get(transport) if transport is not None else None
        if number is None:
            self._connections += 1
            number = self._connections
            if transport is not None:
                self._numbers[transport] = number
        return number

    def owner(self, headers: Mapping[str, str]) -> Owner:
        """Who asks; raises Refusal if the key is missing or not accepted."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if self.options.api_key_header and not scheme:
            scheme, key = "bearer", headers.get("api-key", "")
        if scheme.lower() != "bearer" or not key.strip():
            raise Refusal(
                401, "You didn't provide an API key. You need to provide it in an Authorization header."
            )
        if self.options.keys is not None and key not in self.options.keys:
            raise Refusal(401, "Incorrect API key provided.", code="invalid_api_key")
        return Owner(key, headers.get("openai-organization", ""), headers.get("openai-project", ""))

    def record(
        self, request: web.Request, kind: Kind, raw: bytes = b"", *, socket: int | None = None
    ) -> Entry:
        """A journal entry for something that arrived with ``request``, or on the ``socket`` of that number."""
        return self.journal.add(
            Entry(
                kind=kind,
                transport="http" if socket is None else "ws",
                connection=self.connection_number(request) if socket is None else socket,
                at=asyncio.get_running_loop().time(),
                headers=headers_of(request),
                method=request.method,
                path=request.path_qs,
                raw=raw,
            )
        )


def headers_of(request: web.Request) -> dict[str, str]:
    """The request's headers with lower-case names; repeated ones joined by a comma."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found
