"""A link with a delay and a rate between two sides of this machine.

Where the machine allows network namespaces and TUN devices, packets are held back one by one, so that real TCP runs over it: slow
start, acknowledgements, congestion windows. Elsewhere a relay holds back bytes, which leaves TCP's own share out. Run as
``python -m tests.bench.link tun DELAY RATE`` or ``relay DELAY RATE HOST PORT``; seconds one way, bytes a second.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import fcntl
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

NEAR, FAR = "upwire-near", "upwire-far"
NEAR_ADDRESS, FAR_ADDRESS = "10.213.7.1", "10.213.7.2"
DEVICE = "upwire0"
_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x1001
_CLONE_NEWNET = 0x40000000
_WAITING = 512 * 1024
"""Bytes that wait for their turn to be sent; more are lost, as in a router."""


def _ip(*words, inside=None):
    command = ["ip", *(["-n", inside] if inside else []), *words]
    return subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def possible():
    """Whether packets can be held back here."""
    if os.geteuid() != 0 or not shutil.which("ip") or not Path("/dev/net/tun").exists():
        return False
    try:
        _ip("netns", "add", NEAR + "-try")
        _ip("netns", "del", NEAR + "-try")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@contextlib.contextmanager
def packets(delay, rate):
    """Two namespaces and the link between them, while the block runs."""
    remove()
    for side in (NEAR, FAR):
        _ip("netns", "add", side)
        _ip("link", "set", "lo", "up", inside=side)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.link", "tun", str(delay), str(rate)], stdout=subprocess.PIPE
    )
    try:
        if child.stdout.readline() != b"ready\n":
            raise RuntimeError("the link could not be made")
        for side, own in ((NEAR, NEAR_ADDRESS), (FAR, FAR_ADDRESS)):
            _ip("address", "add", f"{own}/24", "dev", DEVICE, inside=side)
            _ip("link", "set", DEVICE, "up", inside=side)
        yield
    finally:
        child.terminate()
        child.wait(10)
        child.stdout.close()
        remove()


def remove():
    """Take away what an interrupted run may have left."""
    for side in (NEAR, FAR):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            _ip("netns", "del", side)


def sent():
    """Bytes sent towards the upstream so far, packet headers included."""
    path = f"/sys/class/net/{DEVICE}/statistics/tx_bytes"
    told = subprocess.run(["ip", "netns", "exec", NEAR, "cat", path], check=True, stdout=subprocess.PIPE)
    return int(told.stdout)


def _device(side):
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{side}").open() as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _TUN_WITHOUT_HEADER))
    return device


def hold_back_packets(delay, rate):
    """Carry packets between the two devices until killed."""
    devices = [_device(NEAR), _device(FAR)]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    waiting = [collections.deque(), collections.deque()]
    free = [0.0, 0.0]
    while True:
        now = time.monotonic()
        for side in (0, 1):
            while waiting[side] and waiting[side][0][0] <= now:
                _, packet = waiting[side].popleft()
                with contextlib.suppress(OSError):
                    os.write(devices[1 - side], packet)
        due = min((queue[0][0] for queue in waiting if queue), default=None)
        ready, _, _ = select.select(
            devices, [], [], None if due is None else max(0.0, due - time.monotonic())
        )
        for device in ready:
            side = devices.index(device)
            for _ in range(32):
                try:
                    packet = os.read(device, 65_536)
                except OSError:
                    break
                now = time.monotonic()
                # What is already on its way does not take a place in the queue.
                if free[side] - now > _WAITING / rate:
                    continue
                free[side] = max(now, free[side]) + len(packet) / rate
                waiting[side].append((free[side] + delay, packet))


async def hold_back_bytes(delay, rate, host, port):
    """Accept connections and pass their bytes to ``host`` and ``port``, each direction late and not faster than ``rate``."""
    loop = asyncio.get_running_loop()
    counted = [0]

    async def carry(reader, writer, *, count):
        free = loop.time()
        waiting = asyncio.Queue(maxsize=64)

        async def write():
            while (item := await waiting.get()) is not None:
                due, data = item
                await asyncio.sleep(max(0.0, due - loop.time()))
                writer.write(data)
                await writer.drain()
            with contextlib.suppress(OSError):
                writer.write_eof()

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            while data := await reader.read(16_384):
                if count:
                    counted[0] += len(data)
                free = max(loop.time(), free) + len(data) / rate
                await waiting.put((free + delay, data))
            await waiting.put(None)

    async def serve(reader, writer):
        # A connection takes one way there and one back before it can carry anything.
        await asyncio.sleep(2 * delay)
        far_reader, far_writer = await asyncio.open_connection(host, port)
        with contextlib.suppress(OSError, ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(carry(reader, far_writer, count=True))
                group.create_task(carry(far_reader, writer, count=False))
        far_writer.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    while await loop.run_in_executor(None, sys.stdin.readline):
        sys.stdout.write(f"{counted[0]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "tun":
        hold_back_packets(float(sys.argv[2]), float(sys.argv[3]))
    else:
        asyncio.run(hold_back_bytes(float(sys.argv[2]), float(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
