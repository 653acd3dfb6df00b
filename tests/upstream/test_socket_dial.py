"""Dials that fail, what is remembered of them, and TLS."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess

import pytest
from raw_peer import RawSocket, raw_peer
from socket_peer import FAST, SLOW, done, peer, pool_of, refusing, status, swallow, target

from gateway.pool import PoolLimits
from gateway.upstream.dial import DialOptions, UpgradeRefused, dial
from gateway.upstream.inbox import SocketLost
from gateway.upstream.socket_pool import SocketPool
from tests.ports import free_port

MB = 1024 * 1024


async def refusal_of(pool: SocketPool, url: str, identity: bytes = b"me") -> UpgradeRefused:
    """The refusal that a turn gets."""
    with pytest.raises(UpgradeRefused) as caught:
        await pool.acquire(target(url, identity), [])
    return caught.value


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        (status(401, b'{"error":{}}'), 401, "status"),
        (status(200, b"<html>"), 200, "status"),
        (b"HTTP/1.1 302 Found\r\nlocation: ws://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", 302, "status"),
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 99\r\n\r\nbody never ends", 403, "status"),
        (b"HTTP/1.1 503 Busy\r\n\r\n" + b"x" * 3_000_000, 503, "status"),
        (b"SSH-2.0-x\r\n", None, "protocol"),
        (b"", None, "eof"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", None, "protocol"),
    ],
    ids=["401", "200", "302", "unfinished", "huge", "not http", "nothing", "101 without upgrade"],
)
async def test_refused_upgrades(answer: bytes, code: int | None, reason: str) -> None:
    """The status is told without waiting for a body; redirects are not followed."""
    async with refusing(answer) as seen, pool_of() as pool, asyncio.timeout(2):
        refusal = await refusal_of(pool, seen.url)
        assert (refusal.status, refusal.reason, refusal.remembered) == (code, reason, False)
        assert seen.dials == 1
        assert pool.snapshot()["open"] == 0


async def test_failures_before_http() -> None:
    """Refused connection, unknown name, bad URL and silence each have their word."""
    words = []
    urls = [f"ws://127.0.0.1:{free_port()}/", "ws://host.invalid/", "http://127.0.0.1/", "ws://127.0.0.1:x/"]
    for url in urls:
        async with pool_of() as pool:
            words.append((await refusal_of(pool, url)).reason)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with pool_of(dial_timeout=0.1) as pool:
            words.append((await refusal_of(pool, f"ws://127.0.0.1:{silent.getsockname()[1]}/")).reason)
    assert words == ["connect", "dns", "bad_url", "bad_url", "timeout"]


async def test_header_that_cannot_be_sent_is_a_refusal_that_does_not_quote_it() -> None:
    """A line break in a value never reaches the wire, nor any text of ours."""
    async with peer() as seen:
        with pytest.raises(UpgradeRefused) as caught:
            await dial(seen.url, [("authorization", "secret\r\nx: y")], DialOptions(patience=SLOW))
        assert caught.value.reason == "bad_headers"
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None
        assert seen.dials == 0


async def test_bytes_beyond_ascii_go_up_as_they_came_and_handshake_headers_stay_ours() -> None:
    """A UTF-8 header value keeps its bytes; a client's framing and upgrade headers do not reach the handshake."""
    async with peer(swallow) as seen:
        headers = [
            ("x-title", "é"),
            ("Host", "evil"),
            ("Sec-WebSocket-Protocol", "x"),
            ("content-length", "5"),
        ]
        opened = await dial(seen.url, headers, DialOptions(patience=SLOW))
        request = seen.sockets[0].request
        assert request.headers["x-title"].encode("latin-1") == "é".encode()
        assert request.headers["host"].startswith("127.0.0.1:")
        assert "sec-websocket-protocol" not in request.headers
        assert "content-length" not in request.headers
        opened.abort()
        await opened.wait_closed()


