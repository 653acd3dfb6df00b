"""Whose request it is, and which of its headers go where. Pure: the key of the digest is an argument.

Headers are ``(name, value)`` pairs in the order and spelling received. Values are compared and passed on, never shown.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

Headers = Sequence[tuple[str, str]]

OWN_PREFIX = "x-upwire-"

# RFC 9110, 7.6.1, with the older names that it obsoletes.
HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip

# Answered by us on this connection, or written anew for the next.
_PER_CONNECTION = frozenset({"host", "expect"})

# They describe a body or are per request in meaning; a browser's Origin is not ours to claim on a socket.
_NOT_IN_HANDSHAKE = frozenset({"accept-encoding", "idempotency-key", "origin", "range"})

BEARER = "authorization"

CLIENT_KEYS = frozenset({"authorization", "api-key", "x-api-key"})
"""Where a client's key stands; behind a gateway that has the upstream's key it is one for the gateway."""

# Many users are many identities, never one whose header keeps changing.
_CREDENTIALS = CLIENT_KEYS | {"openai-organization", "openai-project", "chatgpt-account-id"}


def header_pairs(raw: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    """Header fields as text. Values that are not UTF-8 are read as Latin-1, so that every character survives."""
    return tuple((name.decode("latin-1"), _text(value)) for name, value in raw)


def end_to_end(headers: Headers) -> tuple[tuple[str, str], ...]:
    """``headers`` without those that end at a connection (listed in ``Connection`` or known) and without our own."""
    ending = _ending(headers)
    return tuple(
        (name, value)
        for name, value in headers
        if (low := name.lower()) not in ending and not low.startswith(OWN_PREFIX)
    )


def with_key(headers: Headers, key: str, header: str = BEARER) -> tuple[tuple[str, str], ...]:
    """The client's headers with ``key`` in ``header`` as the only credential; what ends at the client's connection is gone.

    So a client cannot make the key one of the headers that end there by listing it in ``Connection``.
    """
    gone = _ending(headers) | CLIENT_KEYS
    kept = [(name, value) for name, value in headers if name.lower() not in gone]
    return *kept, ("Authorization", f"Bearer {key}") if header == BEARER else (header, key)


def has_key(headers: Headers, key: str, header: str = BEARER) -> bool:
    """Whether ``key`` stands in ``headers`` as ``with_key`` puts it there."""
    value = f"Bearer {key}" if header == BEARER else key
    return any(name.lower() == header and each == value for name, each in headers)


def with_headers(headers: Headers, more: Headers) -> tuple[tuple[str, str], ...]:
    """The client's headers with ``more`` in place of its own of those names; what ends at the client's connection is gone.

    So a client can neither replace one of them nor make it end there.
    """
    gone = _ending(headers) | {name.lower() for name, _ in more}
    return *((name, value) for name, value in headers if name.lower() not in gone), *more


def upstream_headers(headers: Headers, *, body_length: int | None = None) -> tuple[tuple[str, str], ...]:
    """The client's headers as a plain-HTTP request carries them upstream.

    With ``body_length`` the body is sent decoded: its length replaces the client's, and the content coding is left out.
    """
    kept = [(n, v) for n, v in end_to_end(headers) if n.lower() not in _PER_CONNECTION]
    if body_length is not None:
        kept = [(n, v) for n, v in kept if n.lower() not in {"content-length", "content-encoding"}]
        kept.append(("Content-Length", str(body_length)))
    return one_spelling(kept)


def handshake_headers(headers: Headers) -> tuple[tuple[str, str], ...]:
    """The client's headers as an upgrade to WebSocket carries them: credentials and all else that is not about a body."""
    return one_spelling(
        [
            (name, value)
            for name, value in end_to_end(headers)
            if (low := name.lower()) not in _PER_CONNECTION | _NOT_IN_HANDSHAKE
            and not low.startswith(("content-", "sec-websocket-"))
        ]
    )


