"""``python -m tests.bench.compression``: what permessage-deflate saves of recorded sessions, and what it costs each frame and socket.

The frames are those that the gateway writes for the recorded clients, the events those that the simulated upstream answers with the
recorded items. Memory is the growth of the resident set over many sockets' states that have each packed (unpacked) one session.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import resource
import sys
import tempfile
import time
import zlib
from pathlib import Path

import structlog

from gateway.simulator import Options, TraceScript
from gateway.upstream.socket import UpstreamSocket
from tests.bench import rows, subjects
from tests.gateways import Api, running_gateway, running_simulator
from tests.laws.recorded import turns_of

SESSIONS = {"Codex": "codex-http-0.171.0", "opencode": "opencode-1.18.33", "pi": "pi-1.6.0"}
# Window in bits, zlib's memLevel, zlib's level.
WAYS = [
    (9, 5, 6),
    (12, 5, 6),
    (13, 5, 6),
    (14, 5, 6),
    (15, 5, 6),
    (15, 5, 1),
    (15, 6, 6),
    (15, 8, 1),
    (15, 8, 6),
]
_EMPTY_BLOCK = b"\x00\x00\xff\xff"
_REPEATS = 5


async def recorded(name):
    """The frames written and the messages received, by socket, each in order."""
    out, back = {}, {}
    write, message = UpstreamSocket.write, UpstreamSocket._message

    def writing(self, frame):
        out.setdefault(id(self), []).append(bytes(frame))
        write(self, frame)

    def received(self):
        back.setdefault(id(self), []).append(b"".join(self._parts))
        message(self)

    UpstreamSocket.write, UpstreamSocket._message = writing, received
    try:
        turns = turns_of(name)
        async with (
            running_simulator(Options(), TraceScript([turn.row for turn in turns])) as upstream,
            running_gateway(upstream.url) as gateway,
            Api(gateway.url) as client,
        ):
            modes = [(await client.create(data=turn.data, headers=turn.headers)).mode for turn in turns]
    finally:
        UpstreamSocket.write, UpstreamSocket._message = write, message
    return list(out.values()), list(back.values()), modes


def packed(frames, way, *, takeover=True):
    """The frames as they go over the wire, one state for all of them or one for each."""
    bits, memory, level = way
    state = None
    for frame in frames:
        if state is None or not takeover:
            state = zlib.compressobj(level, zlib.DEFLATED, -bits, memory)
        yield (state.compress(frame) + state.flush(zlib.Z_SYNC_FLUSH)).removesuffix(_EMPTY_BLOCK)


def unpack(frames, bits, *, takeover=True):
    """Read packed frames again; the state that is left."""
    state = zlib.decompressobj(-bits)
    for frame in frames:
        if not takeover:
            state = zlib.decompressobj(-bits)
        state.decompress(frame + _EMPTY_BLOCK)
    return state


def cost(sockets, way, **how):
    """Share of the bytes that is left, and milliseconds for each frame (the fastest of some runs)."""
    before = sum(len(frame) for frames in sockets for frame in frames)
    count = sum(map(len, sockets))
    left, best = 0, float("inf")
    for _ in range(_REPEATS):
        began = time.process_time()
        left = sum(len(frame) for frames in sockets for frame in packed(frames, way, **how))
        best = min(best, time.process_time() - began)
    return left / before, 1000 * best / count


def _resident():
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


def alone(measure, *arguments):
    """The result of ``measure`` in a process of its own, where nothing that was freed before is taken again."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, arguments)


def memory_of_packing(frames, way, count=400):
    """Bytes of one state that has packed these frames."""
    before = _resident()
    kept = []
    for _ in range(count):
        state = zlib.compressobj(way[2], zlib.DEFLATED, -way[0], way[1])
        for frame in frames:
            state.compress(frame)
            state.flush(zlib.Z_SYNC_FLUSH)
        kept.append(state)
    return (_resident() - before) / len(kept)


def memory_of_unpacking(small, bits, count=400):
    """Bytes of one state that has unpacked these packed frames."""
    before = _resident()
    kept = [unpack(small, bits) for _ in range(count)]
    return (_resident() - before) / len(kept)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compression", description=__doc__)
    parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    say = sys.stdout.write
    sessions = {label: asyncio.run(recorded(name)) for label, name in SESSIONS.items()}
    say("session    sockets  frames  bytes of frames  events  bytes of events  modes\n")
    for label, (out, back, modes) in sessions.items():
        say(
            f"{label:10} {len(out):7} {sum(map(len, out)):7} {sum(len(f) for s in out for f in s):16,}"
            f" {sum(map(len, back)):7} {sum(len(f) for s in back for f in s):16,}  {' '.join(modes)}\n"
        )
    for title, side in (("frames written", 0), ("events received", 1)):
        say(f"\n{title}: what is left of their bytes, CPU for each\nwindow memLevel level takeover")
        say("".join(f"{label:>22}" for label in sessions) + "\n")
        for way in WAYS if side == 0 else [(9, 5, 6), (12, 5, 6), (15, 8, 6)]:
            for takeover in (True, False) if way[0] == 15 and way[1:] in {(5, 6), (8, 6)} else (True,):
                say(f"{way[0]:6} {way[1]:8} {way[2]:5} {'yes' if takeover else 'no':>8}")
                for each in sessions.values():
                    left, spent = cost(each[side], way, takeover=takeover)
                    say(f"{100 * left:9.1f} % {spent:8.3f} ms")
                say("\n")
    say("\nevents received, unpacked: CPU for each\nwindow takeover")
    say("".join(f"{label:>22}" for label in sessions) + "\n")
    for bits, takeover in ((9, True), (12, True), (15, True), (15, False)):
        say(f"{bits:6} {'yes' if takeover else 'no':>8}")
        for each in sessions.values():
            small = [list(packed(frames, (bits, 8, 6), takeover=takeover)) for frames in each[1]]
            best = float("inf")
            for _ in range(_REPEATS):
                began = time.process_time()
                for frames in small:
                    unpack(frames, bits, takeover=takeover)
                best = min(best, time.process_time() - began)
            say(f"{1000 * best / sum(map(len, small)):19.4f} ms")
        say("\n")
    largest_out = max(sessions["Codex"][0], key=len)
    largest_back = max(sessions["Codex"][1], key=len)
    small_of = {bits: list(packed(largest_back, (bits, 8, 6))) for bits in (9, 12, 15)}
    say("\nmemory of one socket's state\n")
    for way in WAYS:
        say(f"packing, window {way[0]:2}, memLevel {way[1]}, level {way[2]}: ")
        say(f"{alone(memory_of_packing, largest_out, way) / 1024:7.0f} KiB\n")
    for bits in (9, 12, 15):
        say(
            f"unpacking, window {bits:2}: {alone(memory_of_unpacking, small_of[bits], bits) / 1024:17.0f} KiB\n"
        )
    say("\nresident memory of the gateway for each idle socket, the upstream accepting\n")
    for offered in ("off", "auto"):
        for size in (0, 20_000):
            with tempfile.TemporaryDirectory() as folder:
                [row] = rows.compressed_sockets(folder, subjects.Pins(), offered=offered, instructions=size)
            say(f"compression {offered:4}, {size // 1000:2} KB of instructions: {row.measured:5.0f} KiB\n")


if __name__ == "__main__":
    main()
