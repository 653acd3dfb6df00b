"""Faults that others met: upstreams without WebSocket that are dialled for ever, refusals of the upgrade that all look alike."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import body, scene, user
from tests.gateways import Api, running_gateway
from tests.upstream.raw_peer import RawSocket

# -- B57

PAGE = b"<html><body>It works</body></html>"
NO_SOCKET_HERE = {
    "426": f.Respond(status=426, headers={"upgrade": "HTTP/1.1"}),
    "404": f.Respond(status=404, headers={"content-type": "application/json"}, body=b'{"error":{}}'),
    "405": f.Respond(status=405),
    "page": f.Respond(status=200, headers={"content-type": "text/html"}, body=PAGE),
    "403": f.Respond(status=403, headers={"content-type": "text/html"}, body=PAGE),
}


def upgrades(run):
    """How many sockets were asked for."""
    return [entry for entry in run.simulator.journal if entry.kind in ("upgrade_refused", "open")]


@pytest.mark.parametrize("refusal", list(NO_SOCKET_HERE))
async def test_b57_an_upstream_without_websocket_costs_a_dial_or_two(refusal):
    """Twenty turns are answered over plain HTTP with the client's own bytes, and the upgrade is not tried again and again."""
    async with scene() as run:
        run.simulator.faults.add(Fault(at=f.UPGRADE, actions=NO_SOCKET_HERE[refusal], times=None))
        sent = [
            b'{ "model":"gpt-5","stream":true, "store":false,"input":"turn %d","temperature":1.0 }' % number
            for number in range(20)
        ]
        for data in sent:
            seen = await run.api.create(data=data)
            assert (seen.status, seen.mode, seen.reason) == (200, "http", "upgrade_refused")
            assert seen.kinds[-1] == "response.completed"
        assert [post.raw for post in run.posts] == sent
        assert len(upgrades(run)) == (2 if refusal == "403" else 1)


@pytest.mark.parametrize("refusal", ["426", "403"])
async def test_b57_after_the_memory_time_there_is_one_new_probe(refusal):
    """It costs one dial, renews the memory if it is refused again, and opens the way as soon as it is not."""
    async with scene(upgrade_memory=0.25) as run:
        run.simulator.faults.add(Fault(at=f.UPGRADE, actions=NO_SOCKET_HERE[refusal], times=None))
        for _ in range(3):
            assert (await run.api.create(body([user("u")]))).mode == "http"
        await asyncio.sleep(0.3)
        before = len(upgrades(run))
        for _ in range(3):
            assert (await run.api.create(body([user("u")]))).mode == "http"
        assert len(upgrades(run)) == before + 1

        run.simulator.faults.clear()
        await asyncio.sleep(0.3)
        assert (await run.api.create(body([user("u")]))).mode == "full"


async def test_b57_many_turns_at_once_share_one_probe():
    """Twenty turns that arrive together on a new upstream wait for one dial, not for twenty."""
    async with scene() as run:
        refuse = (f.Silence(0.05), f.Respond(status=426))
        run.simulator.faults.add(Fault(at=f.UPGRADE, actions=refuse, times=None))
        found = await asyncio.gather(*(run.api.create(body([user(f"u{n}")])) for n in range(20)))
        assert {(seen.status, seen.mode) for seen in found} == {(200, "http")}
        assert len(upgrades(run)) == 1


async def test_b57_a_wrong_key_is_not_taken_for_no_websocket():
    """A 401 at the upgrade says nothing about the upstream: whoever has a good key gets a socket at once."""
    async with scene(options={"keys": frozenset({"sk-good"})}) as run:
        async with Api(run.gateway.url, key="sk-bad") as bad, Api(run.gateway.url, key="sk-good") as good:
            for _ in range(3):
                assert (await bad.create(body([user("u")]))).status == 401
            assert (await good.create(body([user("u")]))).mode == "full"


