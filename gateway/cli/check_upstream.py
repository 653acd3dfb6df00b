"""The steps of ``upwire check`` towards the upstream, each of which needs the one before."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from gateway.cli.certificate import subject_and_issuer
from gateway.config import is_loopback, key_place
from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.upstream.route import Route
    from gateway.upstream.socket import UpstreamSocket

KEY_VARIABLE = "OPENAI_API_KEY"
PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
SOON = 14
"""Days before its end in which a certificate is worth a warning."""

_UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
# Plain HTTP fails for these as well, so turns fail.
_FATAL = frozenset({"dns", "connect", "tls", "proxy", "bad_url", "bad_headers"})


@dataclass(frozen=True, slots=True)
class Row:
    """One step: how it went, what was seen, what to do where it did not go well, and more lines about it.

    ``upstream`` is the name of the upstream that it is about, empty for the main one and for what is about none.
    """

    name: str
    verdict: Literal["ok", "warning", "failed"]
    seen: str
    remedy: str = ""
    details: tuple[str, ...] = ()
    upstream: str = ""


async def upstream_rows(
    settings: Settings, key: str, *, more: tuple[tuple[str, str], ...] = ()
) -> AsyncIterator[Row]:
    """The steps; they end where the next one would make no sense. ``more`` headers go along."""
    from gateway.upstream.identity import with_key  # noqa: PLC0415
    from gateway.upstream.profile import profile_of  # noqa: PLC0415
    from gateway.upstream.route import NoRoute, route_to  # noqa: PLC0415

    try:
        route = route_to(
            settings.upstream,
            os.environ,
            proxy=settings.proxy,
            ca_file=settings.ca_file,
            client_cert=settings.client_cert,
            tls_minimum=settings.tls_minimum,
        )
    except NoRoute as error:
        yield Row("proxy", "failed", str(error))
        return
    yield proxy_row(settings, route, os.environ)
    parts = urlsplit(settings.upstream)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if route.proxy is not None:
        host, port = route.proxy.host, route.proxy.port
    async for row in _connection_rows(settings, route, host, port):
        yield row
        if row.verdict == "failed":
            return
    profile = profile_of(settings.upstream, settings.profile)
    headers = [*(with_key(more, key, profile.key_header) if key else more)]
    upgrade = await _upgrade_row(settings, route, headers, keyed=bool(key))
    yield upgrade
    if upgrade.verdict == "failed":
        return
    if key:
        yield await _key_row(settings, route, headers)
    else:
        yield Row(
            "key", "warning", f"{KEY_VARIABLE} is not set here", "Fine if the clients have it; not tried."
        )


def proxy_row(settings: Settings, route: Route, environment: Mapping[str, str]) -> Row:
    """Which proxy is used, and which variables say so."""
    there = [v for name in PROXY_VARIABLES for v in (name, name.lower()) if environment.get(v)]
    said = f"set here: {', '.join(there)}" if there else "no proxy variable is set"
    if route.proxy is not None:
        who = "the setting proxy" if settings.proxy not in ("auto", "none") else "the environment"
        return Row(
            "proxy", "ok", f"{route.proxy.url}, by {who}; the next two steps are about it", "", (said,)
        )
    if there and settings.proxy == "auto":
        return Row("proxy", "ok", f"none for this upstream ({said})")
    if there:
        return Row("proxy", "ok", f"none, by the setting proxy ({said})")
    return Row("proxy", "ok", f"none ({said})")


async def _connection_rows(settings: Settings, route: Route, host: str, port: int) -> AsyncIterator[Row]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(settings.dial_timeout):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        again = isinstance(error, TimeoutError) or error.errno == socket.EAI_AGAIN
        remedy = (
            "Is there a network? No name server answers."
            if again
            else "No network, no working DNS, or a misspelt name: do other names work here?"
        )
        yield Row("DNS", "failed", f"{host} has no address", remedy)
        return
    yield Row("DNS", "ok", ", ".join(dict.fromkeys(str(entry[4][0]) for entry in found)))
    why: OSError | None = None
    for family, _, _, _, address in found:
        why = await _try_address(family, address, settings.dial_timeout)
        if why is None:
            break
    if why is not None:
        yield Row("TCP", "failed", *_no_connection(host, port, why))
        return
    yield Row("TCP", "ok", f"{host} port {port}")
    if urlsplit(settings.upstream).scheme != "https":
        far = not is_loopback(host)
        remedy = "Use https: keys and prompts would travel readable." if far else ""
        yield Row("TLS", "warning" if far else "ok", "not used: the upstream is http", remedy)
    elif route.proxy is not None or route.tls is None:
        yield Row("TLS", "ok", "inside the proxy's tunnel: tried with the upgrade")
    else:
        yield await _tls_row(settings, route.tls, host, port)


async def _try_address(family: int, address: Any, seconds: float) -> OSError | None:
    """Why there is no connection to an address, or None if there is one."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().sock_connect(probe, address)
        except TimeoutError:
            return TimeoutError(errno.ETIMEDOUT, "no answer in time")
        except OSError as error:
            return error
    return None


def _no_connection(host: str, port: int, why: OSError) -> tuple[str, str]:
    if why.errno in _UNREACHABLE:
        remedy = "This machine has no network, or no way there."
    elif why.errno == errno.ECONNREFUSED:
        remedy = "Nothing listens there. Is it running? Is the port right?"
    else:
        remedy = "A firewall, or a proxy that must be set (HTTPS_PROXY)?"
    return f"{host} port {port}: {os.strerror(why.errno or errno.EIO)}", remedy


