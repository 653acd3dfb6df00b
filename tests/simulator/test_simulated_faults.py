"""Failures on command: each action at its moment, over both transports."""

import asyncio
import json

import aiohttp
import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f

CLOSED = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)


async def kinds_until_closed(talk):
    """The event types up to the end of the socket."""
    kinds = []
    while (message := await talk.ws.receive(timeout=10)).type not in CLOSED:
        kinds.append(json.loads(message.data)["type"].removeprefix("response."))
    return kinds


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        (
            "request",
            {"type": "error", "status": 429, "error": {"code": "c", "headers": {"retry-after": "7"}}},
        ),
        ("stream", {"type": "error", "sequence_number": 0, "error": {"code": "c"}}),
        ("flat", {"type": "error", "code": "c", "message": "m", "sequence_number": 0}),
        ("nested", {"type": "error", "error": {"error": {"code": "c"}}}),
        ("body", {"type": "error", "status": 429, "body": {"error": {"code": "c"}}}),
        ("message", {"type": "error", "error": {"message": "m"}}),
        ("detail", {"type": "error", "detail": "m"}),
        ("status_code", {"type": "error", "status_code": 429, "headers": {"retry-after": "7"}}),
        ("untyped", {"type": "error", "status": 429, "error": {"code": "c"}}),
        ("response.error", {"type": "response.error", "error": {"code": "c"}}),
    ],
)
async def test_errors_come_in_every_shape(simulate, dial, shape, wanted):
    """The frame has the members of its shape."""
    simulator = await simulate()
    error = f.SendError(status=429, code="c", message="m", headers={"retry-after": "7"}, shape=shape)
    simulator.faults.add(Fault(actions=error))
    talk = await dial(simulator)
    await talk.send(input="a")
    frame = await talk.event()

    def holds(found, part):
        return all(holds(found[k], v) if isinstance(v, dict) else found[k] == v for k, v in part.items())

    assert holds(frame, wanted), frame
    assert ("status" in frame) is ("status" in wanted or shape in ("nested", "message", "detail"))
    entry = simulator.journal.creates()[0]
    assert (entry.outcome, entry.status, entry.code) == ("error", 429, "c")


async def test_a_failure_costs_the_lane_its_parent(simulate, dial):
    """An error on command evicts like a real one; the next fault-free turn is served."""
    simulator = await simulate()
    talk = await dial(simulator)
    first = await talk.response(input="a", store=False)
    simulator.faults.add(Fault(actions=f.SendError(status=429)))
    parent = {"store": False, "previous_response_id": first["id"]}
    await talk.error(input="b", **parent)
    assert (await talk.error(input="b", **parent))["error"]["code"] == "previous_response_not_found"
    await talk.response(input="a")


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 1012])
async def test_sockets_close_with_any_code_at_any_moment(simulate, dial, code):
    """After ``response.created`` and after some deltas the events so far have arrived, then the code."""
    simulator = await simulate(reasoning=False)
    simulator.faults.add(Fault(actions=f.Close(code, "gone"), at=f.CREATED))
    simulator.faults.add(Fault(actions=f.Close(code), at=f.after_deltas(2), skip=1))
    for wanted in (["created"], ["created", "in_progress", "output_item.added", "content_part.added"]):
        talk = await dial(simulator)
        await talk.send(input="a")
        kinds = await kinds_until_closed(talk)
        assert kinds[: len(wanted)] == wanted
        assert kinds[len(wanted) :] in ([], ["output_text.delta"] * 2)
        assert talk.ws.close_code == code
    await simulator.until(lambda journal: len(journal.closed()) == 2)
    assert {(entry.close_code, entry.closed_by) for entry in simulator.journal.closed()} == {(code, "server")}
    assert {entry.outcome for entry in simulator.journal.creates()} == {"broken"}


async def test_tcp_is_reset_or_ended_without_a_close_frame(simulate, dial):
    """A reset and a plain end both leave the client without a close code of the upstream's."""
    simulator = await simulate()
    for action in (f.Abort(), f.Cut()):
        simulator.faults.add(Fault(actions=action, at=f.BEFORE_TERMINAL))
        talk = await dial(simulator)
        await talk.send(input="a")
        kinds = await kinds_until_closed(talk)
        assert "completed" not in kinds
        assert talk.ws.close_code == 1006


