"""Fuzz target: compressed request bodies, whole, mangled and stacked, in pieces of any size."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from types import SimpleNamespace

import brotli
from backports import zstd
from multidict import CIMultiDict

from gateway.downstream.body import MODEST, read_body
from gateway.errors import BadRequest
from tests.fuzz.choices import Choices, mangle

CAP = 200_000
SLOWEST = 2.0
"""Seconds that no input of a few hundred bytes may take."""
TEXT = b'{"model":"gpt-5","input":[{"role":"user","content":"' + b"words and words " * 40 + b'"}]}'
CODERS = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=3),
    "zstd": zstd.compress,
    "identity": lambda data: data,
    "X-GZIP": lambda data: gzip.compress(data, 6, mtime=0),
    "other": lambda data: data,
}
NAMES = tuple(CODERS)
_LOOP = asyncio.new_event_loop()


def check(data):
    """Decode what ``data`` stands for; only BadRequest may be raised, and what was not mangled must come back."""
    choices = Choices(data)
    codings = [choices.pick(NAMES) for _ in range(choices.below(6))]
    honest = choices.below(2)
    text = choices.pick([TEXT, b"", b"{}", TEXT * 50, b"\0" * CAP, b"\0" * (CAP + 1)]) if honest else b""
    coded = text
    if honest:
        for coding in codings:
            coded = CODERS[coding](coded)
    size = 1 + choices.below(64)
    sent = mangle(coded, choices) if honest else choices.rest()
    began = time.perf_counter()
    found = refused = None
    try:
        found = _LOOP.run_until_complete(read_body(_request(sent, codings, size), max_decoded=CAP))
    except BadRequest as error:
        refused = error
    if refused is not None:
        assert refused.status in {400, 413, 415}
        known = [coding for coding in codings if coding != "identity"]
        if honest and sent == coded and "other" not in codings and len(known) <= 4:
            assert len(text) > CAP or len(sent) > CAP
    else:
        assert len(found) <= CAP
        assert "other" not in codings
        if sent == coded and honest:
            assert found == text
        if len(codings) == 1 and codings[0] != "deflate" and sent:
            assert found == _reference(codings[0], sent)
    assert time.perf_counter() - began < SLOWEST


def _request(sent, codings, size):
    async def pieces():
        for at in range(0, len(sent), size * 64):
            yield sent[at : at + size * 64]

    headers = CIMultiDict(("Content-Encoding", coding) for coding in codings)
    content = SimpleNamespace(iter_any=pieces, is_eof=lambda: not sent)
    return SimpleNamespace(
        headers=headers, content_length=None, body_exists=bool(sent), version=(1, 1), content=content
    )


def _reference(coding, sent):
    """What the library of a coding makes of the whole stream, None if it refuses it or makes too much of it."""
    try:
        match coding:
            case "gzip" | "X-GZIP":
                return gzip.decompress(sent)
            case "br":
                return brotli.decompress(sent)
            case "zstd":
                return zstd.decompress(sent)
            case "identity":
                return sent
    except (OSError, EOFError, ValueError, zlib.error, brotli.error, zstd.ZstdError):
        return None


def seeds():
    """Inputs that reach every coding, alone and stacked, and real streams without any honesty."""
    found = []
    for number, name in enumerate(NAMES):
        found += [bytes([1, number, 1, text, 9]) for text in range(6)]
        found.append(bytes([1, number, 0, 5]) + CODERS[name](TEXT))
    found += [bytes([4, *stack, 1, 0, 63]) for stack in ([0, 1, 2, 3], [3, 2, 1, 0], [0, 0, 3, 3])]
    return found


assert CAP < MODEST
