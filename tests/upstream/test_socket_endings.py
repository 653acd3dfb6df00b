"""Every way in which a socket can end under a turn, and what the turn is told."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading

import pytest
from raw_peer import RawSocket, raw_frame, raw_peer, upgrade_answer
from socket_peer import FAST, SLOW, done, pool_of, target

from gateway.pool import Want
from gateway.upstream.inbox import SocketLost
from gateway.upstream.lease import Lease
from gateway.upstream.socket import UpstreamSocket

MB = 1024 * 1024


async def lost(lease: Lease, frame: bytes = b"{}") -> SocketLost:
    """Send, receive until the socket is lost, and give back how it was."""
    with pytest.raises(SocketLost) as caught:  # noqa: PT012
        await lease.send(frame)
        while True:
            await lease.receive()
    return caught.value


async def one_good_turn(raw: RawSocket) -> None:
    """Serve the first turn of a socket properly, pong included."""
    await raw.text()
    raw.write(1, done(1))
    while (got := await raw.frame())[0] != 9:
        pass
    raw.write(10, got[1])


@pytest.mark.parametrize(
    ("ending", "reason", "code"),
    [
        (lambda raw: raw.reset(), "reset", None),
        (lambda raw: raw.writer.close(), "eof", None),
        (lambda raw: raw.close(1000), "closed", 1000),
        (lambda raw: raw.close(1008), "closed", 1008),
        (lambda raw: raw.close(1009), "closed", 1009),
        (lambda raw: raw.write(8, b""), "closed", 1005),
        (lambda raw: raw.write(2, b"{}"), "binary", None),
        (lambda raw: raw.write(1, b"\xff"), "protocol", None),
        (lambda raw: raw.writer.write(b"HTTP/1.1 502 Bad Gateway\r\n" * 9), "protocol", None),
        (lambda raw: raw.write(1, b"x" * 2000), "event_too_large", None),
    ],
    ids=["reset", "eof", "1000", "1008", "1009", "no code", "binary", "bad utf-8", "rubbish", "too large"],
)
async def test_how_the_upstream_ends_a_silent_turn(ending, reason: str, code: int | None) -> None:
    """The turn ends within a moment and is told the cause; only the upstream's own 1009 says that the frame is too big."""

    async def script(raw: RawSocket) -> None:
        await raw.text()
        ending(raw)
        await asyncio.sleep(5)

    async with raw_peer(script) as url, pool_of(max_event=1000) as pool:
        lease = await pool.acquire(target(url), [])
        async with asyncio.timeout(1):
            loss = await lost(lease)
        assert (loss.reason, loss.code, loss.too_big) == (reason, code, code == 1009)
        assert (loss.flushed, loss.answered, loss.ponged, loss.reused) == (True, False, False, False)
        counts = pool.snapshot()
        assert (counts["open"], counts["busy"]) == (0, 0)
        lease.release(tip="r1", stored=False, reusable=True)
        assert sum(counts["closed"].values()) == 1


async def test_a_connection_that_is_gone_right_behind_the_frame_took_the_frame(monkeypatch) -> None:
    """An upstream may answer and reset before our ping is written: then the frame has left all the same, and may have run."""
    taken: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def script(raw: RawSocket) -> None:
        taken.set_result(await raw.text())

    monkeypatch.setattr(UpstreamSocket, "_send_ping", lambda self, _payload: self.transport.abort())
    async with raw_peer(script) as url, pool_of() as pool:
        lease = await pool.acquire(target(url), [])
        async with asyncio.timeout(2):
            loss = await lost(lease, b'{"a":1}')
            assert await taken == b'{"a":1}'
        assert (loss.flushed, loss.answered) == (True, False)
        lease.release(tip=None, stored=False, reusable=False)


async def test_frames_before_the_end_are_delivered_first() -> None:
    """What came in the same read as the close frame is still received."""

    async def script(raw: RawSocket) -> None:
        await raw.text()
        raw.writer.write(raw_frame(1, b"1") + raw_frame(1, b"2") + raw_frame(8, b"\x03\xe8"))
        await asyncio.sleep(5)

    async with raw_peer(script) as url, pool_of() as pool:
        lease = await pool.acquire(target(url), [])
        await lease.send(b"{}")
        assert await lease.receive() == [b"1", b"2"]
        with pytest.raises(SocketLost) as caught:
            await lease.receive()
        assert (caught.value.answered, caught.value.code) == (True, 1000)