def standing_headers(handshake: Headers, patterns: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Of the headers of a handshake those about the caller: none that ``patterns`` name as about one request, but the program's name."""
    return tuple((n, v) for n, v in handshake if n.lower() == "user-agent" or not per_request(n, patterns))


def between_processes(headers: Headers) -> tuple[tuple[str, str], ...]:
    """The client's headers as one process of a gateway gives them to another, with the body decoded: nothing else is lost."""
    gone = (_ending(headers) | _PER_CONNECTION | {"content-length", "content-encoding"}) - {"host"}
    return one_spelling(
        [(n, v) for n, v in headers if n.lower() not in gone or n.lower().startswith(OWN_PREFIX)]
    )


def response_headers(headers: Headers) -> tuple[tuple[str, str], ...]:
    """An upstream's response headers as the client gets them; a length beside a transfer coding is not believed."""
    coded = any(name.lower() == "transfer-encoding" for name, _ in headers)
    return tuple((n, v) for n, v in end_to_end(headers) if not (coded and n.lower() == "content-length"))


def one_spelling(headers: Headers) -> tuple[tuple[str, str], ...]:
    """``headers`` with repeats of a name spelled like its first occurrence; clients may lose those that differ in case."""
    first: dict[str, str] = {}
    return tuple((first.setdefault(name.lower(), name), value) for name, value in headers)


def identity_digest(
    key: bytes, upstream_url: str, headers: Headers, patterns: tuple[str, ...], token: str | None
) -> bytes:
    """Digest of whose request this is: 16 bytes, equal only for the same upstream, credentials and settings in headers.

    It covers the upstream URL with its query, every end-to-end header that no pattern names as per-request, and the
    gateway token. Order matters between values of one name only; names have no case. ``key`` (16 to 64 random bytes) makes
    digests of different processes incomparable.
    """
    digest = _new(key)
    _feed(digest, upstream_url, "token" if token is not None else "", token or "")
    for name, values in sorted(_telling(headers, patterns).items()):
        _feed(digest, name, str(len(values)), *values)
    return digest.digest()


def credential_digest(key: bytes, headers: Headers, token: str | None) -> bytes:
    """Digest of who pays for this request: 16 bytes, equal for the same credentials whatever else its headers say."""
    digest = _new(key)
    _feed(digest, token or "")
    for name, value in sorted((n.lower(), v) for n, v in headers if n.lower() in CLIENT_KEYS):
        _feed(digest, name, value)
    return digest.digest()


def key_in(value: str) -> str:
    """The key in a header's value, with or without the word Bearer before it."""
    scheme, _, key = value.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else value


class Volatile(NamedTuple):
    """A header whose value keeps changing; ``first`` says that its name was not reported before."""

    name: str
    first: bool


@dataclass(slots=True)
class _Seen:
    values: OrderedDict[int, None] = field(default_factory=OrderedDict)
    fresh: int = 0


class VolatileHeaders:
    """Finds headers that would make every turn an identity of its own, and with it a new socket.

    A header counts as volatile when it had more than ``limit`` values while all else was equal, or, so that several such
    headers in one request cannot hide each other, more than ``limit`` new values in a row for the same credentials. Headers
    that carry credentials are exempt. At most ``capacity`` combinations are remembered, as digests.
    """

    def __init__(self, key: bytes, *, limit: int = 20, capacity: int = 4096) -> None:
        self._key = key
        self._limit = limit
        self._capacity = capacity
        self._seen: OrderedDict[tuple[str, str, int], _Seen] = OrderedDict()
        self._reported: set[str] = set()

    def observe(
        self, upstream_url: str, headers: Headers, patterns: tuple[str, ...], token: str | None
    ) -> Volatile | None:
        """Take note of a turn's headers; the volatile header that sends this turn over plain HTTP, or None."""
        telling = _telling(headers, patterns)
        base = self._number(upstream_url, str(token is None), token or "")
        numbers = {name: self._number(name, *values) for name, values in telling.items()}
        caller = base + sum(number for name, number in numbers.items() if name in _CREDENTIALS)
        group = caller + self._number(*sorted(numbers))
        whole = base + sum(numbers.values())
        found: str | None = None
        for name, number in numbers.items():
            if name in _CREDENTIALS:
                continue
            alone = self._look("alone", name, whole - number, number)
            together = self._look("together", name, group, number)
            if len(alone.values) > self._limit or together.fresh > self._limit:
                found = found or name
        if found is None:
            return None
        first = found not in self._reported and len(self._reported) < self._capacity
        if first:
            self._reported.add(found)
        return Volatile(found, first)

    def _look(self, rule: str, name: str, rest: int, value: int) -> _Seen:
        place = (rule, name, rest)
        seen = self._seen.setdefault(place, _Seen())
        self._seen.move_to_end(place)
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
        seen.fresh = 0 if value in seen.values else seen.fresh + 1
        seen.values[value] = None
        if len(seen.values) > 3 * self._limit:
            seen.values.popitem(last=False)
        return seen

    def _number(self, *texts: str) -> int:
        digest = _new(self._key)
        _feed(digest, *texts)
        return int.from_bytes(digest.digest(), "big")


def per_request(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of ``patterns`` (exact names, or beginnings with a final ``*``) covers the header ``name``."""
    exact, beginnings = _compiled(patterns)
    low = name.lower()
    return low in exact or low.startswith(beginnings)


@lru_cache(maxsize=16)
def _compiled(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    low = [pattern.lower() for pattern in patterns]
    return frozenset(p for p in low if not p.endswith("*")), tuple(p[:-1] for p in low if p.endswith("*"))


def _ending(headers: Headers) -> frozenset[str]:
    """The names of headers that end at the connection on which they came."""
    listed = {
        token.strip().lower()
        for name, value in headers
        if name.lower() in {"connection", "proxy-connection"}
        for token in value.split(",")
    }
    return HOP_BY_HOP | listed


def _telling(headers: Headers, patterns: tuple[str, ...]) -> dict[str, list[str]]:
    """The headers that tell callers apart, by lower-case name."""
    found: dict[str, list[str]] = {}
    for name, value in end_to_end(headers):
        low = name.lower()
        # The SDKs' automatic idempotency keys are new on every request and mean nothing about the caller.
        automatic = low == "idempotency-key" and value.startswith("stainless-")
        if (
            low not in _PER_CONNECTION
            and low != "content-length"
            and not automatic
            and not per_request(low, patterns)
        ):
            found.setdefault(low, []).append(value)
    return found


def _new(key: bytes) -> hashlib.blake2b:
    return hashlib.blake2b(key=key, digest_size=16)


def _feed(digest: hashlib.blake2b, *texts: str) -> None:
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