async def test_a_stalled_socket_answers_pings_or_not(simulate, http, stack):
    """With ``pong`` the socket looks alive, without it does not; both send no event."""
    simulator = await simulate()
    for pong in (True, False):
        simulator.faults.add(Fault(actions=f.Stall(pong=pong)))
        ws = await stack.enter_async_context(http.ws_connect(simulator.url + "/responses", autoping=False))
        await ws.send_str('{"type":"response.create","model":"m","input":"a"}')
        await simulator.until(lambda journal: [one for one in journal.creates() if one.outcome == "broken"])
        await ws.ping(b"x")
        if pong:
            assert (await ws.receive(timeout=5)).type is aiohttp.WSMsgType.PONG
        else:
            with pytest.raises(asyncio.TimeoutError):
                await ws.receive(timeout=0.1)
        simulator.journal.clear()


async def test_responses_end_failed_or_incomplete(simulate, dial):
    """``response.failed`` can come first or late, ``response.incomplete`` too; numbers go on."""
    simulator = await simulate()
    talk = await dial(simulator)
    simulator.faults.add(Fault(actions=f.Fail(code="rate_limit_exceeded")))
    simulator.faults.add(Fault(actions=f.EndIncomplete("content_filter"), at=f.after_deltas(1), skip=1))
    failed = await talk.turn(input="a")
    assert failed["response"]["error"]["code"] == "rate_limit_exceeded" and failed["sequence_number"] == 0
    await talk.send(input="a")
    events = await talk.events()
    assert events[-1]["response"]["incomplete_details"] == {"reason": "content_filter"}
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [entry.outcome for entry in simulator.journal.creates()] == ["failed", "incomplete"]


async def test_an_error_in_the_middle_can_be_followed_by_failed(simulate, dial, post):
    """The pair that streams were seen to end with, over both transports."""
    simulator = await simulate()
    action = f.SendError(shape="stream", then_failed=True, code="server_error")
    simulator.faults.add(Fault(actions=action, at=f.after_events(2), times=2))
    talk = await dial(simulator)
    await talk.send(input="a")
    over_socket = [*await talk.events(), await talk.event()]
    _, over_http = await post(simulator, input="a", stream=True)
    for events in (over_socket, over_http):
        assert [event["type"] for event in events[2:]] == ["error", "response.failed"]
        assert [event["sequence_number"] for event in events] == [0, 1, 2, 3]


async def test_foreign_and_repeated_events_go_out_as_they_are(simulate, dial):
    """Rubbish before, between and after; the response itself is whole."""
    simulator = await simulate()
    talk = await dial(simulator)
    foreign = {"type": "response.completed", "response": {"id": "resp_foreign", "status": "completed"}}
    simulator.faults.add(
        Fault(actions=f.SendEvent({"type": "codex.rate_limits"})),
        Fault(actions=f.SendEvent({"type": "response.x"}), at=f.CREATED),
        Fault(actions=(f.RepeatTerminal(), f.SendEvent(foreign), f.SendText("rubbish")), at=f.AFTER_TERMINAL),
    )
    await talk.send(input="a")
    assert [(await talk.event())["type"] for _ in range(3)] == [
        "codex.rate_limits",
        "response.created",
        "response.x",
    ]
    first = (await talk.events())[-1]
    again = await talk.event()
    assert (first["type"], first["response"]) == (again["type"], again["response"])
    assert (await talk.event())["response"]["id"] == "resp_foreign"
    assert (await talk.ws.receive(timeout=5)).data == "rubbish"
    simulator.faults.add(Fault(actions=(f.huge_event(3_000_000), f.SendBinary(b"\0"))))
    await talk.send(input="a")
    assert len((await talk.event())["padding"]) == 3_000_000
    assert (await talk.ws.receive(timeout=5)).type is aiohttp.WSMsgType.BINARY


async def test_silence_ends_and_the_turn_goes_on(simulate, dial):
    """The answer is only late."""
    simulator = await simulate()
    simulator.faults.add(Fault(actions=f.Silence(0.05)))
    began = asyncio.get_running_loop().time()
    await (await dial(simulator)).response(input="a")
    assert asyncio.get_running_loop().time() - began >= 0.05


async def test_faults_hit_the_requests_they_are_meant_for(simulate, dial, post):
    """Transport, predicate, skip and times decide; other requests do not count."""
    simulator = await simulate()
    simulator.faults.add(
        Fault(
            actions=f.SendError(status=503),
            transport="ws",
            matches=lambda arrival: arrival.body["input"] == "hit",
            skip=1,
            times=2,
        )
    )
    talk = await dial(simulator)
    assert (await post(simulator, input="hit"))[0] == 200
    ends = [(await talk.turn(input=text))["type"] for text in ("hit", "miss", "hit", "hit", "hit")]
    assert [kind == "error" for kind in ends] == [False, False, True, True, False]
    simulator.faults.add(Fault(actions=f.SendError(), times=None))
    assert [(await talk.turn(input="x"))["type"] for _ in range(3)] == ["error"] * 3
    simulator.faults.clear()
    await talk.response(input="x")


