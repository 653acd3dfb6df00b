"""Faults that others met: bodies above a megabyte, references beside a parent, and outputs of unknown tools."""

import asyncio
import hashlib
import io
import json
import tracemalloc

import pytest
from backports import zstd

from gateway.settings import Settings
from tests.faults.scenes import answers, body, call, finished, held, output, said, scene, user
from tests.gateways import Api
from tests.raw_http import head, talk

MIB = 1024 * 1024
SIZES = {"1MiB+1": MIB + 1, "5MiB": 5 * MIB, "40MiB": 40 * MIB}


def sized(size):
    """A request body of exactly so many bytes."""
    empty = len(json.dumps(body([user("")])))
    return json.dumps(body([user("x" * (size - empty))])).encode()


async def pieces(raw):
    """``raw`` without a length, as a chunked upload."""
    for start in range(0, len(raw), 256 * 1024):
        yield raw[start : start + 256 * 1024]


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "zstd"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", SIZES)
async def test_b18_bodies_far_above_a_megabyte_are_taken(size, chunked, compressed):
    """Turns and file uploads of many sizes get through whole, whichever way they are framed and coded."""
    raw = sized(SIZES[size])
    sent = zstd.compress(raw, 1) if compressed else raw
    headers = {"content-encoding": "zstd"} if compressed else {}
    async with scene(answers([said("a")])) as run:
        answer = await run.api.create(data=pieces(sent) if chunked else io.BytesIO(sent), headers=headers)
        assert answer.status == 200
        assert answer.mode == ("http" if len(raw) > 16 * MIB else "full")
        created = run.simulator.journal.creates()
        assert len(created) == 1
        assert created[0].items == json.loads(raw)["input"]

        uploaded = await run.api.create(
            data=pieces(sent) if chunked else io.BytesIO(sent), headers=headers, path="/files"
        )
        assert uploaded.status == 200
        # The simulated upstream undoes the coding before it looks.
        assert uploaded.answer["sha256"] == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_b18_the_body_limit_to_the_byte(chunked, more):
    """A body up to the cap is a turn, one byte more a JSON 413; uploads to other endpoints have no cap of ours."""
    raw = sized(MIB + more)
    async with scene(answers([said("a")]), max_body=MIB) as run:
        answer = await run.api.create(data=pieces(raw) if chunked else io.BytesIO(raw))
        assert answer.status == (413 if more > 0 else 200)
        if more > 0:
            assert answer.answer["error"]["code"] == "body_too_large"
            assert answer.headers["content-type"] == "application/json"
        assert len(run.frames) == (more <= 0)
        uploaded = await run.api.create(data=io.BytesIO(raw), path="/files")
        assert uploaded.answer["bytes"] == len(raw)


async def test_b18_the_default_cap_is_far_above_what_clients_send():
    """The API takes bodies of tens of megabytes, so the default is not a framework's but one of ours, in decoded bytes."""
    assert Settings().max_body == 128 * MIB


@pytest.mark.parametrize("length", [Settings().max_body + 1, 10**15])
async def test_b18_an_announced_length_above_the_cap_is_refused_unread(length):
    """A length that is too large is answered at once, without waiting for a byte of the body."""
    async with scene() as run:
        port = int(run.gateway.root.rpartition(":")[2])
        request = f"POST /v1/responses HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: {length}\r\n\r\n"
        async with asyncio.timeout(2):
            raw = await talk(port, request.encode(), until_closed=False)
        assert head(raw)[0] == 413


async def test_b18_an_endless_body_is_refused_without_keeping_it():
    """A chunked body that never ends is cut off at the cap, and no more of it than that is held in memory."""
    async with scene(max_body=4 * MIB) as run:
        written = 0

        async def endless():
            nonlocal written
            while True:
                written += MIB
                yield bytes(MIB)

        tracemalloc.start()
        try:
            answer = await run.api.create(data=endless())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert answer.status == 413
        assert written < 64 * MIB
        assert peak < 24 * MIB
        assert not run.simulator.journal.creates()


def reference(name):
    """A reference to a stored item."""
    return {"type": "item_reference", "id": name}


PRODUCED = [{"type": "reasoning", "id": "rs_1", "summary": []}, call("c1", id="fc_1")]


