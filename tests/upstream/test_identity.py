"""Whose request it is, and which headers cross."""

from gateway.settings import PER_REQUEST_HEADERS
from gateway.upstream.identity import (
    Volatile,
    VolatileHeaders,
    end_to_end,
    handshake_headers,
    header_pairs,
    identity_digest,
    per_request,
    response_headers,
    upstream_headers,
)

KEY = b"k" * 32
URL = "https://h/v1/responses"
BASE = [("Authorization", "Bearer a"), ("OpenAI-Organization", "o"), ("X-Custom", "1"), ("X-Custom", "2")]


def digest(headers, *, url=URL, token=None, key=KEY):
    """The identity of these headers."""
    return identity_digest(key, url, headers, PER_REQUEST_HEADERS, token)


def test_same_caller_whatever_the_order_case_and_per_request_headers():
    """Order across names, case of names and per-request headers do not split an identity."""
    other = [
        ("x-custom", "1"),
        ("X-CUSTOM", "2"),
        ("openai-organization", "o"),
        ("authorization", "Bearer a"),
        ("User-Agent", "x"),
        ("Accept-Language", "de"),
        ("Content-Type", "application/json"),
        ("X-Stainless-Retry-Count", "1"),
        ("x-codex-turn-metadata", "{}"),
        ("session_id", "s"),
        ("traceparent", "t"),
        ("Host", "localhost:1"),
        ("Connection", "keep-alive, x-hop"),
        ("X-Hop", "1"),
        ("x-upwire-mode", "http"),
        ("Idempotency-Key", "stainless-python-retry-1"),
        ("Expect", "100-continue"),
    ]
    assert digest(BASE) == digest(other)
    assert len(digest(BASE)) == 16


def test_anything_else_is_another_identity():
    """Another key, organisation, value order, custom header, URL, query, token or process key is somebody else."""
    variants = [
        digest(BASE),
        digest([("Authorization", "Bearer b"), *BASE[1:]]),
        digest([BASE[0], ("OpenAI-Organization", "p"), *BASE[2:]]),
        digest([*BASE[:2], BASE[3], BASE[2]]),
        digest([*BASE, ("OpenAI-Beta", "x")]),
        digest([*BASE[:2], ("X-Custom", "12")]),
        digest([*BASE[:2], ("X-Custom", "1, 2")]),
        digest([*BASE, ("OpenAI-Project", "")]),
        digest(BASE, url=URL + "?api-version=1"),
        digest(BASE, token=""),
        digest(BASE, token="t"),
        digest(BASE, key=b"l" * 32),
        digest([*BASE, ("Idempotency-Key", "mine")]),
    ]
    assert len(set(variants)) == len(variants)