async def test_upgrades_fail_on_command(simulate, http):
    """A status with headers and body, a page, a hang-up, a hang."""
    simulator = await simulate()
    body = b'{"error":{"message":"slow down"}}'
    simulator.faults.add(
        Fault(actions=f.Respond(status=429, headers={"retry-after": "7"}, body=body), at=f.UPGRADE)
    )
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect(simulator.url + "/responses")
    assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "7")
    simulator.faults.add(Fault(actions=f.Respond(status=200, body=b"<html>"), at=f.UPGRADE))
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await http.ws_connect(simulator.url + "/responses")
    for action in (f.Abort(), f.Cut()):
        simulator.faults.add(Fault(actions=action, at=f.UPGRADE, times=None))  # this client dials twice
        with pytest.raises(aiohttp.ClientError):
            await http.ws_connect(simulator.url + "/responses")
        simulator.faults.clear()
    simulator.faults.add(Fault(actions=f.Stall(), at=f.UPGRADE))
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.1):
            await http.ws_connect(simulator.url + "/responses")
    assert {entry.kind for entry in simulator.journal} == {"upgrade_refused"}


async def test_sockets_end_right_after_they_were_accepted(simulate, dial):
    """The upgrade succeeds, then comes the close."""
    simulator = await simulate()
    simulator.faults.add(Fault(actions=f.Close(1008, "policy"), at=f.OPENED))
    talk = await dial(simulator)
    assert await kinds_until_closed(talk) == []
    assert talk.ws.close_code == 1008


async def test_http_answers_fail_on_command(simulate, http, post):
    """Status, headers and body before the stream; a cut, a reset and a quiet end inside it; a short JSON body."""
    simulator = await simulate()
    error = f.SendError(status=429, code="rate_limit_exceeded", headers={"retry-after": "7"})
    simulator.faults.add(Fault(actions=error))
    async with http.post(
        f"{simulator.url}/responses", json={"model": "m", "input": "q", "stream": True}
    ) as answer:
        assert (answer.status, answer.headers["retry-after"]) == (429, "7")
        assert (await answer.json())["error"]["code"] == "rate_limit_exceeded"
    simulator.faults.add(Fault(actions=f.Respond(status=502, body=b"<html>")))
    async with http.post(f"{simulator.url}/responses", json={"model": "m", "input": "q"}) as answer:
        assert (answer.status, await answer.read()) == (502, b"<html>")
    for action in (f.Cut(), f.Abort()):
        simulator.faults.add(Fault(actions=action, at=f.after_deltas(2)))
        with pytest.raises(aiohttp.ClientError):
            await post(simulator, input="q", stream=True)
    simulator.faults.add(Fault(actions=f.EndQuietly(), at=f.after_events(2)))
    _, events = await post(simulator, input="q", stream=True)
    assert [event["type"] for event in events] == ["response.created", "response.in_progress"]
    simulator.faults.add(Fault(actions=f.TruncateBody(0.5), at=f.AFTER_TERMINAL))
    with pytest.raises(aiohttp.ClientError):
        await post(simulator, input="q")
    assert [entry.outcome for entry in simulator.journal.creates()[2:]] == ["broken"] * 3 + ["completed"]


async def test_a_client_that_leaves_is_noted(simulate, http, dial):
    """An HTTP client or a socket that goes away in the middle ends its turn as cancelled."""
    simulator = await simulate(cost_per_request=30)
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.1):
            await http.post(f"{simulator.url}/responses", json={"model": "m", "input": "q"})
    await simulator.until(lambda journal: journal.creates()[0].outcome == "cancelled")
    talk = await dial(simulator)
    await talk.send(input="a")
    await simulator.until(lambda journal: len(journal.creates()) == 2)
    await talk.ws.close()
    await simulator.until(lambda journal: journal.creates()[1].outcome == "cancelled")


async def test_a_reader_that_stopped_is_felt_by_the_writer(simulate, dial):
    """A large frame cannot be written to a socket that is not read from."""
    simulator = await simulate(receive_buffer=4096)
    simulator.faults.add(Fault(actions=f.StopReading(), at=f.AFTER_TERMINAL))
    talk = await dial(simulator)
    await talk.response(input="a")

    async def write_on():
        for _ in range(20):
            await talk.send(input="x" * 1_000_000)

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(write_on(), 0.2)
    assert len(simulator.journal.creates()) == 1
    simulator.reset_connections()
