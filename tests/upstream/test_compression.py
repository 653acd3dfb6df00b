"""Compressed frames: used where the upstream accepts them, bounded, given up where they do not work, and never counted as less."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket

import pytest
import raw_peer
from socket_peer import peer, pool_of, target
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import NegotiationError
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Frame, Opcode

from gateway.simulator import Options
from gateway.upstream.deflate import LARGEST, Compression, Deflate
from gateway.upstream.inbox import SocketLost
from tests.gateways import Api, running_gateway, running_simulator
from tests.relay import Relay

INSTRUCTIONS = "Be helpful, and name each file that you change before you change it. " * 300


def user(text):
    return {"role": "user", "content": text}


async def conversation(api, turns=4):
    """Turns of one conversation with long instructions; their modes and answers."""
    history, seen = [], []
    for number in range(turns):
        history.append(user(f"turn {number}"))
        body = {"model": "gpt-5", "store": False, "instructions": INSTRUCTIONS, "input": history}
        seen.append(await api.create(body))
        history += seen[-1].answer["output"]
    return [one.mode for one in seen], [one.answer["output"] for one in seen]


async def played(*, offered, accepted):
    """A conversation directly and through the gateway: modes, both answers, statistics, bytes on the wire."""
    async with running_simulator(Options(compression=accepted)) as simulator, Api(simulator.url) as direct:
        port = int(simulator.url.rpartition(":")[2].partition("/")[0])
        async with Relay(port) as relay:
            upstream = simulator.url.replace(str(port), str(relay.port))
            async with running_gateway(upstream, compression=offered) as running, Api(running.url) as api:
                modes, through = await conversation(api)
                stats = (await api.session.get(running.root + "/stats")).json()
                return modes, through, (await conversation(direct))[1], await stats, relay


async def test_frames_are_packed_where_the_upstream_accepts_it():
    """Context, modes and statistics are the same; a fraction of the bytes goes over the wire."""
    plain = await played(offered="off", accepted=True)
    packed = await played(offered="auto", accepted=True)

    for modes, through, direct, stats, _ in (plain, packed):
        assert modes == ["full", "delta", "delta", "delta"]
        assert [[item["content"] for item in output if "content" in item] for output in through] == [
            [item["content"] for item in output if "content" in item] for output in direct
        ]
        assert stats["connections"]["opened"] == 1
    assert packed[3]["bytes"]["upstream_out"] == plain[3]["bytes"]["upstream_out"]
    assert packed[4].up < plain[4].up / 5
    assert packed[4].down < plain[4].down / 2


async def test_an_upstream_that_declines_gets_plain_frames():
    """Nothing changes but the offer."""
    modes, through, direct, _, relay = await played(offered="auto", accepted=False)
    assert modes == ["full", "delta", "delta", "delta"]
    assert [output[-1]["content"] for output in through] == [output[-1]["content"] for output in direct]
    assert relay.up > 4 * len(INSTRUCTIONS)


@pytest.mark.parametrize(
    "agreed", ["permessage-deflate; unknown", "permessage-deflate; client_max_window_bits=8", "other"]
)
async def test_an_agreement_that_cannot_be_used_is_no_refusal(agreed):
    """The next dial offers nothing, and no later one does; the turn knows nothing of it."""
    offers = []

    def disagree(_connection, request, response):
        offers.append(request.headers.get("Sec-WebSocket-Extensions"))
        if offers[-1] is not None:
            response.headers["Sec-WebSocket-Extensions"] = agreed
        return response

    async with peer(compression=None, process_response=disagree) as upstream:
        async with (
            running_gateway(upstream.url.replace("ws:", "http:") + "/v1") as running,
            Api(running.url) as api,
        ):
            for text in ("one", "two"):
                seen = await api.create({"model": "m", "input": text})
                assert (seen.status, seen.mode, seen.reason) == (200, "full", "new_conversation")
    assert offers[0] is not None and offers[1:] == [None] * len(offers[1:]) and len(offers) >= 2


async def test_what_unpacks_to_more_than_an_event_may_have_ends_the_turn():
    """A small frame that would unpack to 64 MB is a clear error for the client, and costs the socket."""

    async def bomb(connection: ServerConnection) -> None:
        async for _ in connection:
            await connection.send(b" " * 64_000_000, text=True)

    async with peer(bomb, max_size=None) as upstream:
        address = upstream.url.replace("ws:", "http:") + "/v1"
        async with running_gateway(address, max_event=100_000) as running, Api(running.url) as api:
            seen = await api.create({"model": "m", "input": "hello"})
            stats = await (await api.session.get(running.root + "/stats")).json()
    assert (seen.status, seen.answer["error"]["code"]) == (502, "upstream_connection_lost")
    assert stats["connections"]["open"] == 0


async def test_what_one_side_cannot_read_is_not_offered_again():
    """A close that says so teaches it: the next socket speaks plainly."""
    offers = []

    def note(_connection, request):
        offers.append("Sec-WebSocket-Extensions" in request.headers)

    async def garble(connection: ServerConnection) -> None:
        async for _ in connection:
            if connection.protocol.extensions:
                connection.transport.write(b"\xc1\x04\xff\xff\xff\xff")
            else:
                await connection.send('{"type":"response.completed","response":{"id":"r","output":[]}}')

    async with peer(garble, process_request=note) as upstream:
        address = upstream.url.replace("ws:", "http:") + "/v1"
        async with running_gateway(address) as running, Api(running.url) as api:
            first = await api.create({"model": "m", "input": "hello"})
            assert first.status == 502
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await api.create({"model": "m", "input": "hello"})
            stats = await (await api.session.get(running.root + "/stats")).json()
    assert offers[:2] == [True, False]
    assert stats["upstream"]["compression"] == "failed"
    assert 86_000 < stats["upstream"]["compression_retry_in_seconds"] <= 86_400


def test_large_frames_go_as_they_are():
    """Each message says for itself whether it is packed, and a peer reads both kinds in turn."""
    ours = Deflate(False, False, 15, 12, {"memLevel": 5})
    theirs = Deflate(False, False, 12, 15, {})
    for text in (b"a" * 5000, os.urandom(LARGEST // 2 + 1).hex().encode(), b"a" * 5000):
        sent = ours.encode(Frame(Opcode.TEXT, text))
        assert sent.rsv1 is (len(text) <= LARGEST)
        assert theirs.decode(sent).data == text
    assert theirs.on_wire > LARGEST


def test_what_failed_is_offered_no_more_for_a_day():
    """One object serves all sockets of an upstream, and says what it does."""
    now = [1000.0]
    compression = Compression(clock=lambda: now[0])
    assert compression.summary() == {"compression": "offered", "compression_retry_in_seconds": None}
    assert len(compression.offer()) == 2
    compression.failed()
    assert compression.offer() == []
    now[0] += 86_399
    assert compression.offer() == []
    assert compression.summary() == {"compression": "failed", "compression_retry_in_seconds": 1.0}
    now[0] += 1
    assert len(compression.offer()) == 2
    assert compression.summary()["compression"] == "offered"
    off = Compression(offered=False)
    assert off.offer() == []
    assert off.summary()["compression"] == "off"


@pytest.mark.parametrize(
    ("answer", "window"),
    [([], 15), ([("server_max_window_bits", "12")], 12), ([("server_max_window_bits", "15")], 15)],
    ids=["says nothing", "keeps to it", "takes more"],
)
def test_a_small_window_is_asked_for_and_any_is_taken(answer, window):
    """An upstream that keeps less saves memory here; one that does not say so is no reason to do without."""
    small, any_window = Compression().offer()
    assert small.get_request_params() == [("server_max_window_bits", "12"), ("client_max_window_bits", "12")]
    assert any_window.get_request_params() == [("client_max_window_bits", "12")]
    for offer in (small, any_window):
        assert ServerPerMessageDeflateFactory().process_request_params(offer.get_request_params(), [])
    found = None
    for offer in (small, any_window):
        with contextlib.suppress(NegotiationError):
            found = found or offer.process_response_params(answer, [])
    assert isinstance(found, Deflate)
    assert (found.remote_max_window_bits, found.local_max_window_bits) == (window, 12)


def accepting(monkeypatch):
    """Raw upstreams accept the offer."""

    async def upgrade(self):
        head = await self.reader.readuntil(b"\r\n\r\n")
        agreed = b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        self.writer.write(raw_peer.upgrade_answer(head)[:-2] + agreed)

    monkeypatch.setattr(raw_peer.RawSocket, "upgrade", upgrade)


async def sent_and_lost(lease, frame):
    """Send a frame, and wait until the socket is lost."""
    await lease.send(frame)
    while True:
        await lease.receive()


FOLDS_BADLY = base64.b64encode(os.urandom(700_000))


@pytest.mark.parametrize(
    ("frame", "reads", "flushed"),
    [(FOLDS_BADLY, 50_000, False), (FOLDS_BADLY, None, True), (b"a" * LARGEST, None, True)],
    ids=["cut in the middle", "read whole", "folded to almost nothing"],
)
async def test_what_was_written_is_known_of_packed_frames_too(frame, reads, flushed, monkeypatch):
    """A frame whose packed bytes did not all leave counts as never written, one whose packed bytes did as written."""
    accepting(monkeypatch)

    async def read(raw):
        await (raw.frame() if reads is None else raw.reader.readexactly(reads))
        raw.reset()

    async with (
        raw_peer.raw_peer(read, receive_buffer=16_384) as url,
        pool_of(compression=Compression()) as pool,
        asyncio.timeout(5),
    ):
        lease = await pool.acquire(target(url), [])
        mine = pool._shelf.get(lease.socket_id)
        assert mine.deflate is not None
        mine.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        with pytest.raises(SocketLost) as lost:
            await sent_and_lost(lease, frame)
    assert lost.value.flushed is flushed