async def _tls_row(settings: Settings, context: ssl.SSLContext, host: str, port: int) -> Row:
    try:
        async with asyncio.timeout(settings.dial_timeout):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
        spoken = writer.get_extra_info("ssl_object")
        writer.close()
    except ssl.SSLCertVerificationError as error:
        remedy = "Behind a proxy that inspects TLS, give its authority with --ca-file or SSL_CERT_FILE."
        details = await _whose(settings, host, port)
        return Row("TLS", "failed", f"certificate not trusted: {error.verify_message}", remedy, details)
    except (OSError, TimeoutError) as error:
        return Row("TLS", "failed", f"handshake failed ({type(error).__name__})", "Does this port speak TLS?")
    subject, issuer = subject_and_issuer(spoken.getpeercert(binary_form=True))
    days = int((ssl.cert_time_to_seconds(spoken.getpeercert()["notAfter"]) - time.time()) // 86400)
    seen = f"{spoken.version()}, certificate of {subject}, issued by {issuer}, valid for {days} days"
    if days < SOON:
        return Row("TLS", "warning", seen, "Whoever runs this upstream should renew it.")
    return Row("TLS", "ok", seen)


async def _whose(settings: Settings, host: str, port: int) -> tuple[str, ...]:
    """Whose certificate it is that is not trusted; nothing is sent over this connection."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(settings.dial_timeout):
            _, writer = await asyncio.open_connection(host, port, ssl=anyone)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        subject, issuer = subject_and_issuer(der)
    except (OSError, TimeoutError, ValueError):
        return ()
    return (f"it is for {subject}, issued by {issuer}",)


async def _upgrade_row(
    settings: Settings, route: Route, headers: list[tuple[str, str]], *, keyed: bool
) -> Row:
    from gateway.upstream.dial import DialOptions, UpgradeRefused, dial  # noqa: PLC0415 (takes websockets with it)
    from gateway.upstream.remedies import REFUSED_TEXTS  # noqa: PLC0415
    from gateway.upstream.urls import socket_url  # noqa: PLC0415

    options = DialOptions(ssl=route.tls, proxy=route.proxy, dial_timeout=settings.dial_timeout)
    try:
        opened = await dial(socket_url(settings.upstream), headers, options)
    except UpgradeRefused as refused:
        if refused.status in (401, 403):
            seen = f"the upstream answered {refused.status}"
            remedy = "With a valid key it can be told." if not keyed else "See the key below."
            return Row("upgrade", "warning", seen, remedy)
        text = REFUSED_TEXTS[refused.reason]
        seen = f"status {refused.status}" if refused.status else f"no socket ({refused.reason})"
        # A proxy may let plain HTTP pass to an http upstream, but no tunnel.
        passes = refused.reason == "proxy" and urlsplit(settings.upstream).scheme == "http"
        fatal = refused.reason in _FATAL and not passes
        return Row("upgrade", "failed" if fatal else "warning", seen, text.remedy, (text.meaning,))
    try:
        if not await _answers(opened, settings.dial_timeout):
            text = REFUSED_TEXTS["closed_early"]
            seen = "accepted, but nothing comes back over the socket"
            return Row("upgrade", "warning", seen, text.remedy)
    finally:
        opened.abort()
    return Row("upgrade", "ok", "the upstream takes WebSocket, and answers over it")


async def _answers(opened: UpstreamSocket, seconds: float) -> bool:
    """Whether a ping comes back: some proxies accept an upgrade and then cut it, or let nothing through."""
    from gateway.upstream.inbox import Inbox  # noqa: PLC0415

    inbox = Inbox()
    opened.attach(inbox)
    opened.ask_for_pong()
    for _ in range(int(seconds * 100)):
        if inbox.ponged or inbox.ending is not None:
            break
        await asyncio.sleep(0.01)
    return inbox.ponged


async def _key_row(settings: Settings, route: Route, headers: list[tuple[str, str]]) -> Row:
    from gateway.errors import GatewayError  # noqa: PLC0415
    from gateway.upstream.plain import PlainHttp, PlainOptions  # noqa: PLC0415 (takes aiohttp with it)
    from gateway.upstream.urls import http_url  # noqa: PLC0415

    plain = PlainHttp(PlainOptions(connect_timeout=settings.dial_timeout, tls=route.tls, proxy=route.proxy))
    try:
        async with (
            asyncio.timeout(3 * settings.dial_timeout),
            plain.request("GET", http_url(settings.upstream, "/v1/models"), headers) as answer,
        ):
            status = answer.status
    except (GatewayError, TimeoutError) as error:
        return Row(
            "key", "failed", f"asking for the models failed ({type(error).__name__})", "See the steps above."
        )
    finally:
        await plain.close()
    place = f"the key from {key_place(settings)}" if key_place(settings) else KEY_VARIABLE
    if status == 200:
        return Row("key", "ok", f"the upstream takes {place}")
    if status == 401:
        return Row("key", "failed", "the upstream answered 401", f"{place} is wrong or expired.")
    remedy = "The key may still do for responses."
    return Row("key", "warning", f"asking for the models was answered {status}", remedy)
