"""What no client should send, sent to a whole gateway: the upstream's own answer or a clear error, and life goes on."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
import time
import zlib
from pathlib import Path

import brotli
import pytest

from gateway.simulator import Options
from tests.faces.pairs import pair, same_face
from tests.gateways import Api, running_gateway, running_simulator
from tests.raw_http import head, talk
from tests.serving import serving

try:
    from compression import zstd
except ImportError:
    from backports import zstd

USER = {"role": "user", "content": "hello"}
DEEP = 10_000
PLAIN = Options(rounds=0)


class Conversation:
    """A conversation that goes on between whatever else happens, on one socket; every turn but the first is a delta."""

    def __init__(self, api):
        self.api = api
        self.history = [USER]
        self.turns = 0

    async def goes_on(self):
        """One more turn, which is right and a delta."""
        seen = await self.api.create({"model": "gpt-5", "store": False, "input": self.history})
        assert (seen.status, seen.mode) == (200, "delta" if self.turns else "full"), seen.raw
        self.turns += 1
        self.history += [*seen.answer["output"], USER]


def body(**changes):
    """A body that is right but for ``changes``; None takes a field out, ``...`` makes it null."""
    fields = {"model": "gpt-5", "input": "hello", "store": False, **changes}
    fields = {k: None if v is ... else v for k, v in fields.items() if v is not None}
    return json.dumps(fields).encode()


def raw(text):
    """A body that is right but for one more field, or whatever else ``text`` is, behind the others."""
    return b'{"model":"gpt-5","store":false,"input":"hello",%b}' % text


def item(text):
    """A body whose only item is ``text``."""
    return b'{"model":"gpt-5","store":false,"input":[%b]}' % text


def nest(inner=b"1", depth=DEEP, kind=b"[]"):
    """A value of so many levels."""
    opening, closing = (b"[", b"]") if kind == b"[]" else (b'{"a":', b"}")
    return opening * depth + inner + closing * depth


NOT_JSON = {
    "nothing": b"",
    "blanks": b" \r\n\t ",
    "words": b"not json at all",
    "cut in a string": b'{"model":"gpt-5","input":"hel',
    "cut after a comma": b'{"model":"gpt-5",',
    "closing too much": body() + b"}",
    "words behind": body() + b" trailing",
    "another object behind": body() + body(),
    "single quotes": b"{'model':'gpt-5','input':'hello'}",
    "comment": raw(b'"x":1 /* why */'),
    "trailing comma": raw(b'"x":1,'),
    "form": b"model=gpt-5&input=hello",
    "bom": b"\xef\xbb\xbf" + body(),
    "utf-16": json.dumps({"model": "gpt-5", "input": "x"}).encode("utf-16"),
    "utf-32": json.dumps({"model": "gpt-5", "input": "x"}).encode("utf-32"),
    "latin-1": b'{"model":"gpt-5","store":false,"input":"\xe9"}',
    "cut utf-8": b'{"model":"gpt-5","store":false,"input":"\xe2\x82"}',
    "overlong utf-8": b'{"model":"gpt-5","store":false,"input":"\xc0\xaf"}',
    "raw surrogate": b'{"model":"gpt-5","store":false,"input":"\xed\xa0\x80"}',
    "bad utf-8 in an item": item(b'{"role":"user","content":"\xff"}'),
    "bad utf-8 in a key": raw(b'"\xff":1'),
    "nul in a string": b'{"model":"gpt-5","store":false,"input":"a\x00b"}',
    "nul behind": body() + b"\x00",
    "nul before": b"\x00" + body(),
    "newline in a string": item(b'{"role":"user","content":"a\nb"}'),
    "bad escape": item(b'{"role":"user","content":"\\x41"}'),
    "nan": raw(b'"temperature":NaN'),
    "nan in an item": item(b'{"role":"user","content":"x","weight":NaN}'),
    "infinity": raw(b'"temperature":Infinity'),
    "minus infinity": raw(b'"top_p":-Infinity'),
    "leading zero": raw(b'"temperature":01'),
    "hexadecimal": raw(b'"temperature":0x1'),
    "plus": raw(b'"temperature":+1'),
    "zip": b"PK\x03\x04" + bytes(60),
    "gzip without saying so": gzip.compress(body()),
}

NO_OBJECT = {
    "array": b"[" + body() + b"]",
    "string": b'"hello"',
    "number": b"1",
    "null": b"null",
    "true": b"true",
}

WRONG = {
    "no model": body(model=None),
    "null model": body(model=...),
    "number as model": body(model=5),
    "list as model": body(model=["gpt-5"]),
    "empty model": body(model=""),
    "unknown model": body(model="no-such-model"),
    "no input": body(input=None),
    "null input": body(input=...),
    "number as input": body(input=5),
    "object as input": body(input=USER),
    "true as input": body(input=True),
    "number as item": body(input=[1]),
    "null as item": body(input=[USER, None]),
    "list as item": body(input=[[USER]]),
    "empty item": body(input=[{}]),
    "item without role": body(input=[{"content": "x"}]),
    "unknown role": body(input=[{"role": "king", "content": "x"}]),
    "number as role": body(input=[{"role": 5, "content": "x"}]),
    "number as content": body(input=[{"role": "user", "content": 5}]),
    "number as type": body(input=[{"type": 5, "role": "user", "content": "x"}]),
    "output without call": body(input=[{"type": "function_call_output", "output": "x"}]),
    "orphan output": body(input=[{"type": "function_call_output", "call_id": "call_x", "output": "x"}]),
    "stream is text": body(stream="true"),
    "stream is a number": body(stream=1),
    "store is text": body(store="no"),
    "background is text": body(background="no"),
    "tools are an object": body(tools={}),
    "tools are numbers": body(tools=[1]),
    "tool without type": body(tools=[{"name": "x"}]),
    "temperature is text": body(temperature="hot"),
    "instructions are a number": body(instructions=5),
    "too few tokens": body(max_output_tokens=-1),
    "metadata are a list": body(metadata=[]),
    "parent is a number": body(previous_response_id=5),
    "parent is empty": body(previous_response_id=""),
    "unknown parent": body(previous_response_id="resp_" + "0" * 48),
    "include is text": body(include="reasoning.encrypted_content"),
    "reasoning is text": body(reasoning="high"),
    "text is text": body(text="json"),
    "truncation is odd": body(truncation="some"),
    "stream options alone": body(stream_options={"include_obfuscation": False}),
    "socket's type": body(type="response.create"),
    "socket's lane": body(stream_id="1"),
    "socket's generate": body(generate=False),
    "two ways to go on": body(previous_response_id="resp_1", conversation="conv_1"),
    "not everything it may be": body(model=5, input=5, stream=5, tools=5),
}

ODD = {
    "two models": b'{"model":"no-such-model","model":"gpt-5","store":false,"input":"hello"}',
    "two inputs": raw(b'"input":"other"'),
    "two streams": raw(b'"stream":true,"stream":false'),
    "escaped twin": raw(b'"inp\\u0075t":"other"'),
    "twins in an item": item(b'{"role":"user","role":"user","content":"a","content":"b"}'),
    "twins in a tool": raw(b'"tools":[{"type":"function","name":"a","name":"b","parameters":{}}]'),
    "1e400": raw(b'"temperature":1e400'),
    "minus 1e400": raw(b'"temperature":-1e400'),
    "1e400 in an item": item(b'{"role":"user","content":"x","weight":1e400}'),
    "1e-400": raw(b'"temperature":1e-400'),
    "400 digits": raw(b'"metadata":{"n":' + b"9" * 400 + b"}"),
    "many digits behind the point": raw(b'"temperature":0.' + b"1" * 5000),
    "large exponent": raw(b'"temperature":1e' + b"9" * 300),
    "lone surrogate": b'{"model":"gpt-5","store":false,"input":"\\ud800"}',
    "lone low surrogate": item(b'{"role":"user","content":"\\udc00 x"}'),
    "surrogates in the wrong order": item(b'{"role":"user","content":"\\udc00\\ud800"}'),
    "lone surrogate in a key": raw(b'"\\ud800":1'),
    "lone surrogate in the model": b'{"model":"\\ud800","store":false,"input":"hello"}',
    "lone surrogate in a parent": raw(b'"previous_response_id":"\\ud800"'),
    "escaped nul": b'{"model":"gpt-5","store":false,"input":"a\\u0000b"}',
    "escaped nul in a key": raw(b'"\\u0000":1'),
    "escaped nul in the model": b'{"model":"gpt-5\\u0000","store":false,"input":"hello"}',
    "empty key": raw(b'"":1'),
    "long key": raw(b'"' + b"k" * 100_000 + b'":1'),
    "many keys": raw(b",".join(b'"k%d":0' % n for n in range(20_000))),
    "many items": item(b",".join([b'{"role":"user","content":"x"}'] * 5000)),
    "deep list on top": nest(),
    "deep object on top": nest(kind=b"{}"),
    "deep unknown field": raw(b'"x":' + nest()),
    "deep metadata": raw(b'"metadata":' + nest(kind=b"{}")),
    "deep item": item(b'{"role":"user","content":' + nest() + b"}"),
    "deep object in an item": item(b'{"role":"user","content":"x","y":' + nest(kind=b"{}") + b"}"),
    "deep input": b'{"model":"gpt-5","store":false,"input":' + nest() + b"}",
    "deep arguments": item(
        b'{"type":"function_call","call_id":"c","name":"n","arguments":"' + nest() + b'"},'
        b'{"type":"function_call_output","call_id":"c","output":"x"}'
    ),
    "deep tools": raw(b'"tools":[{"type":"function","name":"a","parameters":' + nest(kind=b"{}") + b"}]"),
    "deep and never closed": b'{"model":"gpt-5","input":' + b"[" * DEEP,
    "500 levels": raw(b'"metadata":' + nest(depth=500, kind=b"{}")),
    "500 levels in an item": item(b'{"role":"user","content":"x","y":' + nest(depth=500) + b"}"),
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize(
    "kinds", [NOT_JSON, NO_OBJECT, WRONG, ODD], ids=["not json", "no object", "wrong", "odd"]
)
async def test_the_answer_is_the_one_that_a_direct_request_gets(kinds, stream):
    """Status, headers, events and body are those of the upstream itself; then a conversation goes on with a delta."""
    async with pair(PLAIN) as sides:
        conversation = Conversation(Api(sides.gateway.url))
        async with conversation.api:
            await conversation.goes_on()
            for name, data in kinds.items():
                sent = (
                    data.replace(b"{", b'{"stream":true,', 1) if stream and b'"stream"' not in data else data
                )
                began = time.monotonic()
                one, other = await asyncio.gather(sides.one.create(data=sent), sides.other.create(data=sent))
                try:
                    same_face(one, other)
                    assert other.mode in ("full", "http")
                    assert other.status in (200, 400, 404)
                    assert other.status == 200 or other.answer["error"].keys() == {
                        "message",
                        "type",
                        "param",
                        "code",
                    }
                    assert time.monotonic() - began < 5
                    await conversation.goes_on()
                except AssertionError as error:
                    error.add_note(
                        f"{name}: {one.status} {one.raw[:300]!r} | {other.status} {other.raw[:300]!r}"
                    )
                    raise
            stats = (await sides.other.get("/../stats")).answer["turns"]
            assert stats["total"] == len(kinds) + conversation.turns
            assert stats["in_flight"] == 0


CODERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=2),
    "zstd": zstd.compress,
}


@pytest.fixture
async def front():
    """A gateway that takes bodies of a megabyte, its upstream, and a conversation through it."""
    async with (
        running_simulator(PLAIN) as upstream,
        running_gateway(upstream.url, max_body=1_000_000) as gateway,
        Api(gateway.url) as api,
    ):
        conversation = Conversation(api)
        await conversation.goes_on()
        yield upstream, gateway, conversation


async def refused(front, status, code, **sent):
    """Send this; assert that the gateway refuses it in the API's shape, that nothing goes up, and that life goes on."""
    upstream, _, conversation = front
    before = len(upstream.journal)
    seen = await conversation.api.create(**sent)
    assert (seen.status, seen.headers["content-type"]) == (status, "application/json"), seen.raw
    assert seen.answer["error"].keys() == {"message", "type", "param", "code"}
    assert (seen.answer["error"]["code"], seen.answer["error"]["type"]) == (code, "invalid_request_error")
    assert len(upstream.journal) == before
    await conversation.goes_on()
    return seen