async def test_frames_split_over_reads_and_fragments_are_joined() -> None:
    """A message may come byte by byte or in fragments with a ping between them; one read is one wake-up."""

    async def script(raw: RawSocket) -> None:
        await raw.text()
        for byte in raw_frame(1, '{"é":1}'.encode()):
            raw.writer.write(bytes([byte]))
            await asyncio.sleep(0.001)
        raw.write(1, b'{"long":"', fin=False)
        await asyncio.sleep(0.01)
        raw.write(9, b"server")
        raw.write(0, b"x" * 70_000, fin=False)
        raw.write(0, b'"}')
        await asyncio.sleep(0.05)
        raw.writer.write(b"".join(raw_frame(1, b"%d" % number) for number in range(500)))
        await raw.ponging()

    async with raw_peer(script) as url, pool_of() as pool:
        lease = await pool.acquire(target(url), [])
        await lease.send(b"{}")
        assert await lease.receive() == ['{"é":1}'.encode()]
        assert await lease.receive() == [b'{"long":"' + b"x" * 70_000 + b'"}']
        assert await lease.receive() == [b"%d" % number for number in range(500)]
        lease.abort()


async def test_reset_of_a_reused_socket_without_pong() -> None:
    """The case that may be repeated: reused, written, no frame, no pong."""

    async def script(raw: RawSocket) -> None:
        await one_good_turn(raw)
        await raw.text()
        raw.reset()

    async with raw_peer(script) as url, pool_of() as pool:
        lease = await pool.acquire(target(url), [])
        await lease.send(b"{}")
        await lease.receive()
        lease.release(tip="r1", stored=False, reusable=True)
        lease = await pool.acquire(target(url), [Want("r1", stored=False)])
        loss = await lost(lease)
        assert (loss.reused, loss.flushed, loss.answered, loss.ponged) == (True, True, False, False)


async def test_pong_to_the_ping_behind_the_frame_is_noticed() -> None:
    """An upstream that answered the ping has had the frame."""

    async def script(raw: RawSocket) -> None:
        await one_good_turn(raw)
        await raw.text()
        while (got := await raw.frame())[0] != 9:
            pass
        raw.write(10, got[1])
        await asyncio.sleep(0.05)
        raw.reset()

    async with raw_peer(script) as url, pool_of() as pool:
        lease = await pool.acquire(target(url), [])
        await lease.send(b"{}")
        await lease.receive()
        lease.release(tip="r1", stored=False, reusable=True)
        loss = await lost(await pool.acquire(target(url), [Want("r1", stored=False)]))
        assert (loss.reused, loss.answered, loss.ponged) == (True, False, True)


async def test_pong_to_an_earlier_ping_proves_nothing() -> None:
    """Only a pong to a ping sent behind this turn's frame counts."""

    async def script(raw: RawSocket) -> None:
        await raw.text()
        raw.write(1, done(1))
        while (early := await raw.frame())[0] != 9:
            pass
        await raw.text()
        raw.write(10, early[1])
        await asyncio.sleep(0.02)
        raw.reset()

    async with raw_peer(script) as url, pool_of() as pool:
        lease = await pool.acquire(target(url), [])
        await lease.send(b"{}")
        await lease.receive()
        lease.release(tip="r1", stored=False, reusable=True)
        loss = await lost(await pool.acquire(target(url), [Want("r1", stored=False)]))
        assert (loss.reused, loss.ponged) == (True, False)


async def test_upstream_that_stops_reading_in_a_large_frame_is_given_up() -> None:
    """Without write progress the socket is dead after the write timeout, and the frame counts as never written."""

    async def script(raw: RawSocket) -> None:
        await raw.reader.readexactly(1000)
        await asyncio.sleep(5)

    async with raw_peer(script, receive_buffer=16_384) as url, pool_of(patience=FAST) as pool:
        lease = await pool.acquire(target(url), [])
        async with asyncio.timeout(2):
            loss = await lost(lease, b"x" * (5 * MB))
        assert (loss.reason, loss.flushed) == ("write_timeout", False)
        assert pool.snapshot()["closed"]["write_timeout"] == 1


async def test_reset_in_the_middle_of_a_large_frame() -> None:
    """A frame that was cut cannot have run."""

    async def script(raw: RawSocket) -> None:
        await raw.reader.readexactly(100_000)
        raw.reset()

    async with raw_peer(script, receive_buffer=16_384) as url, pool_of() as pool:
        async with asyncio.timeout(2):
            loss = await lost(await pool.acquire(target(url), []), b"x" * (5 * MB))
        assert (loss.reason, loss.flushed) == ("reset", False)


