"""Where a request goes upstream: the only place that joins the configured base URL with a client's path and query.

Users write the base URL of the API, and that of the gateway, in every variant (with and without ``/v1``, with a final slash,
Azure's ``/openai/v1`` or ``/openai?api-version=...``). All of them must meet in one URL, the same for HTTP and WebSocket.
"""

from __future__ import annotations

from urllib.parse import urlsplit

RESPONSES = "/responses"

# Longest first: Azure's roots, and the API's own.
_ROOTS = ("/openai/v1", "/openai", "/v1")
_SECURE = {"http": False, "ws": False, "https": True, "wss": True}


def api_path(target: str) -> str | None:
    """The path of the request target ``target`` below the API's root, without query; None if it is not the API's.

    ``/v1/models/x?y`` gives ``/models/x``. Clients whose base URL lacks ``/v1`` ask for ``/responses`` and what is below it.
    The bytes behind the root are kept, but for a final slash after ``/responses`` itself.
    """
    path = "/" + target.partition("?")[0].lstrip("/")
    rest = _below_root(path)
    if rest is None:
        rest = path if _is_below(path, RESPONSES) else None
    else:
        # A client with /v1 in its base URL and in its path.
        while (again := _below_root(rest, ("/v1",))) is not None:
            rest = again
    return RESPONSES if rest == RESPONSES + "/" else rest


def http_url(base: str, target: str) -> str:
    """The upstream URL for the client's request target (path and query, as received).

    A base without a path means the API's usual root, ``/v1``. The query of the base comes first; a parameter that the client
    names too is left to the client. Escapes and order are kept. Raises ValueError for a target that is not the API's.
    """
    path = api_path(target)
    if path is None:
        raise ValueError("not a path of the API")
    return _join(base, path, target.partition("?")[2], socket=False)


def socket_url(base: str, raw_query: str = "") -> str:
    """The URL for upgrading to WebSocket: that of ``POST /v1/responses`` with the client's query, but for the scheme."""
    return _join(base, RESPONSES, raw_query, socket=True)


def without_secrets(base: str) -> str:
    """A base URL as it may be shown: without its query, which may hold a key."""
    shown, query, _ = base.partition("?")
    return f"{shown}?..." if query else shown


def _join(base: str, path: str, query: str, *, socket: bool) -> str:
    parts = urlsplit(base)
    secure = _SECURE.get(parts.scheme.lower())
    if secure is None or not parts.netloc:
        raise ValueError("the upstream must be an http or https URL")
    scheme = ("ws" if socket else "http") + ("s" if secure else "")
    root = "/" + parts.path.strip("/") if parts.path.strip("/") else "/v1"
    named = {parameter.partition("=")[0] for parameter in query.split("&")}
    own = [p for p in parts.query.split("&") if p and p.partition("=")[0] not in named]
    joined = "&".join([*own, query] if query else own)
    return f"{scheme}://{parts.netloc}{root}{path}" + (f"?{joined}" if joined else "")


def _below_root(path: str, roots: tuple[str, ...] = _ROOTS) -> str | None:
    for root in roots:
        if _is_below(path, root):
            return path[len(root) :]
    return None


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")
