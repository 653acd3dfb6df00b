"""How an answer ends on the wire when its upstream fails: no client, with a library or without, can take it for whole."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.simulator import Fault, Options
from gateway.simulator.faults import (
    BEFORE_TERMINAL,
    CREATED,
    Abort,
    Close,
    Cut,
    Fail,
    SendBinary,
    SendError,
    SendText,
    after_deltas,
    after_events,
)
from tests.faces.pairs import USER, pair
from tests.faces.raw_client import RawClient

BREAKS = {
    "reset": Abort(),
    "hung up": Cut(),
    "closed": Close(1011),
    "garbage": SendText("not json"),
    "bytes": SendBinary(b"\x00"),
}
MOMENTS = {
    "created": CREATED,
    "an item": after_events(4),
    "a delta": after_deltas(3),
    "all but the end": BEFORE_TERMINAL,
}


async def read_to_the_end(client):
    """All bytes until the connection ends, and whether a reset ended it."""
    data = b""
    async with asyncio.timeout(20):
        try:
            while piece := await client.reader.read(65536):
                data += piece
        except ConnectionResetError:
            return data, True
    return data, False


def unchunked(data):
    """The content of as many chunks as are there, and whether the last one, which ends a body, is."""
    content = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        if not int(size, 16):
            return content, True
        content += rest[: int(size, 16)]
        data = rest[int(size, 16) + 2 :]
    return content, False


def events_of(content):
    assert content.endswith(b"\n\n")
    return [json.loads(piece.partition(b"data: ")[2]) for piece in content.split(b"\n\n") if piece]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", BREAKS)
async def test_a_broken_stream_has_one_failure_and_no_end(how, moment, version):
    """One `response.failed` of the same response, next in number, and then the connection breaks off before the body's end."""
    async with pair(Options(rounds=0, reasoning=False)) as sides, RawClient(sides.gateway.url) as client:
        sides.behind.faults.add(Fault(at=MOMENTS[moment], actions=BREAKS[how], transport="ws"))
        body = {"model": "gpt-5", "input": [USER], "stream": True}
        client.write(client.request("POST", "/responses", body, version=version))

        data, was_reset = await read_to_the_end(client)

        head, _, rest = data.partition(b"\r\n\r\n")
        assert head.startswith(f"HTTP/{'1.1' if version == '1.1' else '1.0'} 200".encode())
        content, ended = unchunked(rest) if version == "1.1" else (rest, not was_reset)
        assert not ended
        *before, last = events_of(content)
        assert last["type"] == "response.failed"
        assert [event["type"] for event in before].count("response.failed") == 0
        assert before[0]["type"] == "response.created"
        assert last["sequence_number"] == before[-1]["sequence_number"] + 1 == len(before)
        response = last["response"]
        assert {**response, "error": None, "status": "in_progress", "output": []} == before[0]["response"]
        assert (response["status"], response["error"]["code"]) == ("failed", "upstream_connection_lost")
        finished = [event["item"] for event in before if event["type"] == "response.output_item.done"]
        assert response["output"] == finished
        assert len(sides.behind.journal.creates()) == 1


ENDS = {
    "a failure": (Fail(), ["response.failed"]),
    "an error": (SendError(status=500, shape="stream"), ["error"]),
    "an error and a failure": (
        SendError(status=500, shape="stream", then_failed=True),
        ["error", "response.failed"],
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", ENDS)
async def test_the_upstreams_own_end_ends_the_body_cleanly(how, moment, monkeypatch):
    """What the upstream itself ends, with a failure or an error, is relayed as it is and leaves the connection usable."""
    monkeypatch.setattr("gateway.turn.attempt._TRAILING_FAILURE", 0.05)
    action, ending = ENDS[how]
    async with pair(Options(rounds=0, reasoning=False)) as sides, RawClient(sides.gateway.url) as client:
        sides.behind.faults.add(Fault(at=MOMENTS[moment], actions=action, transport="ws"))
        body = {"model": "gpt-5", "input": [USER], "stream": True}
        kinds = [event["type"] for event in events_of((await client.ask("POST", "/responses", body)).body)]
        assert kinds[-len(ending) :] == ending
        assert not {"error", "response.failed", "response.completed"} & set(kinds[: -len(ending)])
        again = events_of((await client.ask("POST", "/responses", body)).body)
        assert again[-1]["type"] == "response.completed"


@pytest.mark.parametrize("mode", ["auto", "http"])
@pytest.mark.parametrize("how", [Abort(), Cut()], ids=["reset", "hung up"])
async def test_plain_http_that_breaks_is_broken_off_too(how, mode):
    """A stream that was relayed over plain HTTP and breaks there has no clean end either, and nothing is added to it."""
    async with pair(Options(rounds=0), mode=mode) as sides, RawClient(sides.gateway.url) as client:
        sides.behind.faults.add(Fault(at=after_deltas(1), actions=how, transport="http"))
        body = {"model": "gpt-5", "input": [USER], "stream": True}
        client.write(client.request("POST", "/responses", body, headers=[("x-upwire-mode", "http")]))
        data, _ = await read_to_the_end(client)
        content, ended = unchunked(data.partition(b"\r\n\r\n")[2])
        assert not ended
        assert b"response.failed" not in content
        assert b"response.output_text.delta" in content