@pytest.mark.parametrize("stream", [True, False])
async def test_b19_references_to_known_items_are_history(stream):
    """References to what the parent holds are not sent beside it, so the upstream meets no duplicate."""
    async with scene(answers(PRODUCED, [said("done")])) as run:
        first = await run.api.create(body([user("u1")], store=True, stream=stream))
        assert [item["id"] for item in finished(first)] == ["rs_1", "fc_1"]
        asked = [user("u1"), reference("rs_1"), reference("fc_1"), output("c1")]
        second = await run.api.create(body(asked, store=True, stream=stream))
        assert (second.status, second.mode) == (200, "delta")
        assert (run.frames[1].parent, run.frames[1].items) == (first.answer["id"], [output("c1")])
        assert [item.get("id") for item in held(run.simulator, second)[:4]] == [None] * 4
        assert run.frames[1].digests.modulo == run.simulator.digest_of(asked).modulo


@pytest.mark.parametrize(
    "asked",
    [
        [user("u1"), reference("rs_unknown"), output("c1")],
        [user("u1"), reference("rs_unknown"), reference("fc_1"), output("c1")],
        [user("u1"), reference("rs_1"), reference("fc_1"), output("c1"), reference("rs_unknown")],
        [user("u1"), reference("fc_1"), reference("rs_1"), output("c1")],
    ],
    ids=["unknown", "one_unknown", "unknown_behind", "other_order"],
)
@pytest.mark.parametrize("store", [True, False])
async def test_b19_other_references_go_up_untouched(store, asked):
    """A reference that names nothing of the parent leaves the input as it is, and the upstream's answer is the client's."""
    async with scene(answers(PRODUCED, [said("done")])) as run, Api(run.simulator.url) as direct:
        await run.api.create(body([user("u1")], store=store))
        found = await run.api.create(body(asked, store=store))
        assert run.frames[-1].items == asked
        assert run.frames[-1].parent is None
        wanted = await direct.create(body(asked, store=store))
        assert found.status == wanted.status
        if wanted.status != 200:
            assert found.answer == wanted.answer


CALLS = {
    "custom": (
        {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "print(1)\n", "status": "completed"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "1"}]},
    ),
    "local_shell": (
        {"type": "local_shell_call", "call_id": "c1", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c1", "output": "file", "status": "completed"},
    ),
    "shell": (
        {"type": "shell_call", "call_id": "c1", "status": "completed", "action": {"commands": ["ls"], "timeout_ms": None}},
        {"type": "shell_call_output", "call_id": "c1", "output": [{"stdout": "f", "outcome": {"type": "exit", "exit_code": 0}}]},
    ),
    "tool_search": (
        {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"q": "x"}, "status": "completed"},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [{"type": "function", "name": "f"}]},
    ),
    "mcp_approval": (
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "n", "server_label": "s", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True, "reason": None},
    ),
    "computer": (
        {"type": "computer_call", "call_id": "c1", "action": {"type": "click", "x": 1.0}, "pending_safety_checks": [], "status": "completed"},
        {"type": "computer_call_output", "call_id": "c1", "output": {"type": "computer_screenshot", "image_url": "data:,"}},
    ),
    "x_future": (
        {"type": "x_future_call", "call_id": "c1", "payload": {"n": 1.0, "nothing": None}},
        {"type": "x_future_call_output", "call_id": "c1", "result": {"big": 12345678901234567890, "f": 1e0, "nothing": None}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("kind", CALLS)
async def test_b20_the_output_of_any_tool_continues_its_call(kind, store):
    """The delta does not depend on names of types: parent and output alone, every field of it as the client wrote it."""
    made, answer = CALLS[kind]
    async with scene(answers([made], [said("done")])) as run:
        first = await run.api.create(body([user("u1")], store=store))
        second = await run.api.create(body([user("u1"), *finished(first), answer], store=store))
        assert (second.status, second.mode) == (200, "delta")
        frame = run.frames[1]
        assert (frame.parent, frame.items) == (first.answer["id"], [answer])
        assert b'"input":[' + json.dumps(answer).encode() + b"]" in frame.raw
        assert [item["type"] for item in held(run.simulator, second)] == [
            "message", made["type"], answer["type"], "message",
        ]  # fmt: skip


async def test_b20_calls_of_many_kinds_are_answered_in_one_delta():
    """Five calls of one answer, with their five outputs in another order, are one delta of five items."""
    kinds = ["custom", "local_shell", "tool_search", "computer", "x_future"]
    made, outputs = [], []
    for number, kind in enumerate(kinds):
        asked, given = CALLS[kind]
        made.append({**asked, "call_id": f"c{number}"})
        outputs.append({**given, ("id" if kind == "local_shell" else "call_id"): f"c{number}"})
    async with scene(answers(made, [said("done")])) as run:
        first = await run.api.create(body([user("u1")]))
        second = await run.api.create(body([user("u1"), *finished(first), *outputs[::-1]]))
        assert (second.status, second.mode) == (200, "delta")
        assert run.frames[1].items == outputs[::-1]
