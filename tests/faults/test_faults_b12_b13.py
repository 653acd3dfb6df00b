"""Faults that others met: compressed bodies, and frames too large for a socket."""

import contextlib
import gzip
import io
import json
import tracemalloc
import zlib

import brotli
import pytest
from backports import zstd

from gateway.settings import Settings
from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import answers, body, finished, held, said, scene, user

MIB = 1024 * 1024


def many_frames(raw):
    """The same bytes as three zstd frames."""
    third = len(raw) // 3
    return b"".join(zstd.compress(part) for part in (raw[:third], raw[third : 2 * third], raw[2 * third :]))


def bare_deflate(raw):
    """A deflate stream without zlib's header, as some clients send it."""
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(raw) + coder.flush()


CODINGS = {
    "zstd": ("zstd", zstd.compress),
    "zstd_frames": ("zstd", many_frames),
    "gzip": ("gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "bare_deflate": ("deflate", bare_deflate),
    "br": ("br", brotli.compress),
    "identity": ("identity", bytes),
    "stacked": ("gzip, zstd", lambda raw: zstd.compress(gzip.compress(raw))),
}


@pytest.mark.parametrize("coding", CODINGS)
async def test_b12_compressed_bodies_are_understood(coding):
    """Each coding gives an answer, and a delta on the second turn, and the header does not go up with what was decoded."""
    name, compress = CODINGS[coding]
    async with scene(answers([said("a")], [said("b")], [said("c")])) as run:

        async def create(items, **more):
            headers = {"content-encoding": name, **more}
            return await run.api.create(data=compress(json.dumps(body(items)).encode()), headers=headers)

        first = await create([user("u1")])
        assert first.status == 200
        second = await create([user("u1"), *finished(first), user("u2")])
        assert (second.status, second.mode) == (200, "delta")
        assert run.frames[1].items == [user("u2")]

        sent = body([user("over http")])
        third = await create(sent["input"], **{"x-upwire-mode": "http"})
        assert (third.status, third.mode) == (200, "http")
        assert run.posts[0].body == sent
        assert "content-encoding" not in run.posts[0].headers
        assert int(run.posts[0].headers["content-length"]) == len(run.posts[0].raw)


async def test_b12_an_unknown_coding_is_a_415():
    """A coding that nobody here understands is refused as such, and nothing goes up."""
    async with scene() as run:
        answer = await run.api.create(body([user("u1")]), headers={"content-encoding": "lzma"})
        assert answer.status == 415
        assert answer.answer["error"]["code"] == "unsupported_content_encoding"
        assert not run.simulator.journal.creates()


@pytest.mark.parametrize("coding", [name for name in CODINGS if name != "identity"])
async def test_b12_a_cut_body_is_a_400(coding):
    """Half a compressed body is the client's fault: 400 with an error object, and nothing goes up."""
    name, compress = CODINGS[coding]
    raw = compress(json.dumps(body([user("u1" * 400)])).encode())
    async with scene() as run:
        answer = await run.api.create(data=raw[: len(raw) - 7], headers={"content-encoding": name})
        assert answer.status == 400
        assert answer.answer["error"]["code"] == "invalid_body"
        assert not run.simulator.journal.creates()


@pytest.mark.parametrize("coding", ["zstd", "gzip", "br"])
async def test_b12_a_body_that_explodes_is_refused_in_flat_memory(coding):
    """A small body that expands to gigabytes is a 413, and memory stays near the cap however much is left to decode."""
    coder = {
        "zstd": zstd.ZstdCompressor,
        "gzip": lambda: zlib.compressobj(1, wbits=31),
        "br": lambda: brotli.Compressor(quality=2),
    }[coding]()
    compress = coder.process if coding == "br" else coder.compress
    piece = bytes(4 * MIB)
    bomb = b"".join(compress(piece) for _ in range(128))
    bomb += coder.finish() if coding == "br" else coder.flush()
    assert len(bomb) < 3 * MIB
    async with scene(max_body=8 * MIB) as run:
        tracemalloc.start()
        try:
            answer = await run.api.create(data=io.BytesIO(bomb), headers={"content-encoding": coding})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert answer.status == 413
        assert answer.answer["error"]["code"] == "body_too_large"
        assert peak < 24 * MIB
        assert not run.simulator.journal.creates()


@pytest.mark.parametrize("coding", ["zstd", "x-unknown"])
async def test_b12_other_endpoints_get_bytes_and_header_as_they_came(coding):
    """What is no turn is not opened: the compressed bytes and the header that names the coding go up untouched."""
    raw = zstd.compress(b"contents of a file" * 1000)
    async with scene() as run:
        headers = {"content-encoding": coding, "content-type": "application/octet-stream"}
        answer = await run.api.create(data=raw, headers=headers, path="/files")
        assert answer.status == 200
        entry = run.simulator.journal[-1]
        # The simulated upstream undoes codings that it knows, and says how long the body was that arrived.
        assert int(entry.headers["content-length"]) == len(raw)
        assert entry.headers["content-encoding"] == coding


LIMIT = 64 * 1024


def sized(size, **fields):
    """A body whose ``response.create`` frame has exactly ``size`` bytes."""
    sent = body([user("")], stream=True, **fields)
    frame = {"type": "response.create", **{k: v for k, v in sent.items() if k != "stream"}}
    padding = size - len(json.dumps(frame, separators=(",", ":")))
    sent["input"] = [user("x" * padding)]
    return json.dumps(sent, separators=(",", ":")).encode()


@pytest.mark.parametrize("limit", [LIMIT, Settings().max_frame], ids=["scaled", "default"])
@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_b13_the_frame_limit_to_the_byte(limit, more):
    """A frame one byte below the limit goes over a socket; at the limit and above the turn goes over HTTP, undialled."""
    async with scene(answers([said("a")]), options={"max_frame": limit}, max_frame=limit) as run:
        answer = await run.api.create(data=io.BytesIO(sized(limit + more)))
        assert answer.status == 200
        if more < 0:
            assert answer.mode == "full"
            assert len(run.frames[0].raw) == limit - 1
            assert not run.posts
        else:
            assert (answer.mode, answer.reason) == ("http", "too_large")
            assert len(run.posts) == 1
            assert not run.simulator.journal.opened()


async def test_b13_the_default_limit_is_that_of_the_api():
    """Frames of 16 MiB and more are refused by the API, so the default is exactly that."""
    assert Settings().max_frame == 16 * MIB


async def test_b13_a_long_conversation_crosses_the_limit_and_lives_on():
    """Below the limit full, then a delta, then over HTTP when the socket is gone and the whole would be too large."""
    limit = 4 * MIB
    async with scene(
        answers([said("a")], [said("b")], [said("c")]), options={"max_frame": limit}, max_frame=limit
    ) as run:
        big = user("x" * (limit - 2000))
        first = await run.api.create(data=io.BytesIO(json.dumps(body([big])).encode()))
        assert first.mode == "full"
        second_asked = [big, *finished(first), user("y" * 50_000)]
        second = await run.api.create(data=io.BytesIO(json.dumps(body(second_asked)).encode()))
        assert second.mode == "delta"
        assert len(run.frames[1].raw) < 51_000

        run.simulator.reset_connections()
        await run.simulator.until(lambda journal: journal.closed())
        third_asked = [*second_asked, *finished(second), user("u3")]
        third = await run.api.create(data=io.BytesIO(json.dumps(body(third_asked)).encode()))
        assert (third.status, third.mode, third.reason) == (200, "http", "too_large")
        assert len(run.simulator.journal.opened()) == 1
        assert len(run.frames) == 2
        assert run.posts[0].body == body(third_asked)


@pytest.mark.parametrize("stream", [True, False])
async def test_b13_a_lower_limit_is_learned_from_one_close(stream):
    """A 1009 costs one try over a socket, the turn goes over HTTP, and later ones of that size do so at once."""
    async with scene(options={"max_frame": LIMIT}) as run:
        big = body([user("x" * LIMIT)], stream=stream)
        answer = await run.api.create(big)
        assert (answer.status, answer.mode, answer.reason) == (200, "http", "too_large")
        opened = len(run.simulator.journal.opened())
        assert opened == 1
        again = await run.api.create(big)
        assert (again.status, again.mode, again.reason) == (200, "http", "too_large")
        assert len(run.simulator.journal.opened()) == opened
        small = await run.api.create(body([user("words 1")], stream=stream))
        assert (small.status, small.mode) == (200, "full")


async def test_b13_a_delta_that_is_too_large_does_not_cost_the_parent():
    """A delta above the limit goes over HTTP, and the conversation's socket still holds what it held."""
    async with scene(
        answers([said("a")], [said("b")], [said("c")]), options={"max_frame": LIMIT}, max_frame=LIMIT
    ) as run:
        first = await run.api.create(body([user("u1")]))
        base = [user("u1"), *finished(first)]
        large = await run.api.create(body([*base, user("x" * LIMIT)]))
        assert (large.status, large.mode, large.reason) == (200, "http", "too_large")
        small = await run.api.create(body([*base, user("u2")]))
        assert small.mode == "delta"
        assert run.frames[-1].parent == first.answer["id"]
        assert held(run.simulator, small)[0] == user("u1")


async def test_b13_a_1009_in_the_middle_of_an_answer_is_no_lesson():
    """A close with that code after the answer began says nothing about the frame: the turn fails, and is not repeated."""
    async with scene(options={"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=f.Close(1009), at=f.after_deltas(1)))
        answer = await run.api.create(body([user("u1")], stream=False))
        assert answer.status == 502
        assert len(run.simulator.journal.creates()) == 1
        following = await run.api.create(body([user("u1 once more")]))
        assert (following.status, following.mode) == (200, "full")
        with contextlib.suppress(KeyError):
            assert following.answer["status"] == "completed"