async def test_half_closed_upstream_ends_a_write_at_once() -> None:
    """An upstream that will send no more makes waiting for our own bytes to leave pointless."""

    async def script(raw: RawSocket) -> None:
        await raw.reader.readexactly(14)
        raw.writer.write_eof()
        await asyncio.sleep(5)

    async with raw_peer(script, receive_buffer=16_384) as url, pool_of() as pool:
        async with asyncio.timeout(1):
            loss = await lost(await pool.acquire(target(url), []), b"x" * (5 * MB))
        assert (loss.reason, loss.flushed) == ("eof", False)


async def test_frame_that_the_connection_does_not_take_at_all() -> None:
    """A reset that came before the write is found by the write itself, which then counts as not done."""
    go, gone = threading.Event(), threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(upgrade_answer(connection.recv(65_536)))
        go.wait(5)
        connection.close()
        gone.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        async with pool_of() as pool:
            lease = await pool.acquire(target(f"ws://127.0.0.1:{listener.getsockname()[1]}/"), [])
            go.set()
            gone.wait(5)
            loss = await lost(lease)
            assert (loss.reason, loss.flushed, loss.reused) == ("reset", False, False)
        thread.join()


async def test_refusal_of_a_frame_for_its_size_while_it_is_written() -> None:
    """The close code arrives although the upstream never reads the rest."""

    async def script(raw: RawSocket) -> None:
        await raw.reader.readexactly(14)
        raw.close(1009)
        await asyncio.sleep(5)

    async with raw_peer(script, receive_buffer=16_384) as url, pool_of() as pool:
        async with asyncio.timeout(2):
            loss = await lost(await pool.acquire(target(url), []), b"x" * (5 * MB))
        assert (loss.too_big, loss.flushed, loss.answered) == (True, False, False)


async def test_close_right_after_the_upgrade() -> None:
    """A middlebox that accepts and closes: told to the turn, and not dialled a third time."""

    async def script(raw: RawSocket) -> None:
        raw.close(1008)

    async with raw_peer(script) as url, pool_of() as pool:
        for _ in range(2):
            loss = await lost(await pool.acquire(target(url), []))
            assert (loss.code, loss.reused, loss.answered) == (1008, False, False)
        with pytest.raises(Exception, match="closed_early"):
            await pool.acquire(target(url), [])


async def test_unused_sockets_closed_by_the_upstream_say_nothing_about_websocket() -> None:
    """A turn that decided not to send leaves an idle socket that never had an event; its close is no refusal."""
    go = asyncio.Event()

    async def script(raw: RawSocket) -> None:
        await go.wait()
        raw.close(1000)

    async with raw_peer(script) as url, pool_of() as pool:
        for number in range(3):
            go.clear()
            lease = await pool.acquire(target(url), [])
            lease.release(tip=None, stored=False, reusable=True, keep_parent=True)
            go.set()
            while pool.snapshot()["idle"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert pool.snapshot()["closed"]["lost"] == number + 1


async def test_socket_released_in_the_middle_of_a_frame_is_not_lent_again() -> None:
    """The rest of a frame that began during one turn must not open the next."""

    async def script(raw: RawSocket) -> None:
        await raw.text()
        stray = raw_frame(1, b'{"type":"response.output_text.delta"}')
        raw.writer.write(raw_frame(1, done(1)) + stray[:2])
        await asyncio.sleep(0.05)
        raw.writer.write(stray[2:])
        await raw.ponging()

    async with raw_peer(script) as url, pool_of() as pool:
        lease = await pool.acquire(target(url), [])
        await lease.send(b"{}")
        assert await lease.receive() == [done(1)]
        lease.release(tip="r1", stored=False, reusable=True)
        assert pool.snapshot()["closed"]["error"] == 1


async def test_idle_socket_closed_by_the_upstream_is_no_longer_offered() -> None:
    """A parent goes with its socket at once."""

    async def script(raw: RawSocket) -> None:
        await one_good_turn(raw)
        await asyncio.sleep(0.02)
        raw.close(1001)

    async with raw_peer(script) as url, pool_of(patience=SLOW) as pool:
        lease = await pool.acquire(target(url), [])
        await lease.send(b"{}")
        await lease.receive()
        lease.release(tip="r1", stored=False, reusable=True)
        assert pool.holds(b"me", "r1")
        await asyncio.sleep(0.1)
        assert not pool.holds(b"me", "r1")
        assert pool.snapshot()["closed"]["lost"] == 1
