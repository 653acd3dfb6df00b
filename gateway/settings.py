"""Every setting with its default and meaning; where values come from is decided in gateway.config.

One flat, frozen record: each field is a flag (``--max-body``), an environment variable (``UPWIRE_MAX_BODY``) and a key of the
TOML file (``max_body``). ``help`` is the one sentence shown to the user; ``choices`` closes the set of values; ``reload`` says that
a running gateway takes a new value from the file on SIGHUP; ``table`` says that it is made of tables of the file, and is neither a
flag nor a variable.
Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PER_REQUEST_HEADERS = (
    "user-agent", "accept*", "content-*", "x-stainless-*", "x-client-request-id", "x-request-id", "traceparent", "tracestate",
    "baggage", "sentry-trace", "session-id", "session_id", "thread-id", "x-session-*", "x-codex-*",
)  # fmt: skip


def _setting(
    default: Any,
    text: str,
    choices: tuple[str, ...] | None = None,
    *,
    reload: bool = False,
    table: bool = False,
) -> Any:
    about = {"help": text, "choices": choices, "reload": reload, "table": table}
    return field(default=default, metadata=about)


MAIN = "main"
"""The name of the upstream that needs no entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamEntry:
    """One upstream: where clients find it here, where it is, and what goes along.

    ``path`` is the local path in place of ``/v1``, ``url`` the base URL. ``headers`` take the place of the client's own of those names;
    ``key_file`` or ``key_env`` hold the key that takes the place of the client's.
    """

    name: str
    path: str
    url: str
    profile: str = "auto"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    key_file: str = ""
    key_env: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of ``upwire serve``."""

    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(7411, "Port to listen on; 0 picks a free one.")
    listen: tuple[str, ...] = _setting(
        (), "Where to listen beside host and port: unix:PATH, a socket file for its owner and group."
    )
    workers: int = _setting(
        1,
        "Processes that serve one port, for machines with several processors; each gets its part of the limits on turns, sockets "
        "and conversations.",
    )
    loop: str = _setting(
        "auto",
        "The event loop: auto takes uvloop where it is installed (the extra upwire[uvloop]), else asyncio, Python's own, which alone sees "
        "a large frame move slowly through an HTTP proxy to a TLS upstream.",
        ("auto", "asyncio", "uvloop"),
    )
    upstream: str = _setting(
        "https://api.openai.com/v1", "Base URL of the API, with its query if it needs one."
    )
    route: tuple[str, ...] = _setting(
        (),
        "Further upstreams, each under a local path of its own: PATH=URL, such as /azure/openai/v1=https://NAME.openai.azure.com/openai/v1.",
    )
    mode: str = _setting(
        "auto",
        "auto upgrades turns to WebSocket; http sends everything over plain HTTP.",
        ("auto", "http"),
        reload=True,
    )
    match: str = _setting(
        "equivalent",
        "How alike a resent history must be to count as held upstream.",
        ("exact", "equivalent", "lenient"),
        reload=True,
    )
    settings: str = _setting(
        "delta",
        "Whether changed settings still make a delta; full resends on any change.",
        ("delta", "full"),
        reload=True,
    )
    stored: str = _setting(
        "delta",
        "Whether turns that the API stores are chained; full never does.",
        ("delta", "full"),
        reload=True,
    )
    allow_remote: bool = _setting(
        False, "Allow a host wider than loopback; clients must then present the token of token_file."
    )
    token_file: str = _setting(
        "",
        "File with the token that clients present in the header x-upwire-token, or with a line LABEL: TOKEN for each member of a "
        "team; empty asks for none.",
    )
    team_file: str = _setting(
        "",
        "TOML file with a table for each label under which keys are counted: keys (digests, see upwire label), and in_flight and "
        "sockets if it has limits of its own.",
        reload=True,
    )
    upstream_key_file: str = _setting(
        "",
        "File with the key for the upstream, sent in place of the clients' own; read again when it changes. Clients may then "
        "present the token of token_file as their API key.",
    )
    upstream_key_env: str = _setting(
        "", "Name of the environment variable that holds that key, instead of a file."
    )
    profile: str = _setting(
        "auto",
        "What kind of upstream it is, which decides what it is trusted with; auto goes by its host, generic is the careful one.",
        ("auto", "openai", "azure", "xai", "codex", "generic"),
    )
    proxy: str = _setting(
        "auto",
        "Proxy to the upstream: an http, https, socks5 or socks5h URL, none, or auto for what the environment says.",
    )
    ca_file: str = _setting("", "PEM file with authorities to trust for the upstream, beside the system's.")
    client_cert: str = _setting("", "PEM file with a client certificate and its key for the upstream.")
    tls_minimum: str = _setting(
        "1.2", "Oldest version of TLS that is spoken with the upstream.", ("1.2", "1.3")
    )
    compression: str = _setting(
        "auto",
        "auto compresses frames where the upstream accepts it, for about 50 KiB of memory a socket; off never offers it.",
        ("auto", "off"),
    )
    expose_mode: bool = _setting(
        True, "Add the response headers x-upwire-mode and x-upwire-reason.", reload=True
    )
    server_timing: bool = _setting(
        True,
        "Add the response header server-timing with the milliseconds that the gateway itself took.",
        reload=True,
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (), "Further Host names to answer to, beside loopback names and the listening address.", reload=True
    )
    allowed_origins: tuple[str, ...] = _setting(
        (), "Origins (scheme://host:port) whose pages may call the gateway.", reload=True
    )
    per_request_headers: tuple[str, ...] = _setting(
        PER_REQUEST_HEADERS,
        "Request headers that never tell two callers apart; a final * matches any ending.",
        reload=True,
    )
    max_body: int = _setting(128 * 1024 * 1024, "Largest decoded request body in bytes.")
    max_frame: int = _setting(
        16 * 1024 * 1024, "Frames of this many bytes or more go over plain HTTP.", reload=True
    )
    max_event: int = _setting(128 * 1024 * 1024, "Largest event in bytes that is taken from the upstream.")
    max_header: int = _setting(64 * 1024, "Largest request line or header field in bytes.")
    max_waiting: int = _setting(
        16 * 1024 * 1024,
        "Bytes that may wait for a client that does not read, beside two large events, before it is dropped.",
        reload=True,
    )
    client_timeout: float = _setting(
        300.0,
        "Seconds for which a client may send nothing of its body, or take nothing of its stream, before it is dropped.",
    )
    max_in_flight: int = _setting(
        1024,
        "Turns at once; beyond it 503 with retry-after. Where several keys want all they can get, each gets the same.",
        reload=True,
    )
    in_flight_per_identity: int = _setting(
        0,
        "Turns of one key or label at once, if less than its fair share; 0 sets no such limit.",
        reload=True,
    )
    sockets_per_identity: int = _setting(
        32,
        "Upstream sockets of one identity at once; a label of the team may have a limit of its own.",
        reload=True,
    )
    sockets: int = _setting(
        256, "Upstream sockets in all; one key has at most eight ninths of them busy.", reload=True
    )
    socket_wait: float = _setting(
        0.25, "Seconds to wait for a socket before a turn goes over plain HTTP.", reload=True
    )
    warm: int = _setting(
        0,
        "Spare sockets that each process keeps open for each identity seen, so that a first turn pays no handshake; 0 keeps none.",
        reload=True,
    )
    socket_idle: float = _setting(900.0, "Seconds after which an unused socket is closed.", reload=True)
    socket_age: float = _setting(
        3300.0, "Seconds after which a socket is retired between turns (the API ends them at 60 minutes)."
    )
    ping_interval: float = _setting(20.0, "Seconds between pings on each socket.")
    ping_timeout: float = _setting(20.0, "Seconds without a pong after which a socket is dead.")
    dial_timeout: float = _setting(10.0, "Seconds for connecting, TLS and the upgrade together.")
    write_timeout: float = _setting(30.0, "Seconds without write progress after which a socket is dead.")
    upgrade_memory: float = _setting(
        300.0, "Seconds for which an upstream without WebSocket is not dialled again."
    )
    conversations: int = _setting(
        10_000,
        "Responses that may be continued, kept at most; the least recently used go first.",
        reload=True,
    )
    conversation_items: int = _setting(
        5_000_000, "Items of all kept conversations together, at most.", reload=True
    )
    conversation_age: float = _setting(
        86_400.0, "Seconds for which an unused conversation is kept.", reload=True
    )
    index: str = _setting(
        "",
        "URL of a Redis or Valkey in which gateways of one deployment share what they know of stored conversations (redis://, "
        "rediss:// or unix://); empty shares nothing. Needs upwire[redis].",
    )
    index_key_file: str = _setting(
        "",
        "File with the secret that these gateways share; what stands in the index can be read and written with it only.",
    )
    index_key_env: str = _setting(
        "", "Name of the environment variable that holds that secret, instead of a file."
    )
    index_timeout: float = _setting(
        0.05, "Seconds that a turn may wait for the index before it goes on without."
    )
    check_parent: bool = _setting(
        True,
        "Throw away, unseen, an answer that says it continues another response than it was asked to.",
        reload=True,
    )
    survives_errors: bool = _setting(
        True,
        "Whether an upstream whose profile says so is trusted to keep a socket open after an error event.",
        reload=True,
    )
    drain_timeout: float = _setting(30.0, "Seconds that running turns may take to finish after SIGTERM.")
    drain_grace: float = _setting(
        0.0,
        "Seconds after SIGTERM in which new requests are still served; for a sidecar whose application ends later.",
    )
    handover_timeout: float = _setting(
        3600.0,
        "Seconds that what runs may take to finish after SIGUSR2, when a successor serves all that is new.",
    )
    traces: bool = _setting(
        False,
        "Export an OpenTelemetry span per turn, to where OTEL_EXPORTER_OTLP_ENDPOINT says; needs upwire[otel].",
    )
    log_level: str = _setting(
        "info", "Lowest level that is logged.", ("debug", "info", "warning", "error"), reload=True
    )
    log_format: str = _setting(
        "auto",
        "auto logs for people on a terminal and JSON elsewhere.",
        ("auto", "json", "console"),
        reload=True,
    )
    upstreams: tuple[UpstreamEntry, ...] = _setting(
        (),
        "Further upstreams as tables, [upstreams.NAME], each with path and url, and with profile, headers and key_file or key_env "
        "where it needs them.",
        table=True,
    )
