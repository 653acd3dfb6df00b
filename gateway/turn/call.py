"""What a turn is given and what it gives back, free of any web framework."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gateway.conversation.arriving import Body
from gateway.pool.party import Party
from gateway.upstream.plain import PlainResponse

Headers = tuple[tuple[str, str], ...]

# Version ff and ids of nothing but zeros are invalid.
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Call:
    """One ``POST /v1/responses``: its request target and headers as received, its decoded body, the gateway token presented.

    ``received`` is the time, on the driver's clock, at which the body was complete; ``party`` is whose share it is.
    """

    target: str
    headers: Headers
    body: Body
    token: str | None
    received: float
    party: Party = field(default_factory=Party)

    @property
    def query(self) -> str:
        """The query of the request target, as received; empty without one."""
        return self.target.partition("?")[2]

    def header(self, name: str) -> str | None:
        """The first value of a header, by lower-case name."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def trace(self) -> str | None:
        """The W3C trace context in ``traceparent``, if there is one and it is well-formed; it can hold nothing but hex digits."""
        value = self.header("traceparent") or ""
        return value if _TRACE.fullmatch(value) else None


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that is complete: a JSON body and its status."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Streaming:
    """The head of an event stream; the caller then writes what ``Turn.events`` yields."""

    headers: Headers


@dataclass(frozen=True, slots=True)
class Relayed:
    """An answer over plain HTTP, to be passed on as it comes; the caller shows each chunk to ``Turn.observe``."""

    response: PlainResponse
    headers: Headers


Opened = Whole | Streaming | Relayed


class StreamBroken(Exception):
    """The stream ended without the upstream's own terminal event: the connection must be broken, never ended cleanly."""
