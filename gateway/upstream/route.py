"""How the upstream is reached: which proxy, and whom TLS trusts. Decided once, for plain HTTP and for sockets alike."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gateway.upstream.proxy import Proxy, parse_proxy, proxy_of

FROM_ENVIRONMENT = "auto"
NO_PROXY = "none"

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class NoRoute(Exception):
    """The proxy or a certificate file cannot be used; the text says which and why, and holds no part of a URL."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way to the upstream.

    ``proxy`` stands before it, or None; ``tls`` is the context for TLS with either, or None where neither speaks it.
    """

    proxy: Proxy | None
    tls: ssl.SSLContext | None


def route_to(
    upstream: str,
    environment: Mapping[str, str],
    *,
    proxy: str = FROM_ENVIRONMENT,
    ca_file: str = "",
    client_cert: str = "",
    tls_minimum: str = "1.2",
) -> Route:
    """The route to the URL ``upstream``.

    ``proxy`` is ``auto`` (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY of ``environment``), ``none`` or a URL. ``ca_file`` is
    trusted beside the system's authorities (which SSL_CERT_FILE and SSL_CERT_DIR replace); ``client_cert`` is a PEM file with a
    certificate and its key; ``tls_minimum`` is the oldest version of TLS that is spoken. Raises NoRoute.
    """
    if proxy == FROM_ENVIRONMENT:
        named = proxy_of(upstream, environment)
    else:
        named = None if proxy == NO_PROXY else proxy
    found = None if named is None else parse_proxy(named)
    if named is not None and found is None:
        raise NoRoute(
            "the proxy (setting proxy, or HTTPS_PROXY and its like) must be an http, https, socks5 or socks5h URL without a path. "
            "Set proxy to none to use no proxy"
        )
    secure = urlsplit(upstream).scheme == "https" or (found is not None and found.scheme == "https")
    return Route(found, _tls(ca_file, client_cert, tls_minimum) if secure else None)


def _tls(ca_file: str, client_cert: str, minimum: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context()
    except (OSError, ssl.SSLError) as error:
        raise NoRoute(
            f"the system's certificates cannot be read ({type(error).__name__}); see SSL_CERT_FILE"
        ) from None
    # The system may ask for more.
    context.minimum_version = max(context.minimum_version, _VERSIONS[minimum])
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