def test_hop_by_hop_and_own_headers_never_cross():
    """What ends at a connection, is listed in Connection or is ours is taken out both ways; repeats stay."""
    headers = [
        ("Connection", "close, X-A"),
        ("connection", "x-b"),
        ("x-a", "1"),
        ("X-B", "1"),
        ("Keep-Alive", "1"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "h2c"),
        ("Proxy-Authorization", "secret"),
        ("Proxy-Connection", "x"),
        ("X-Upwire-Mode", "http"),
        ("Set-Cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("X-C", "1"),
    ]
    assert end_to_end(headers) == (("Set-Cookie", "a=1"), ("set-cookie", "b=2"), ("X-C", "1"))


def test_upstream_headers_name_repeats_alike_and_leave_out_host_and_expect():
    """Repeats that differ in case take the first spelling, since the client library would lose them otherwise."""
    headers = [
        ("Host", "me"),
        ("Expect", "100-continue"),
        ("x-a", "1"),
        ("X-A", "2"),
        ("Content-Length", "3"),
    ]
    assert upstream_headers(headers) == (("x-a", "1"), ("x-a", "2"), ("Content-Length", "3"))


def test_a_decoded_body_gets_its_own_length_and_no_coding():
    """A body that is sent decoded must not be declared as coded."""
    headers = [("content-length", "3"), ("content-encoding", "zstd"), ("content-type", "application/json")]
    assert upstream_headers(headers, body_length=9) == (
        ("content-type", "application/json"),
        ("Content-Length", "9"),
    )


def test_handshake_headers_keep_credentials_and_per_request_headers_only():
    """An upgrade carries nothing about a body, no other handshake, no Origin, and no key for one request."""
    headers = [
        ("Authorization", "Bearer a"),
        ("OpenAI-Beta", "responses_websockets=2026-02-06"),
        ("User-Agent", "codex"),
        ("session-id", "s"),
        ("Accept", "text/event-stream"),
        ("Accept-Encoding", "gzip"),
        ("Content-Type", "application/json"),
        ("Content-Encoding", "zstd"),
        ("Content-Length", "1"),
        ("Host", "me"),
        ("Origin", "http://localhost"),
        ("Sec-WebSocket-Key", "x"),
        ("Sec-WebSocket-Extensions", "x"),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Expect", "100-continue"),
        ("Idempotency-Key", "stainless-1"),
        ("x-upwire-mode", "auto"),
    ]
    assert handshake_headers(headers) == tuple(headers[:5])


def test_a_length_beside_a_transfer_coding_is_not_believed():
    """Of two lengths only the transfer coding counts, and both are the connection's."""
    headers = [("Content-Length", "5"), ("Transfer-Encoding", "chunked"), ("X-A", "1")]
    assert response_headers(headers) == (("X-A", "1"),)
    assert response_headers(headers[:1]) == (("Content-Length", "5"),)


def test_header_bytes_that_are_not_utf8_lose_no_character():
    """Latin-1 values are read as such; UTF-8 values as UTF-8."""
    assert header_pairs([(b"X-A", b"caf\xe9"), (b"x-b", "né".encode())]) == (("X-A", "café"), ("x-b", "né"))


def test_patterns_match_exactly_or_by_beginning():
    """A final star matches any ending, and nothing else does."""
    patterns = ("accept*", "X-One")
    assert per_request("Accept", patterns) and per_request("accept-language", patterns)
    assert per_request("x-one", patterns)
    assert not per_request("x-one-two", patterns) and not per_request("x-accept", patterns)
    assert not per_request("x-any", ())


def observe(seen, *headers):
    """Observe a turn with these headers beside the usual credentials."""
    return seen.observe(URL, [("Authorization", "Bearer a"), *headers], PER_REQUEST_HEADERS, None)


def test_a_header_that_keeps_changing_is_named_once():
    """Twenty values are fine, the next turn and all later ones are volatile, and only one of them reports the name."""
    seen = VolatileHeaders(KEY)
    first = [observe(seen, ("X-Trace", str(n)), ("X-App", "a")) for n in range(20)]
    later = [observe(seen, ("X-Trace", str(n)), ("X-App", "a")) for n in range(20, 40)]
    assert first == [None] * 20
    assert later == [Volatile("x-trace", first=True)] + [Volatile("x-trace", first=False)] * 19


def test_two_headers_that_change_together_do_not_hide_each_other():
    """A pair of changing headers, as tracers send, is found although all else is never equal."""
    seen = VolatileHeaders(KEY)
    found = [observe(seen, ("x-b3-traceid", str(n)), ("x-b3-spanid", str(n))) for n in range(30)]
    assert found[19] is None
    assert found[20] == Volatile("x-b3-traceid", first=True)


def test_many_users_are_many_identities():
    """Keys, organisations, projects and accounts may vary without limit, and so may per-request headers."""
    seen = VolatileHeaders(KEY)
    for n in range(200):
        for name in (
            "Authorization",
            "api-key",
            "OpenAI-Organization",
            "OpenAI-Project",
            "ChatGPT-Account-ID",
        ):
            headers = [(name, str(n)), ("X-App", "a"), ("x-codex-turn-metadata", str(n))]
            assert seen.observe(URL, headers, PER_REQUEST_HEADERS, None) is None


def test_one_steady_value_is_not_volatile_because_another_caller_changes_it():
    """Another caller's changing header does not send this caller's turns over plain HTTP."""
    seen = VolatileHeaders(KEY)
    for n in range(40):
        observe(seen, ("X-Trace", str(n)))
        assert seen.observe(URL, [("Authorization", "Bearer b"), ("X-Trace", "1")], (), None) is None


def test_what_is_remembered_is_bounded():
    """However many headers and values go by, no more than the capacity is kept."""
    seen = VolatileHeaders(KEY, capacity=50)
    for n in range(500):
        observe(seen, (f"X-{n}", str(n)), ("X-Other", str(n)))
    assert len(seen._seen) <= 50
    assert all(len(entry.values) <= 60 for entry in seen._seen.values())
