"""Which proxy leads to the upstream, from a setting or the environment. Pure: the environment is an argument."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
# Desktops write socks://, and mean version 5.
_ALIASES = {"socks": "socks5h"}
_UPSTREAM_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy and the credentials for it, decoded. ``scheme`` is http, https, socks5 (names are resolved here) or socks5h (there)."""

    scheme: str
    host: str
    port: int
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def is_socks(self) -> bool:
        """Whether it speaks SOCKS, else HTTP."""
        return self.scheme.startswith("socks")

    @property
    def url(self) -> str:
        """Its URL, without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_proxy(url: str) -> Proxy | None:
    """The proxy that ``url`` names; a text without a scheme means http. None if it names none that can be used."""
    try:
        parts = urlsplit(url if "://" in url else "http://" + url)
        scheme = _ALIASES.get(parts.scheme, parts.scheme)
        port = _PORTS.get(scheme) if parts.port is None else parts.port
        credentials = [
            None if part is None else unquote(part, errors="strict")
            for part in (parts.username, parts.password)
        ]
    except ValueError:
        return None
    if scheme not in _PORTS or not parts.hostname or not port:
        return None
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return None
    username, password = credentials
    if username is not None:
        password = password or ""
        # What SOCKS5 can carry, and the library sends.
        if scheme.startswith("socks") and not all(
            t.isascii() and 0 < len(t) < 256 for t in (username, password)
        ):
            return None
        if ":" in username and not scheme.startswith("socks"):
            return None
    return Proxy(scheme, parts.hostname, port, username, password)


def proxy_of(upstream: str, environment: Mapping[str, str]) -> str | None:
    """The text that the environment names as the proxy for the URL ``upstream``, unchecked, or None.

    HTTPS_PROXY or HTTP_PROXY by the upstream's scheme, else ALL_PROXY, unless NO_PROXY names the host. Small letters
    win over capitals, as in other programs. Nothing on this machine is looked for through a proxy: a proxy elsewhere has
    another loopback.
    """
    parts = urlsplit(upstream)
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or _UPSTREAM_PORTS.get(parts.scheme, 0)

    def value(name: str) -> str:
        return environment.get(name) or environment.get(name.upper()) or ""

    if _is_here(host) or _is_exempt(host, port, value("no_proxy")):
        return None
    return value(f"{parts.scheme}_proxy") or value("all_proxy") or None


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _is_exempt(host: str, port: int, names: str) -> bool:
    """Whether a NO_PROXY list names ``host``: names with all below them, addresses, networks (10.0.0.0/8), each with a port or not."""
    address = _address(host)
    for entry in names.lower().replace(",", " ").split():
        name, named_port = _parted(entry)
        if entry == "*":
            return True
        if named_port and named_port != str(port):
            continue
        if address is not None:
            if _covers(name, address):
                return True
            continue
        name = name.removeprefix("*").strip(".")
        if name and (host == name or host.endswith("." + name)):
            return True
    return False


def _parted(entry: str) -> tuple[str, str]:
    """An entry's name and port; an IPv6 address with a port stands in brackets."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _covers(network: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
