"""The first event does not wait for what came with it: its chunk is its own, and the rest follows in one."""

from __future__ import annotations

import asyncio
import json

import pytest
from raw_peer import RawSocket, raw_frame, raw_peer

from tests.gateways import Api, running_gateway

RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "in_progress",
    "output": [],
}
ITEM = {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": []}
EVENTS = [
    {"type": "response.created", "sequence_number": 0, "response": RESPONSE},
    {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": ITEM},
    {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": ITEM},
    {
        "type": "response.completed",
        "sequence_number": 3,
        "response": {**RESPONSE, "status": "completed", "output": [ITEM]},
    },
]


async def all_at_once(raw: RawSocket) -> None:
    """Every event of a response in one write, for each frame; keepalives and notices before the first."""
    while True:
        await raw.text()
        first = [{"type": "codex.rate_limits"}, {"type": "keepalive", "sequence_number": 0}]
        texts = [json.dumps(event).encode() for event in (*first, *EVENTS)]
        raw.writer.write(b"".join(raw_frame(1, text) for text in texts))


async def chunks(url: str, body: dict[str, object]) -> list[bytes]:
    """The chunks of a streamed answer, as they were written."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    raw = json.dumps(body).encode()
    head = (
        f"POST /v1/responses HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer k\r\n"
        f"content-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    writer.write(head.encode() + raw)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    found = []
    while size := int(await reader.readline(), 16):
        found.append(await reader.readexactly(size))
        await reader.readexactly(2)
    writer.close()
    return found


async def test_its_chunk_is_its_own() -> None:
    """The client has it before the others were looked at; they come together."""
    async with (
        raw_peer(all_at_once) as url,
        running_gateway(url.replace("ws:", "http:").removesuffix("/responses")) as gateway,
    ):
        async with asyncio.timeout(10):
            found = await chunks(gateway.url, {"model": "m", "input": "hello", "stream": True})
    assert [chunk.count(b"event: ") for chunk in found] == [1, 3]
    assert found[0].startswith(b"event: response.created\n")
    assert found[1].endswith(b"\n\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_what_was_left_counts(stream: bool) -> None:
    """The response is remembered, its socket is given back, and the next turn is a delta on it."""
    async with (
        raw_peer(all_at_once) as url,
        running_gateway(url.replace("ws:", "http:").removesuffix("/responses")) as gateway,
    ):
        async with Api(gateway.url) as api:
            first = await api.create({"model": "m", "input": "hello", "stream": stream, "store": False})
            history = [{"role": "user", "content": "hello"}, ITEM, {"role": "user", "content": "go on"}]
            second = await api.create({"model": "m", "input": history, "stream": stream, "store": False})
            stats = (await api.get("/../stats")).answer
    assert (first.status, second.status, second.mode) == (200, 200, "delta")
    assert first.answer["status"] == second.answer["status"] == "completed"
    assert (stats["connections"]["opened"], stats["connections"]["reused"]) == (1, 1)