@pytest.mark.parametrize("coding", CODERS)
async def test_cut_and_corrupt_codings_are_clear_errors(front, coding):
    """Every way to break a coded body is a 400 that says so; a whole one behind it is a turn."""
    data = body(input="word " * 3000)
    coded = CODERS[coding](data)
    flipped = bytes([coded[0] ^ 0xFF]) + coded[1:]
    for broken in (coded[:-1], coded[:-8], coded[:9], coded[:1], flipped, coded + b"x", data, bytes(99)):
        await refused(front, 400, "invalid_body", data=broken, headers={"content-encoding": coding})
    seen = await front[2].api.create(data=coded, headers={"content-encoding": coding})
    assert (seen.status, seen.mode) == (200, "full")


@pytest.mark.parametrize("coding", CODERS)
async def test_a_coded_body_is_judged_by_what_is_in_it(coding):
    """Bad JSON inside a good coding is the upstream's to refuse, as if it had come plain."""
    async with pair(PLAIN) as sides:
        for name in ("words", "bom", "nul in a string"):
            data = NOT_JSON[name]
            one = await sides.one.create(data=data)
            other = await sides.other.create(data=CODERS[coding](data), headers={"content-encoding": coding})
            same_face(one, other)
            assert one.status == 400


@pytest.mark.parametrize(
    "coding", ["compress", "utf-8", "aws-chunked", "gzip, snappy", "br;q=1", "*", ",".join(["gzip"] * 9)]
)
async def test_unknown_codings_are_415(front, coding):
    """The answer names what is known, and not what was asked for."""
    seen = await refused(
        front, 415, "unsupported_content_encoding", data=body(), headers={"content-encoding": coding}
    )
    assert seen.headers["accept-encoding"] == "gzip, deflate, br, zstd"
    assert "snappy" not in seen.raw.decode()