async def test_library_logs_nothing_even_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    """Keys and prompts must not reach a log, whatever its level."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger("websockets").setLevel(logging.DEBUG)
    async with peer() as seen, pool_of() as pool:
        lease = await pool.acquire(target(seen.url), [])
        await lease.send(b'"the prompt"')
        await lease.receive()
        lease.abort()
    ours = [r for r in caplog.records if not r.name.startswith("websockets.server")]
    assert not any("Bearer" in r.getMessage() or "the prompt" in r.getMessage() for r in ours)


@pytest.mark.parametrize(
    ("answer", "dials"),
    [
        (404, 1),
        (405, 1),
        (426, 1),
        (501, 1),
        (200, 1),
        (302, 1),
        (400, 2),
        (403, 2),
        (429, 1),
        (503, 1),
        (401, 20),
    ],
)
async def test_dials_in_twenty_turns(answer: int, dials: int) -> None:
    """An upstream without WebSocket costs one or two dials; a bad key is asked about each time."""
    async with refusing(status(answer)) as seen, pool_of() as pool:
        for _ in range(20):
            assert (await refusal_of(pool, seen.url)).status == answer
        assert seen.dials == dials


async def test_after_the_memory_one_new_probe() -> None:
    """When the time is over one dial finds out again, also for turns that come together."""
    now = [0.0]
    async with (
        refusing(status(404)) as seen,
        pool_of(PoolLimits(upgrade_memory=300), clock=lambda: now[0]) as pool,
    ):
        await refusal_of(pool, seen.url)
        now[0] = 299
        assert (await refusal_of(pool, seen.url)).remembered
        now[0] = 301
        refusals = await asyncio.gather(*(refusal_of(pool, seen.url) for _ in range(10)))
        assert seen.dials == 2
        assert sorted(r.remembered for r in refusals) == [False] + 9 * [True]


async def test_failing_dials_back_off_and_recover() -> None:
    """Each failure doubles the pause; a success ends it."""
    now = [0.0]
    async with (
        refusing(status(503), status(503), status(101)) as seen,
        pool_of(clock=lambda: now[0]) as pool,
    ):
        await refusal_of(pool, seen.url)
        now[0] += 1.0
        await refusal_of(pool, seen.url)
        now[0] += 1.0
        assert (await refusal_of(pool, seen.url)).remembered
        now[0] += 1.0
        assert not (await refusal_of(pool, seen.url)).remembered
        assert seen.dials == 3


async def test_turns_that_come_together_share_the_first_dial() -> None:
    """Until an upstream is proven only one dial runs; then each turn gets a socket of its own, all at once."""
    under_way: list[int] = []
    running = 0

    async def slowly(_connection: object, _request: object) -> None:
        nonlocal running
        running += 1
        under_way.append(running)
        await asyncio.sleep(0.05)
        running -= 1

    async with peer(swallow, process_request=slowly) as seen, pool_of() as pool:
        leases = await asyncio.gather(*(pool.acquire(target(seen.url), []) for _ in range(5)))
        assert len({lease.socket_id for lease in leases}) == 5
        assert under_way == [1, 1, 2, 3, 4]
        for lease in leases:
            lease.abort()


async def test_failed_probe_is_everyones_and_a_bad_key_only_its_own() -> None:
    """A 404 counts for all who waited; a 401 for its caller, and the next waiting one probes for itself."""
    async with refusing(status(404)) as seen, pool_of() as pool:
        await asyncio.gather(*(refusal_of(pool, seen.url, b"%d" % n) for n in range(10)))
        assert seen.dials == 1
    async with refusing(status(401)) as seen, pool_of() as pool:
        refusals = await asyncio.gather(*(refusal_of(pool, seen.url, b"%d" % n) for n in range(4)))
        assert [r.status for r in refusals] == [401] * 4
        assert seen.dials == 4


async def test_cancelled_probe_passes_the_task_on() -> None:
    """When the turn that dials for all is cancelled, a waiting one dials."""
    async with peer(swallow) as seen, pool_of() as pool:
        first = asyncio.ensure_future(pool.acquire(target(seen.url), []))  # noqa: TID251
        second = asyncio.ensure_future(pool.acquire(target(seen.url), []))  # noqa: TID251
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        (await second).abort()
        assert pool.snapshot()["opened"] == 1


@pytest.mark.parametrize("steps", range(12))
async def test_dial_cancelled_at_any_step_leaves_nothing(steps: int) -> None:
    """Whatever the dial was waiting for, its place is free afterwards and its connection gone."""
    async with peer(swallow) as seen, pool_of(PoolLimits(sockets=1, socket_wait=0)) as pool:
        dialling = asyncio.ensure_future(pool.acquire(target(seen.url), []))  # noqa: TID251
        for _ in range(steps):
            await asyncio.sleep(0)
        if not dialling.done():
            dialling.cancel()
        try:
            (await dialling).abort()
        except asyncio.CancelledError:
            (await pool.acquire(target(seen.url), [])).abort()
        assert pool.snapshot()["open"] == 0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    place = tmp_path_factory.mktemp("tls")
    cert, key = str(place / "cert.pem"), str(place / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def server_side(certificate: tuple[str, str]) -> ssl.SSLContext:
    """The server's context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


