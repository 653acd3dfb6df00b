"""How upstreams differ, as far as it is known before the first turn. What an upstream shows by itself is learned beside it.

The figures are what vendors document or others measured; where nothing is known, the weakest that is right everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

AUTO = "auto"
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of upstream.

    ``reloads``: a stored response can be continued on any socket, else only where it was made. ``max_frame`` in bytes and
    ``socket_age`` in seconds bound the settings of those names. ``survives_errors``: a socket stays usable after an error.
    ``one_model``: a socket serves the model of its first turn only, and another is refused or, worse, replaced.
    ``lanes``: several turns may run on one socket; told only, each socket has one turn at a time. ``key_header`` carries a key
    that the gateway adds: ``authorization`` as a bearer token, any other as it is.
    """

    name: str
    reloads: bool = False
    max_frame: int = 16 * MEBIBYTE
    socket_age: float = 3300.0
    survives_errors: bool = False
    one_model: bool = True
    lanes: bool = False
    key_header: str = "authorization"


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(name="openai", reloads=True, survives_errors=True, one_model=False, lanes=True),
        # One response at a time, and the model is the name of a deployment.
        Profile(name="azure", reloads=True, key_header="api-key"),
        # Others renew its sockets at 24 minutes.
        Profile(name="xai", socket_age=1200.0),
        # The service behind a ChatGPT sign-in.
        Profile(name="codex", one_model=False),
        # A gateway of another vendor ends sockets at about 13 minutes. One that takes smaller frames says so (1009), and is believed.
        Profile(name="generic", socket_age=720.0),
    )
}

_HOSTS = {
    "api.openai.com": "openai",
    "chatgpt.com": "codex",
    "api.x.ai": "xai",
}
_DOMAINS = {
    ".api.openai.com": "openai",
    ".openai.azure.com": "azure",
    ".cognitiveservices.azure.com": "azure",
    ".services.ai.azure.com": "azure",
    ".api.x.ai": "xai",
}


def profile_of(upstream: str, name: str = AUTO) -> Profile:
    """The profile called ``name``, or with ``auto`` that of the upstream's host; ``generic`` for hosts that are not known."""
    if name != AUTO:
        return PROFILES[name]
    host = (urlsplit(upstream).hostname or "").rstrip(".")
    found = _HOSTS.get(host) or next(
        (p for domain, p in _DOMAINS.items() if host.endswith(domain)), "generic"
    )
    return PROFILES[found]