class Middlebox:
    """Accepts every upgrade and closes it at once, or when the first frame has come; passes plain HTTP on."""

    def __init__(self, upstream_port, *, reads_frame):
        self.upstream_port = upstream_port
        self.reads_frame = reads_frame
        self.accepted = 0
        self.frames = 0

    async def serve(self, reader, writer):
        """One connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"upgrade: websocket" in head.lower():
                await self.accept(head, writer, reader)
            else:
                await self.relay(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def accept(self, head, writer, reader):
        """Take the upgrade, and end it."""
        replay = asyncio.StreamReader()
        replay.feed_data(head)
        self.accepted += 1
        await RawSocket(replay, writer).upgrade()
        raw = RawSocket(reader, writer)
        if self.reads_frame:
            await writer.drain()
            await raw.text()
            self.frames += 1
        raw.close(1008)
        await writer.drain()

    async def relay(self, head, reader, writer):
        """Pass one request and its answer on."""
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        up_writer.write(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        size = next(
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        up_writer.write(await reader.readexactly(size))
        writer.write(await up_reader.read())
        await writer.drain()
        up_writer.close()


@pytest.mark.parametrize("reads_frame", [False, True], ids=["at once", "after the frame"])
async def test_b57_sockets_that_are_accepted_and_closed_are_given_up(reads_frame):
    """After two of them everything goes over plain HTTP; only a turn whose frame had gone out is left to its client."""
    async with scene() as run:
        box = Middlebox(run.simulator.port, reads_frame=reads_frame)
        server = await asyncio.start_server(box.serve, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            async with running_gateway(url) as gateway, Api(gateway.url) as api:
                seen = [await api.create(body([user(f"u{n}")], stream=True)) for n in range(20)]

    assert box.accepted <= 2
    lost = [one for one in seen if one.status != 200]
    assert len(lost) == box.frames == (2 if reads_frame else 0)
    assert {(one.status, one.answer["error"]["code"]) for one in lost} <= {(502, "upstream_connection_lost")}
    assert {one.mode for one in seen if one.status == 200} == {"http"}
    assert [one.status for one in seen[2:]] == [200] * 18


# -- B58


def refusal(status):
    """The body of a refusal."""
    return json.dumps(
        {"error": {"message": f"no {status}", "type": "t", "param": None, "code": f"c{status}"}}
    ).encode()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("status", [401, 403, 429, 503])
async def test_b58_a_refused_upgrade_and_turn_give_the_upstreams_own_answer(status, stream):
    """What plain HTTP answers to the turn reaches the client whole: status, body, request id and when to come again."""
    headers = {"content-type": "application/json", "x-request-id": "req_7", "retry-after": "17"}
    answer = f.Respond(status=status, headers=headers, body=refusal(status))
    async with scene() as run:
        run.simulator.faults.add(
            Fault(at=f.UPGRADE, actions=answer, times=None),
            Fault(transport="http", actions=answer, times=None),
        )
        with capture_logs() as lines:
            async with Api(run.gateway.url, key="sk-canary") as api:
                seen = await api.create(body([user("canary")], stream=stream))

        assert (seen.status, seen.raw) == (status, refusal(status))
        assert (seen.headers["x-request-id"], seen.headers["retry-after"]) == ("req_7", "17")
        [line] = [line for line in lines if line["event"] == "socket_refused"]
        assert (line["status"], line["log_level"]) == (status, "warning")
        assert "canary" not in json.dumps(lines)


@pytest.mark.parametrize("status", [403, 429, 503])
async def test_b58_where_only_the_upgrade_is_blocked_the_turn_is_served(status):
    """The upgrade is refused and plain HTTP is not: 200."""
    blocked = f.Respond(status=status, headers={"retry-after": "17"}, body=refusal(status))
    async with scene() as run:
        run.simulator.faults.add(Fault(at=f.UPGRADE, actions=blocked, times=None))
        seen = await run.api.create(body([user("u")], stream=True))
        assert (seen.status, seen.mode, seen.reason) == (200, "http", "upgrade_refused")


async def test_b58_a_wrong_key_is_answered_by_the_upstream_each_time():
    """401 with the upstream's body, every time anew: the upgrade is tried again as soon as the key may be right."""
    async with (
        scene(options={"keys": frozenset({"sk-good"})}) as run,
        Api(run.simulator.url, key="sk-bad") as direct,
        Api(run.gateway.url, key="sk-bad") as api,
    ):
        expected = await direct.create(body([user("u")]))
        for _ in range(2):
            seen = await api.create(body([user("u")]))
            assert (seen.status, seen.raw) == (expected.status, expected.raw)
            assert seen.answer["error"]["code"] == "invalid_api_key"
        assert len(upgrades(run)) == 2


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("http://127.0.0.1:{port}/v1", "no connection"),
        ("http://no-such-name.invalid/v1", "name is not known"),
    ],
    ids=["refused", "dns"],
)
async def test_b58_an_upstream_that_cannot_be_reached_says_why(base, words, unused_tcp_port):
    """A refused connection and an unknown name are a 502 with the cause in it, and a line in the log without the key."""
    with capture_logs() as lines:
        async with (
            running_gateway(base.format(port=unused_tcp_port)) as gateway,
            Api(gateway.url, key="sk-canary") as api,
        ):
            seen = await api.create(body([user("canary")]))
    assert (seen.status, seen.answer["error"]["code"]) == (502, "upstream_unreachable")
    assert words in seen.answer["error"]["message"]
    [line] = [line for line in lines if line["event"] == "socket_refused"]
    assert (line["status"], line["reason"]) == (None, "dns" if "invalid" in base else "connect")
    assert "canary" not in json.dumps(lines)
