"""``upwire check``: find out why it does not work, one step after another."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import click

from gateway.cli.options import read, setting_options
from gateway.cli.stats import base_url, fetch
from gateway.config import ConfigError, is_loopback, key_place, load_token
from gateway.settings import Settings

if TYPE_CHECKING:
    from gateway.upstream.route import Route

KEY_VARIABLE = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class Row:
    """One step: how it went, what was seen, and what to do where it did not go well."""

    name: str
    verdict: Literal["ok", "warning", "failed"]
    seen: str
    remedy: str = ""


@click.command("check")
@setting_options((
    "host", "port", "upstream", "proxy", "ca_file", "client_cert", "tls_minimum", "dial_timeout", "allow_remote", "token_file",
    "upstream_key_file", "upstream_key_env",
))  # fmt: skip
def command(config: str | None, **given: Any) -> int:
    """Find out why it does not work: configuration, port, proxy, names, TLS, upgrade and key.

    The key is the one that the gateway is set to use, else that in OPENAI_API_KEY; it is sent to the upstream only, and never
    shown. Exit code 1 if a step failed.
    """
    from gateway.upstream.key import KeyUnusable, upstream_key  # noqa: PLC0415 (takes structlog with it)

    try:
        loaded = read(config, given)
        settings = loaded.settings
        token = load_token(settings)
        held = upstream_key(settings.upstream_key_file, settings.upstream_key_env, os.environ)
    except (ConfigError, KeyUnusable) as error:
        show(Row("config", "failed", str(error), "Correct it; upwire serve --help shows all settings."))
        return 1
    show(
        Row(
            "config",
            "ok",
            f"read from {loaded.file}" if loaded.file else "no file; flags, environment, defaults",
        )
    )
    show(port := port_row(settings, token))
    key = held.current() if held else os.environ.get(KEY_VARIABLE, "")
    return asyncio.run(_upstream(settings, key, failed=port.verdict == "failed"))


async def _upstream(settings: Settings, key: str, *, failed: bool) -> int:
    async for row in upstream_rows(settings, key):
        show(row)
        failed = failed or row.verdict == "failed"
    return 1 if failed else 0


def show(row: Row) -> None:
    """Print one row, with its remedy below it."""
    click.echo(f"{row.name:<9}{row.verdict:<9}{row.seen}")
    if row.remedy:
        click.echo(f"{'':<18}{row.remedy}")


def port_row(settings: Settings, token: str | None) -> Row:
    """Whether the gateway's port is free, or answered by a gateway."""
    where = f"{settings.host} port {settings.port}"
    if settings.port == 0:
        return Row("port", "ok", "0: a free one will be picked")
    try:
        seen = fetch(base_url(settings), token)
    except click.ClickException:
        pass
    else:
        return Row("port", "ok", f"a gateway (upwire {seen.get('version', '?')}) answers on {where}")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host.strip("[]"), settings.port))
            probe.listen()
        except OSError as error:
            remedy = "Stop the other process, or choose another port with --port."
            return Row("port", "failed", f"{where}: {os.strerror(error.errno or 0)}", remedy)
    return Row("port", "ok", f"{where} is free; no gateway runs there now")


async def upstream_rows(settings: Settings, key: str) -> AsyncIterator[Row]:
    """The steps towards the upstream; they end where the next one would make no sense."""
    from gateway.upstream.route import NoRoute, route_to  # noqa: PLC0415 (takes ssl and urllib with it)

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
    parts = urlsplit(settings.upstream)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if route.proxy is not None:
        host, port = route.proxy.host, route.proxy.port
        yield Row("proxy", "ok", f"{route.proxy.url}; the next two steps are about it")
    else:
        yield Row("proxy", "ok", "none")
    async for row in _connection_rows(settings, route, host, port):
        yield row
        if row.verdict == "failed":
            return
    async for row in _api_rows(settings, route, key):
        yield row


async def _connection_rows(settings: Settings, route: Route, host: str, port: int) -> AsyncIterator[Row]:
    try:
        async with asyncio.timeout(settings.dial_timeout):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError):
        yield Row(
            "DNS", "failed", f"{host} has no address", "Check the name, the network and the name server."
        )
        return
    yield Row("DNS", "ok", ", ".join(dict.fromkeys(str(entry[4][0]) for entry in found)))
    try:
        async with asyncio.timeout(settings.dial_timeout):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
    except (OSError, TimeoutError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else os.strerror(error.errno or 0)
        remedy = (
            "Is it running?"
            if is_loopback(host)
            else "A firewall, or a proxy that must be set (HTTPS_PROXY)?"
        )
        yield Row("TCP", "failed", f"{host} port {port}: {why}", remedy)
        return
    yield Row("TCP", "ok", f"{host} port {port}")
    if route.tls is None or urlsplit(settings.upstream).scheme != "https":
        far = not is_loopback(host)
        remedy = "Use https: keys and prompts would travel readable." if far else ""
        yield Row("TLS", "warning" if far else "ok", "not used: the upstream is http", remedy)
    elif route.proxy is not None:
        yield Row("TLS", "ok", "inside the proxy's tunnel: tried with the upgrade")
    else:
        yield await _tls_row(settings, route.tls, host, port)


async def _tls_row(settings: Settings, context: ssl.SSLContext, host: str, port: int) -> Row:
    try:
        async with asyncio.timeout(settings.dial_timeout):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
        version = writer.get_extra_info("ssl_object").version()
        writer.close()
    except ssl.SSLCertVerificationError as error:
        remedy = "Behind a proxy that inspects TLS, give its authority with --ca-file or SSL_CERT_FILE."
        return Row("TLS", "failed", f"certificate not trusted: {error.verify_message}", remedy)
    except (OSError, TimeoutError) as error:
        return Row("TLS", "failed", f"handshake failed ({type(error).__name__})", "Does this port speak TLS?")
    return Row("TLS", "ok", f"{version}, certificate trusted")


async def _api_rows(settings: Settings, route: Route, key: str) -> AsyncIterator[Row]:
    headers = [("authorization", f"Bearer {key}")] if key else []
    yield await _upgrade_row(settings, route, headers)
    if not key:
        yield Row(
            "key", "warning", f"{KEY_VARIABLE} is not set here", "Fine if the clients have it; not tried."
        )
        return
    yield await _key_row(settings, route, headers)


async def _upgrade_row(settings: Settings, route: Route, headers: list[tuple[str, str]]) -> Row:
    from gateway.upstream.dial import DialOptions, UpgradeRefused, dial  # noqa: PLC0415 (takes websockets with it)
    from gateway.upstream.urls import socket_url  # noqa: PLC0415

    options = DialOptions(ssl=route.tls, proxy=route.proxy, dial_timeout=settings.dial_timeout)
    try:
        opened = await dial(socket_url(settings.upstream), headers, options)
    except UpgradeRefused as refused:
        if refused.status in (401, 403):
            seen = f"the upstream answered {refused.status}"
            remedy = "With a valid key it can be told." if not headers else "See the key below."
            return Row("upgrade", "warning", seen, remedy)
        seen = f"status {refused.status}" if refused.status else f"no socket ({refused.reason})"
        remedy = "Turns will go over plain HTTP: right, but no faster. Does something between drop WebSocket?"
        return Row("upgrade", "warning", seen, remedy)
    opened.abort()
    return Row("upgrade", "ok", "the upstream takes WebSocket")


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
    return Row(
        "key",
        "warning",
        f"asking for the models was answered {status}",
        "The key may still do for responses.",
    )