async def test_a_body_over_the_cap_is_a_413_that_a_client_can_read(front):
    """One byte over the cap is refused, plain and coded; one at the cap is a turn."""
    _, _, conversation = front
    frame = len(body(input=""))
    assert (await conversation.api.create(data=body(input="x" * (1_000_000 - frame)))).status == 200
    over = body(input="x" * (1_000_001 - frame))
    await refused(front, 413, "body_too_large", data=over)
    for coding, coder in CODERS.items():
        await refused(front, 413, "body_too_large", data=coder(over), headers={"content-encoding": coding})
    await refused(front, 413, "body_too_large", data=io.BytesIO(body(input="x" * 5_000_000)))


@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"])
async def test_a_length_over_the_cap_is_refused_at_once(front, expect):
    """The announced length is enough: the answer comes although nothing of the body does, and the connection ends."""
    _, gateway, conversation = front
    port = int(gateway.root.rpartition(":")[2])
    request = (
        b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: 1000000000000\r\n\r\n" % expect
    )
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    status, fields, _ = head(await asyncio.wait_for(reader.readuntil(b"}}"), 5))
    assert (status, fields["connection"], fields["content-type"]) == (413, "close", "application/json")
    assert time.monotonic() - began < 1
    writer.close()
    await conversation.goes_on()


