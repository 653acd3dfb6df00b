"""Faults that others met: instructions with a clock in them, sockets asked of us, numbers that change on their way."""

import asyncio
import gc
import json
import time
import uuid

import pytest

from tests.faults.scenes import answers, body, finished, said, scene, user
from tests.gateways import Api
from tests.raw_http import talk

# -- B59


@pytest.mark.parametrize("policy", ["delta", "full"])
async def test_b59_a_clock_in_the_instructions_gives_no_wrong_answer(policy):
    """Each new text goes up, the cache key byte for byte, and where changes make full turns the counter says how many."""
    key = b'"cache\\u002dkey \\u00e9 \xc3\xa9"'
    async with scene(answers(*([said(f"a{n}")] for n in range(5))), settings=policy) as run:
        history, clocks, modes = [user("u0")], [], []
        for number in range(5):
            clocks.append(f"It is {uuid.uuid4()} o'clock.")
            fields = body(history, instructions=clocks[-1])
            data = json.dumps(fields).encode()[:-1] + b',"prompt_cache_key":' + key + b"}"
            seen = await run.api.create(data=data)
            modes.append(seen.mode)
            history = [*history, *finished(seen), user(f"u{number + 1}")]

        assert [frame.body["instructions"] for frame in run.frames] == clocks
        assert all(b'"prompt_cache_key":' + key in frame.raw for frame in run.frames)
        assert modes == ["full", *[policy] * 4]
        assert (await run.stats())["reasons"]["settings_changed"] == modes[1:].count("full")


# -- B61

UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer sk-test\r\n\r\n"
)


async def test_b61_a_socket_asked_of_us_is_refused_at_once():
    """Ten upgrades get 426 within 50 ms each and nothing goes upstream; the POST behind them is served, and nothing is left over."""
    async with scene() as run:
        port = int(run.gateway.root.rpartition(":")[2])
        await talk(port, UPGRADE, until_closed=False)
        gc.collect()
        tasks = len(asyncio.all_tasks())
        took = []
        for _ in range(10):
            began = time.monotonic()
            raw = await talk(port, UPGRADE, until_closed=False)
            took.append(time.monotonic() - began)
            assert raw.startswith(b"HTTP/1.1 426 ")
        assert sorted(took)[5] < 0.05
        assert list(run.simulator.journal) == []
        assert (await run.api.create(body([user("u1")]))).status == 200
        after = await run.until_idle()
        assert (after["turns"]["total"], after["connections"]["open"]) == (1, 1)
        async with asyncio.timeout(2):
            # The client's own connection, the socket and the upstream's side of it may still be there.
            while len(asyncio.all_tasks()) > tasks + 8:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_b61_a_plain_get_is_passed_through():
    """GET on the same path without an upgrade is the upstream's to answer, whatever it says."""
    async with scene() as run, Api(run.simulator.url) as direct:
        seen = await run.api.get("/responses")
        expected = await direct.get("/responses")
        assert (seen.status, seen.raw) == (expected.status, expected.raw) == (405, expected.raw)
        assert [entry.method for entry in run.simulator.journal] == ["GET", "GET"]


# -- B64

FRAGMENTS = [
    b'"seed":9007199254740993',
    b'"seed2":1180591620717411303424',
    b'"temperature":1.0',
    b'"top_p":1e0',
    b'"x1":1e5',
    b'"x2":-0.0',
    b'"x3":0.1000000000000000055511151',
    b'"metadata":{"z":"1","a":"\\u0041\\/\\n\\ud83d\\ude00"}',
    b'"x4":{ "b" :1 , "a":[ 1.50, 2E+3 ] }',
]
ITEM = (
    b'{"type":"message", "role":"user","content":[{"type":"input_text","text":"\\u00e9\\\\\\"\\/ 1"}],"n":[1.0,1E2,-0,'
    b"18446744073709551617]}"
)


@pytest.mark.parametrize("way", ["socket", "http"])
async def test_b64_numbers_and_escapes_go_up_as_they_were_written(way):
    """The upstream's raw text of every untouched field and item is the client's, in its order, in full turns and in deltas."""
    async with scene(answers([said("a1")], [said("a2")]), mode="auto" if way == "socket" else "http") as run:
        first = await run.api.create(
            data=b'{"model":"gpt-5","store":false,%b,"input":[%b]}' % (b",".join(FRAGMENTS), ITEM)
        )
        assert first.status == 200
        made = json.dumps(first.answer["output"][0]).encode()
        second = await run.api.create(
            data=b'{"model":"gpt-5","store":false,%b,"input":[%b,%b,%b]}'
            % (b",".join(reversed(FRAGMENTS)), ITEM, made, ITEM)
        )
        assert second.status == 200
        creates = run.simulator.journal.creates()
        if way == "socket":
            assert (first.mode, second.mode) == ("full", "delta")
            assert b"[" + ITEM + b"]" in creates[1].raw
        for create, fragments in zip(creates, (FRAGMENTS, FRAGMENTS[::-1]), strict=True):
            places = [create.raw.index(fragment) for fragment in fragments]
            assert places == sorted(places)
            assert ITEM in create.raw


@pytest.mark.parametrize(
    "data",
    [
        b'{"model":"gpt-5","input":"u","temperature":NaN}',
        b'{"model":"gpt-5","input":"u","temperature":-Infinity}',
        b'\xef\xbb\xbf{"model":"gpt-5","input":"u"}',
        b'{"model":"gpt-5","input":"u","temperature":01}',
        b'{"model":"gpt-5","input":"u",}',
        b'{"model":"gpt-5","input":"\xff"}',
        b'{"model":"gpt-5","input":"\\ud800"}',
        b'{"model":"gpt-5","input":"u","x":1e999}',
        b'{"model":"gpt-5","input":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'["model"]',
        b"",
    ],
    ids=["nan", "infinity", "bom", "octal", "comma", "utf8", "surrogate", "huge", "deep", "array", "empty"],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_b64_odd_bodies_get_the_verdict_of_plain_http(data, stream):
    """What is not plain JSON is answered as the upstream answers it directly, with its bytes unchanged, and never with a 500."""
    data = data.replace(b'"input"', b'"stream":true,"input"') if stream else data
    async with scene() as run, Api(run.simulator.url) as direct:
        seen = await run.api.create(data=data)
        expected = await direct.create(data=data)
        assert seen.status == expected.status != 500
        if expected.status != 200:
            assert seen.answer == expected.answer
        first = run.simulator.journal.creates()[0]
        if seen.mode == "http":
            assert first.raw == data
        else:
            assert b'"input":' + data.partition(b'"input":')[2][:-1] in first.raw


@pytest.mark.parametrize(
    "twice", [b'"seed":1,"seed":2', b'"input":"a","input":"b"', b'"m\\u006fdel":"gpt-5-mini"']
)
async def test_b64_a_duplicate_key_goes_up_byte_for_byte(twice):
    """Which of two values counts is for the upstream to say, so both go up over plain HTTP."""
    data = b'{"model":"gpt-5","input":"u","store":false,' + twice + b"}"
    async with scene() as run:
        seen = await run.api.create(data=data)
        assert (seen.status, seen.mode, seen.reason) == (200, "http", "not_upgradable")
        assert [post.raw for post in run.posts] == [data]
