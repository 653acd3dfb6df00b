"""Request bodies: every coding, every way to be broken, and a bound on what they cost."""

import asyncio
import gzip
import json
import random
import time
import tracemalloc
import zlib

import brotli
import pytest
from raw_http import head, talk
from started_gateway import start_gateway

try:
    from compression import zstd
except ImportError:
    from backports import zstd

TEXT = json.dumps({"model": "m", "input": [{"role": "user", "content": "hello " * 5000}]}).encode()
NOISE = random.Random(1).randbytes(3 * 1024 * 1024)


def raw_deflate(data):
    """The bare stream that some clients call deflate."""
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


CODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=2),
    "zstd": zstd.compress,
}


async def post(gateway, data, *codings, chunked=False, path=b"/v1/responses"):
    """Post a body; its status and error code or size."""
    fields = b"".join(b"Content-Encoding: %b\r\n" % coding.encode() for coding in codings)
    if chunked:
        framed = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts(data)) + b"0\r\n\r\n"
        fields += b"Transfer-Encoding: chunked\r\n"
    else:
        framed = data
        fields += b"Content-Length: %d\r\n" % len(data)
    request = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%b\r\n%b" % (path, fields, framed)
    status, headers, answer = head(await talk(gateway.port, request))
    value = json.loads(answer)
    return status, value["size"] if status == 200 else value["error"]["code"], headers


def parts(data, size=7777):
    """Cut a body into pieces that respect no border of a coding."""
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("data", [TEXT, NOISE, b"{}"], ids=["text", "noise", "short"])
async def test_every_coding_is_undone(data, chunked):
    """Identity, gzip, both kinds of deflate, br and zstd give the body, in whatever pieces it comes."""
    async with start_gateway() as gateway:
        for coding, coder in CODERS.items():
            assert (await post(gateway, coder(data), coding, chunked=chunked))[0] == 200
            assert gateway.turns.pop() == data
        for codings, coded in [
            ((), data),
            (("identity",), data),
            (("deflate",), raw_deflate(data)),
            (("GZIP",), gzip.compress(data)),
            (("gzip, zstd",), zstd.compress(gzip.compress(data))),
            (("br", "identity, , gzip"), gzip.compress(CODERS["br"](data))),
            (
                ("deflate, br, gzip, zstd",),
                zstd.compress(gzip.compress(CODERS["br"](zlib.compress(data)))),
            ),
            (("zstd",), zstd.compress(data[:1]) + zstd.compress(data[1:]) + zstd.compress(b"")),
            (("gzip",), gzip.compress(data[:1]) + gzip.compress(data[1:])),
        ]:
            assert (await post(gateway, coded, *codings, chunked=chunked))[0] == 200
            assert gateway.turns.pop() == data


async def test_one_byte_at_a_time():
    """A body that trickles in is decoded as well as any other."""
    async with start_gateway() as gateway:
        for coding, coder in CODERS.items():
            coded = coder(b'{"a":1}')
            framed = b"".join(b"1\r\n%c\r\n" % byte for byte in coded) + b"0\r\n\r\n"
            request = (
                b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Encoding: %b\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n%b" % (coding.encode(), framed)
            )
            assert head(await talk(gateway.port, request))[0] == 200
            assert gateway.turns.pop() == b'{"a":1}'