async def test_tls_turn_and_distrust(certificate: tuple[str, str]) -> None:
    """A trusted certificate works, an unknown one is a refusal."""

    async def serve_turn(raw: RawSocket) -> None:
        await raw.text()
        raw.write(1, done(1))
        await raw.ponging()

    trusting = ssl.create_default_context(cafile=certificate[0])
    async with raw_peer(serve_turn, ssl=server_side(certificate)) as url:
        async with pool_of(ssl=trusting) as pool:
            lease = await pool.acquire(target(url), [])
            await lease.send(b"x" * MB)
            assert await lease.receive() == [done(1)]
            lease.release(tip="r1", stored=False, reusable=True)
            assert pool.snapshot()["idle"] == 1
        async with pool_of(ssl=ssl.create_default_context()) as pool:
            assert (await refusal_of(pool, url)).reason == "tls"


async def test_cut_frame_over_tls_counts_as_never_written(certificate: tuple[str, str]) -> None:
    """The buffer below the TLS layer is looked at too: what is still there has not left."""

    async def cut(raw: RawSocket) -> None:
        await raw.reader.readexactly(100_000)
        raw.reset()

    context = ssl.create_default_context(cafile=certificate[0])
    tls = server_side(certificate)
    async with raw_peer(cut, receive_buffer=16_384, ssl=tls) as url, pool_of(ssl=context) as pool:
        lease = await pool.acquire(target(url), [])
        with pytest.raises(SocketLost) as caught:
            await lease.send(b"x" * (5 * MB))
        assert (caught.value.flushed, caught.value.answered) == (False, False)


async def test_slow_write_over_tls_shows_its_progress(certificate: tuple[str, str]) -> None:
    """Over TLS, too, a large frame may take longer than the write timeout as long as it moves."""
    size = 6 * MB

    async def slow(raw: RawSocket) -> None:
        taken = 0
        while taken < size:
            taken += len(await raw.reader.read(65_536))
            await asyncio.sleep(0.01)
        raw.write(1, done(1))
        await asyncio.sleep(0.1)

    context = ssl.create_default_context(cafile=certificate[0])
    tls = server_side(certificate)
    async with (
        raw_peer(slow, receive_buffer=65_536, ssl=tls) as url,
        pool_of(ssl=context, patience=FAST) as pool,
    ):
        lease = await pool.acquire(target(url), [])
        await lease.send(b"x" * size)
        assert await lease.receive() == [done(1)]
        lease.abort()


async def test_without_the_name_for_what_is_below_tls_bytes_count_as_sent(
    certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn is answered as ever; one cut off counts as sent, so that it is not sent again."""
    if not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
        pytest.skip("on this loop no private name is needed")

    def look(thing: object, name: str, default: object) -> object:
        return default if name == "_ssl_protocol" else getattr(thing, name, default)

    async def serve_turn(raw: RawSocket) -> None:
        await raw.text()
        raw.write(1, done(1))
        await raw.reader.readexactly(100_000)
        raw.reset()

    monkeypatch.setattr("gateway.upstream.socket.getattr", look, raising=False)
    context = ssl.create_default_context(cafile=certificate[0])
    async with (
        raw_peer(serve_turn, receive_buffer=16_384, ssl=server_side(certificate)) as url,
        pool_of(ssl=context) as pool,
    ):
        lease = await pool.acquire(target(url), [])
        await lease.send(b"x")
        assert await lease.receive() == [done(1)]

        async def second() -> None:
            await lease.send(b"x" * (5 * MB))
            await lease.receive()

        with pytest.raises(SocketLost) as caught:
            await second()
        assert caught.value.flushed