async def test_an_endless_body_is_not_read_to_its_end(front):
    """A sender without a length gets its 413 soon after the cap, long before it could have sent what it wants to."""
    _, gateway, conversation = front
    reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.root.rpartition(":")[2]))
    writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    sent = 0
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        answer = group.create_task(reader.readuntil(b"}}"))
        while not answer.done():
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            await writer.drain()
            sent += 65536
    assert head(await answer)[0] == 413
    assert sent < 40_000_000
    writer.close()
    await conversation.goes_on()


def memory(pid, name):
    """A figure of a process, in MiB."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024


def spent(pid):
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure")
async def test_bombs_cost_a_process_little():
    """A few kilobytes that stand for gigabytes: 413 within bounds of time and memory, and the memory is given back."""
    zeros = bytes(256 << 20)
    bombs = {
        "gzip": (gzip.compress(zeros), "gzip"),
        "zstd": (zstd.compress(zeros), "zstd"),
        "br": (brotli.compress(zeros[: 64 << 20], quality=5), "br"),
        "deflate in gzip": (gzip.compress(zlib.compress(zeros, 9)), "deflate, gzip"),
        "zstd in zstd": (zstd.compress(zstd.compress(zeros) * 40), "zstd, zstd"),
    }
    del zeros
    async with running_simulator(PLAIN) as upstream, serving("--upstream", upstream.url) as process:
        pid = process.child.pid
        async with Api(process.url + "/v1") as api:
            conversation = Conversation(api)
            await conversation.goes_on()
            before = memory(pid, "VmRSS")
            for name, (data, coding) in bombs.items():
                cpu, began = spent(pid), time.monotonic()
                seen = await api.create(data=data, headers={"content-encoding": coding})
                assert (seen.status, seen.answer["error"]["code"]) == (413, "body_too_large"), name
                assert spent(pid) - cpu < 3, name
                assert time.monotonic() - began < 15, name
                await conversation.goes_on()
            assert memory(pid, "VmHWM") - before < 300
            assert memory(pid, "VmRSS") - before < 100
            assert [entry for entry in upstream.journal.creates() if entry.transport == "http"] == []


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_other_methods_get_the_upstreams_own_answer(method):
    """What is no POST is passed on and answered as the upstream does, body or not; a conversation goes on."""
    async with pair(PLAIN) as sides:
        conversation = Conversation(sides.other)
        await conversation.goes_on()
        for path in ("/responses", "/responses/", "/models"):
            for data in (None, body()):
                seen = []
                for api in (sides.one, sides.other):
                    async with api.session.request(
                        method, api.url + path, headers=api.headers, data=data
                    ) as answer:
                        kept = {n: answer.headers.get(n) for n in ("content-type", "allow", "content-length")}
                        seen.append((answer.status, kept, await answer.read()))
                if path == "/models" and method in ("GET", "HEAD"):
                    assert seen[0][0] == 200
                if path != "/responses/":
                    # The gateway takes the final slash for a slip, the simulated upstream does not know it.
                    assert seen[0] == seen[1]
            await conversation.goes_on()


async def test_unknown_methods_and_our_own_paths(front):
    """A method that HTTP does not know is a 400; one that a path of ours does not take is a 405 in the API's shape."""
    _, gateway, conversation = front
    port = int(gateway.root.rpartition(":")[2])
    for line, status in (
        (b"BREW /v1/responses", 400),
        (b"post /v1/responses", 400),
        (b"POST /stats", 405),
        (b"DELETE /metrics", 405),
        (b"POST /v2/responses", 404),
    ):
        back = await talk(port, line + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        found, fields, answer = head(back)
        assert found == status, line
        assert fields["content-type"].startswith("application/json")
        assert b"error" in answer
        await conversation.goes_on()


ABSURD = {
    "no key": [],
    "empty key": [b"Authorization:"],
    "bearer of nothing": [b"Authorization: Bearer "],
    "basic": [b"Authorization: Basic eDp5"],
    "two keys": [b"Authorization: Bearer sk-a", b"Authorization: Bearer sk-b"],
    "latin-1 key": [b"Authorization: Bearer sk-\xe9"],
    "utf-8 key": [b"Authorization: Bearer sk-\xc3\xa9"],
    "long key": [b"Authorization: Bearer sk-" + b"k" * 50_000],
    "odd bytes": [b"Authorization: Bearer k", b"X-Odd: \x80\xff\xfe"],
    "tab": [b"Authorization: Bearer k", b"X-Tab: a\tb"],
    "empty value": [b"Authorization: Bearer k", b"X-Empty:"],
    "long name": [b"Authorization: Bearer k", b"X-" + b"n" * 5000 + b": 1"],
    "odd name": [b"Authorization: Bearer k", b"!#$%&'*+-.^_`|~: 1"],
    "two hundred": [b"Authorization: Bearer k", *(b"X-%d: 1" % n for n in range(100))],
    "one name often": [b"Authorization: Bearer k", *[b"X-Same: 1"] * 100],
    "wrong content type": [b"Authorization: Bearer k", b"Content-Type: image/png"],
    "senseless content type": [b"Authorization: Bearer k", b"Content-Type: ;;;=;charset"],
    "odd charset": [b"Authorization: Bearer k", b"Content-Type: application/json; charset=utf-99"],
    "odd accept": [b"Authorization: Bearer k", b"Accept: ,,;q=,*/"],
    "odd range": [b"Authorization: Bearer k", b"Range: bytes=x-", b'If-Match: "', b"Cookie: ;;=;"],
    "odd trace": [b"Authorization: Bearer k", b"traceparent: 00-zz", b"tracestate: \xff"],
    "odd own headers": [b"Authorization: Bearer k", b"X-Upwire-Mode: \xff", b"X-Upwire-: 1", b"X-Upwire-Token: \xff"],
    "connection of everything": [b"Authorization: Bearer k", b"Connection: host, content-length, content-type, keep-alive"],
    "forwarded": [b"Authorization: Bearer k", b"X-Forwarded-Host: evil.example", b"Forwarded: host=evil"],
    "socket's own": [b"Authorization: Bearer k", b"Sec-WebSocket-Protocol: x", b"Sec-WebSocket-Extensions: y"],
}  # fmt: skip


@pytest.mark.parametrize("name", ABSURD)
async def test_absurd_headers_change_nothing(name):
    """With headers that make no sense the answer is the one that they get directly; then the next turns are right."""
    async with pair(PLAIN) as sides:
        conversation = Conversation(sides.other)
        await conversation.goes_on()
        sent = b"\r\n".join([*ABSURD[name], b"Host: localhost", b"Content-Length: %d" % len(body())])
        ports = [sides.direct.port, int(sides.gateway.root.rpartition(":")[2])]
        request = b"POST /v1/responses HTTP/1.1\r\n" + sent + b"\r\n\r\n" + body()
        found = []
        for port in ports:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            status, fields, rest = head(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10))
            rest += await reader.readexactly(int(fields["content-length"]))
            writer.close()
            found.append((status, fields["content-type"], rest))
        one, other = found
        assert other[:2] == one[:2]
        assert one[0] in (200, 401)
        assert one[0] == 200 or json.loads(other[2]) == json.loads(one[2])
        await conversation.goes_on()


@pytest.mark.parametrize(
    "lines",
    [[b"X-Long: " + b"x" * 70_000], [b"X-Many: 1"] * 300, [b"X-" + b"n" * 70_000 + b": 1"]],
    ids=["long field", "many fields", "long name"],
)
async def test_headers_over_the_limits_are_431(front, lines):
    """They are refused in the API's shape, before any body, and a conversation goes on."""
    _, gateway, conversation = front
    data = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n".join(lines) + b"\r\n\r\n"
    status, fields, rest = head(await talk(int(gateway.root.rpartition(":")[2]), data))
    assert (status, fields["content-type"]) == (431, "application/json")
    assert json.loads(rest)["error"]["code"] == "headers_too_large"
    await conversation.goes_on()
