"""What a refused socket means and what to do about it: the same sentences for the log, for commands and for documents."""

from __future__ import annotations

from gateway.stats import Explained

REFUSED_TEXTS: dict[str, Explained] = {
    "status": Explained(
        "The upgrade to WebSocket was answered with an HTTP status.",
        "Turns go over plain HTTP: right, but no faster. 401 and 403 are about the key; 404, 405 and 426 mean that this upstream, or "
        "something before it, does not speak WebSocket.",
    ),
    "dns": Explained(
        "The upstream's name has no address.", "Check the name, the network and the name server."
    ),
    "connect": Explained(
        "No connection to the upstream's address.",
        "Check the port, the network, firewalls, and whether a proxy must be set.",
    ),
    "tls": Explained(
        "TLS failed, or the certificate is not trusted.",
        "Behind a proxy that inspects TLS, give its authority with ca_file or SSL_CERT_FILE.",
    ),
    "timeout": Explained(
        "Connecting, TLS and the upgrade did not end in time.",
        "Something drops packets or swallows the upgrade: look at firewalls and proxies, or raise dial_timeout.",
    ),
    "eof": Explained(
        "The connection was closed before the upgrade was answered.",
        "Something between cuts WebSocket: look at proxies. Turns go over plain HTTP: right, but no faster.",
    ),
    "protocol": Explained(
        "The answer to the upgrade was not that of a WebSocket server.",
        "Something between answers in the upstream's place: look at proxies and at the upstream's URL.",
    ),
    "proxy": Explained(
        "The proxy does not let this connection pass.",
        "Check its address and credentials, and what it allows.",
    ),
    "bad_url": Explained("The upstream's URL cannot be used.", "Correct the setting upstream."),
    "bad_headers": Explained(
        "A header of the client cannot go into an upgrade.",
        "Look at the headers that the client is configured to send.",
    ),
    "closed_early": Explained(
        "New sockets were closed before they brought anything.",
        "Something between accepts the upgrade and then cuts it: look at proxies. Turns go over plain HTTP for a while.",
    ),
}
"""Why sockets could not be opened, or were of no use."""
