"""How long ``upwire serve`` takes until it answers, against importing what it is made of."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.bench import subjects
from tests.bench.rows import Row

_IMPORTS = "import aiohttp.web, websockets.asyncio.client, orjson, structlog"


def _base():
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True)
    return time.perf_counter() - begun


def startup(folder, rounds):
    """The ratio of wall times, round by round, and what an idle gateway takes."""
    ratios, resident = [], []
    pins = subjects.Pins()
    _base()
    for _ in range(rounds):
        base = min(_base() for _ in range(2))
        times = []
        for _ in range(2):
            begun = time.perf_counter()
            with subjects.gateway(9, folder, pins) as gateway:
                times.append(time.perf_counter() - begun)
                resident.append(gateway.resident / 1e6)
        ratios.append(min(times) / base)
    return [
        Row("upwire serve ready, against importing its libraries", 1.35, "x", ratios, f"{os.cpu_count()} processors"),
        Row("resident memory, idle", 70, "MB", resident),
    ]  # fmt: skip