@pytest.mark.parametrize("coding", CODERS)
@pytest.mark.parametrize("data", [TEXT, NOISE[:300_000]], ids=["text", "noise"])
async def test_cut_corrupt_and_overlong_streams_are_refused(coding, data):
    """A stream that ends too early, is garbage, is empty or has bytes behind its end is a 400, never a shorter body."""
    coded = CODERS[coding](data)
    broken = [
        coded[:-1],
        coded[: len(coded) // 2],
        coded[:3],
        coded + b"x",
        b"garbage, not a stream",
        b"\x00" * 40,
    ]
    async with start_gateway() as gateway:
        for wrong in broken:
            assert (await post(gateway, wrong, coding))[:2] == (400, "invalid_body")
            assert (await post(gateway, zstd.compress(wrong), coding, "zstd"))[:2] == (400, "invalid_body")
        assert gateway.turns == []


async def test_a_coded_body_of_nothing_is_not_a_stream():
    """No bytes at all are an empty body without a coding, and a cut one with it."""
    async with start_gateway() as gateway:
        assert (await post(gateway, b""))[:2] == (200, 0)
        assert (await post(gateway, b"", chunked=True))[:2] == (200, 0)
        assert (await post(gateway, b"", "gzip", chunked=True))[:2] == (400, "invalid_body")


@pytest.mark.parametrize(
    "coding", ["compress", "sk-canary", "gzip, sk-canary", "gzip, gzip, gzip, gzip, gzip"]
)
async def test_unknown_codings_are_415(coding):
    """A coding that is not known, or too many of them, is 415 with what is supported, and without an echo."""
    async with start_gateway() as gateway:
        status, code, headers = await post(gateway, b"{}", coding)
    assert (status, code) == (415, "unsupported_content_encoding")
    assert headers["accept-encoding"] == "gzip, deflate, br, zstd"


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_cap_is_on_decoded_bytes(chunked):
    """One byte over the cap is 413, plain and coded; the cap itself is fine."""
    async with start_gateway(max_body=100_000) as gateway:
        for size, status in [(100_000, 200), (100_001, 413)]:
            data = b"x" * size
            assert (await post(gateway, data, chunked=chunked))[0] == status
            for coding, coder in CODERS.items():
                assert (await post(gateway, coder(data), coding, chunked=chunked))[0] == status


async def test_a_body_over_the_cap_is_refused_before_it_is_read():
    """The length alone is enough for a JSON 413, and no 100 Continue is sent for it."""
    async with start_gateway() as gateway:
        request = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 999999999999\r\n\r\n"
        started = time.monotonic()
        back = await talk(gateway.port, request, until_closed=False)
        assert back.startswith(b"HTTP/1.1 413 ")
        assert b"Connection: close" in back
        assert time.monotonic() - started < 1


async def test_a_stream_over_the_cap_is_refused_while_it_comes():
    """A sender without a length is stopped by the cap and can read why."""
    async with start_gateway(max_body=1_000_000) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(40):
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            await writer.drain()
        back = await asyncio.wait_for(reader.readuntil(b"}}"), 5)
        writer.close()
    assert head(back)[0] == 413


def bomb(coding):
    """64 MiB of zeros in a few kilobytes."""
    return CODERS[coding](bytes(64 << 20))


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip", "deflate"])
async def test_a_bomb_costs_little(coding):
    """A few kilobytes that expand beyond the cap are a 413 with bounded time and memory, and others are served meanwhile."""
    once = bomb(coding)
    twice = CODERS[coding](once)
    waits = []

    async def watch():
        while True:
            before = time.monotonic()
            await asyncio.sleep(0)
            waits.append(time.monotonic() - before)

    async with start_gateway(max_body=16 << 20) as gateway:
        task = asyncio.get_running_loop().create_task(watch())
        tracemalloc.start()
        started = time.process_time()
        for data, codings in [(once, (coding,)), (twice, (coding, coding))]:
            assert (await post(gateway, data, *codings))[:2] == (413, "body_too_large")
        spent = time.process_time() - started
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        task.cancel()
    assert spent < 2
    assert peak < 32 << 20
    assert max(waits) < 0.5


async def test_few_bytes_may_not_become_very_many():
    """Below the cap on bytes, the proportion to what came is bounded, too, also where a coding swallows its input."""
    swallowed = (0x184D2A50).to_bytes(4, "little") + (200 << 20).to_bytes(4, "little") + bytes(200 << 20)
    async with start_gateway() as gateway:
        assert (await post(gateway, bomb("zstd"), "zstd"))[:2] == (413, "body_too_large")
        assert (await post(gateway, zstd.compress(swallowed), "zstd, zstd"))[:2] == (413, "body_too_large")
        assert gateway.turns == []


async def test_many_empty_members_are_refused():
    """A body of endless tiny streams is no way around the bounds."""
    async with start_gateway() as gateway:
        for coding in ("gzip", "zstd"):
            assert (await post(gateway, CODERS[coding](b"") * 5000, coding))[:2] == (400, "invalid_body")


async def test_large_bodies_pass():
    """Five megabytes of text, plain, and forty that compress well are turns like any other."""
    async with start_gateway() as gateway:
        assert (await post(gateway, NOISE * 2))[:2] == (200, len(NOISE) * 2)
        assert (await post(gateway, NOISE * 2, chunked=True))[0] == 200
        assert (await post(gateway, zstd.compress(b"x" * (40 << 20)), "zstd"))[:2] == (200, 40 << 20)


async def test_a_client_that_waits_for_100_continue_gets_it():
    """The body is asked for when it is wanted, once."""
    async with start_gateway() as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await asyncio.wait_for(reader.readuntil(b"}"), 5)).startswith(b"HTTP/1.1 200 OK")
        writer.close()
