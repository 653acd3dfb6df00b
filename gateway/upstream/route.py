"""How the upstream is reached: which proxy, and whom TLS trusts. Decided once, for plain HTTP and for sockets alike."""

from __future__ import annotations

import ipaddress
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

FROM_ENVIRONMENT = "auto"
NO_PROXY = "none"


class NoRoute(Exception):
    """The proxy or a certificate file cannot be used; the text says which and why, and holds no part of a URL."""


@dataclass(frozen=True, slots=True)
class Route:
    """``proxy`` is the URL of an HTTP proxy, or None; ``tls`` is the context for https and wss, or None for plain TCP."""

    proxy: str | None
    tls: ssl.SSLContext | None


def route_to(
    upstream: str,
    environment: Mapping[str, str],
    *,
    proxy: str = FROM_ENVIRONMENT,
    ca_file: str = "",
    client_cert: str = "",
) -> Route:
    """The route to the URL ``upstream``.

    ``proxy`` is ``auto`` (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY of ``environment``), ``none`` or a URL. ``ca_file`` is
    trusted beside the system's authorities (which SSL_CERT_FILE and SSL_CERT_DIR replace); ``client_cert`` is a PEM file with a
    certificate and its key. Raises NoRoute.
    """
    parts = urlsplit(upstream)
    if proxy == FROM_ENVIRONMENT:
        chosen = _from_environment(parts.scheme, parts.hostname or "", parts.port, environment)
    else:
        chosen = None if proxy == NO_PROXY else proxy
    if chosen is not None:
        _check_proxy(chosen)
    return Route(chosen, _tls(ca_file, client_cert) if parts.scheme == "https" else None)


def _from_environment(scheme: str, host: str, port: int | None, environment: Mapping[str, str]) -> str | None:
    def value(name: str) -> str:
        return environment.get(name) or environment.get(name.upper()) or ""

    # A proxy elsewhere has another loopback.
    if host == "localhost" or _is_loopback(host):
        return None
    where = f"{host}:{port}" if port else host
    if urllib.request.proxy_bypass_environment(where, {"no": value("no_proxy")}):  # type: ignore[attr-defined]
        return None
    found = value(f"{scheme}_proxy") or value("all_proxy")
    if found and "://" not in found:
        found = "http://" + found
    return found or None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_proxy(url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.scheme not in ("http", "https"):
        raise NoRoute(
            "the proxy (setting proxy, or HTTPS_PROXY and its like) must be an http or https URL; SOCKS is not supported. "
            "Set proxy to none to use no proxy"
        )


def _tls(ca_file: str, client_cert: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context()
    except (OSError, ssl.SSLError) as error:
        raise NoRoute(
            f"the system's certificates cannot be read ({type(error).__name__}); see SSL_CERT_FILE"
        ) from None
    if ca_file:
        _use("ca_file", ca_file, lambda: context.load_verify_locations(cafile=ca_file))
    if client_cert:
        # An encrypted key would make the library ask for its password on the terminal.
        _use("client_cert", client_cert, lambda: context.load_cert_chain(client_cert, password=lambda: b""))
    return context


def _use(name: str, path: str, load: Callable[[], None]) -> None:
    if not Path(path).is_file():
        raise NoRoute(f"{name}: there is no file {path}")
    try:
        load()
    except (OSError, ssl.SSLError) as error:
        raise NoRoute(f"{name}: {path} cannot be used ({type(error).__name__}); it must be PEM") from None
