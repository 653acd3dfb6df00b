"""Who may talk to the gateway at all, and in which form; decided before anything else is looked at.

A gateway on loopback is reachable for every web page that the user visits, by a cross-origin request or by a name that an
attacker points to 127.0.0.1. So a Host that is not ours and an Origin that is not allowed are refused.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.downstream.malformed import error_response
from gateway.downstream.ways import Way
from gateway.errors import BadRequest
from gateway.settings import Settings
from gateway.upstream.identity import CLIENT_KEYS, key_in
from gateway.upstream.local_paths import LocalPaths

_OPEN = frozenset({"/healthz", "/readyz", "/dashboard"})
"""Paths for which no token is asked: they tell nothing but that the process lives, and a page that then asks for the token."""

_TOKENS = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{0,4096}")
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"


class Guard:
    """The checks, as a middleware.

    ``tokens`` are those of which clients must present one, if there are any: in ``x-upwire-token``, or as their key where that has no
    other use: on ``ways`` to an upstream whose key the gateway has, and outside the API, where scrapers know no other header.
    """

    def __init__(self, settings: Settings, ways: LocalPaths[Way], *, tokens: Collection[str] = ()) -> None:
        self.reconfigure(settings)
        self._ways = ways
        self._tokens = [token.encode("utf-8", "surrogatepass") for token in tokens]
        self._listening = _name(settings.host)
        self.leaving = False

    def reconfigure(self, settings: Settings) -> None:
        """Other allowed names and origins from the next request."""
        self._hosts = {_name(host) for host in settings.allowed_hosts}
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass ``request`` on, or refuse it."""
        if (ambiguous := _ambiguous(request)) is not None:
            # What follows on this connection may not be what it looks like.
            response = error_response(ambiguous, Connection="close")
            response.force_close()
            return response
        if not self._is_ours(request):
            raise _forbidden("Host", "allowed_hosts")
        origin = request.headers.get("Origin")
        if (origin is not None and not self._may_call(request)) or (
            origin is None and self._is_embedded(request)
        ):
            raise _forbidden("Origin", "allowed_origins")
        if origin is not None and request.method == "OPTIONS" and _PREFLIGHT in request.headers:
            return self._preflight(request)
        if self._tokens and request.raw_path.partition("?")[0] not in _OPEN:
            self._check_token(request)
        if request.headers.get("Expect", "100-continue").lower() != "100-continue":
            raise BadRequest("This expectation cannot be met.", code="expectation_failed", status=417)
        if _wants_socket(request):
            return error_response(
                BadRequest(
                    "This gateway takes HTTP requests only; it speaks WebSocket to the API by itself. Use HTTP here.",
                    code="upgrade_required",
                    status=426,
                ),
                # The protocol to use instead of the one asked for.
                Upgrade="HTTP/1.1",
                Connection="Upgrade",
            )
        return await handler(request)

    async def on_prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Let pages of allowed origins read the answer; a handler of the application's ``on_response_prepare``.

        While ``leaving``, the answer is the last one of its connection, and says so.
        """
        if self.leaving:
            response.force_close()
            if request.version >= (1, 1):
                response.headers["Connection"] = "close"
        origin = request.headers.get("Origin")
        if origin is not None and self._may_call(request):
            response.headers.setdefault("Access-Control-Allow-Origin", origin)
            response.headers.setdefault("Access-Control-Expose-Headers", "*")
            if "origin" not in ",".join(response.headers.getall("Vary", ())).lower():
                response.headers.add("Vary", "Origin")

    def _is_ours(self, request: web.Request) -> bool:
        host = request.headers.get("Host")
        if host is None:
            # HTTP/1.0 only, which no browser speaks.
            return True
        name = _name(host)
        if name is None:
            return False
        if name in self._hosts or "*" in self._hosts or name == self._listening or _is_loopback(name):
            return True
        # The address that this very connection was made to: right for a gateway that listens on all of them.
        transport = request.transport
        local = transport.get_extra_info("sockname") if transport is not None else None
        return isinstance(local, tuple) and name == _name(f"[{local[0]}]" if ":" in local[0] else local[0])

    def _may_call(self, request: web.Request) -> bool:
        origin = request.headers.get("Origin", "").lower()
        # A page of our own; its host has been checked.
        own = f"http://{request.headers.get('Host', '')}".lower()
        return len(request.headers.getall("Origin")) == 1 and (origin in self._origins or origin == own)

    def _is_embedded(self, request: web.Request) -> bool:
        """Whether a page of another site asks for this in a way that tells no Origin, as for an image or a script."""
        site = request.headers.get("Sec-Fetch-Site", "").lower()
        return site in {"cross-site", "same-site"} and self._ways.find(request.raw_path) is not None

    def _preflight(self, request: web.Request) -> web.Response:
        asked = request.headers.get("Access-Control-Request-Headers", "")
        headers = {
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": asked if _TOKENS.fullmatch(asked) else "*",
            "Access-Control-Max-Age": "600",
        }
        if request.headers.get("Access-Control-Request-Private-Network") == "true":
            headers["Access-Control-Allow-Private-Network"] = "true"
        return web.Response(status=204, headers=headers)

    def _check_token(self, request: web.Request) -> None:
        own = [request.headers.get("x-upwire-token", "")]
        keys = [key_in(request.headers.get(name, "")) for name in CLIENT_KEYS]
        found = self._ways.find(request.raw_path)
        way = self._ways.main if found is None else found[0]
        goes_up = found is not None and not way.keyed
        if not self._are_tokens(own if goes_up else own + keys):
            also = " or as the API key" if way.keyed else ""
            raise BadRequest(
                f"This gateway asks for its token in the header x-upwire-token{also}.",
                code="invalid_gateway_token",
                status=401,
            )
        if goes_up and self._are_tokens(keys):
            raise BadRequest(
                "The API key of this request is the token of this gateway. Send the API's own key there.",
                code="gateway_token_as_key",
                status=401,
            )

    def _are_tokens(self, presented: list[str]) -> bool:
        """Whether one of these is a token of ours."""
        shown = [each.encode("utf-8", "surrogatepass") for each in presented]
        # All are compared, so that the time tells nothing about which came close.
        same = [hmac.compare_digest(each, token) for each in shown for token in self._tokens]
        return any(same)


_PREFLIGHT = "Access-Control-Request-Method"
_LONGEST_NAME = 300
"""Characters of a Host value; names have at most 255, and a port may follow."""


def _ambiguous(request: web.Request) -> BadRequest | None:
    """What is wrong with a request that the parser lets through but that others may read differently."""
    if not request.raw_path.startswith("/") or "#" in request.raw_path or request.method == "CONNECT":
        return BadRequest("The request target must be a path.", code="bad_target")
    codings = request.headers.getall("Transfer-Encoding", ())
    if request.version < (1, 0) or (codings and request.version < (1, 1)):
        return BadRequest("This version of HTTP cannot carry this request.", code="malformed_request")
    if codings and [coding.strip().lower() for coding in codings] != ["chunked"]:
        return BadRequest(
            "The only transfer coding that is supported is chunked.",
            code="unsupported_transfer_coding",
            status=501,
        )
    return None


def _forbidden(header: str, setting: str) -> BadRequest:
    return BadRequest(
        f"The {header} of this request is not one that this gateway answers to. If it should be, add it to the setting "
        f"{setting}.",
        code="forbidden_" + header.lower(),
        status=403,
    )


def _wants_socket(request: web.Request) -> bool:
    """Whether the client wants to switch to WebSocket; other upgrades (h2c) may be ignored and are."""
    asked = ",".join(request.headers.getall("Upgrade", ())).lower()
    return "websocket" in (protocol.partition("/")[0].strip() for protocol in asked.split(","))


def _name(host: str) -> str | None:
    """The bare name or address of a Host value or a setting, without port; None if it is neither."""
    return _read_name(host) if len(host) <= _LONGEST_NAME else None


@lru_cache(256)
def _read_name(host: str) -> str | None:
    if host == "*":
        return host
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    try:
        parts = urlsplit("//" + host)
        _ = parts.port
    except ValueError:
        return None
    plain = parts.username is None and not parts.path and not parts.query and not parts.fragment
    name = parts.hostname.rstrip(".") if plain and parts.hostname else None
    if name is None:
        return None
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


@lru_cache(256)
def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
