"""``python -m tests.bench.workers``: one worker and two, the same conversations over new connections: deltas kept, CPU per turn.

Every turn comes in over a connection of its own, so it meets any worker. CPU is that of all processes of the gateway, as the system
counts it. Throughput says something only where there are processors to spare.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from gateway.simulator import Options
from tests.gateways import running_simulator
from tests.serving import serving
from tests.workers.conversations import Talk, talk_all, workers_of

_TICK = os.sysconf("SC_CLK_TCK")


def spent(processes):
    """Seconds of CPU that these processes have used."""
    fields = [Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2].split() for number in processes]
    return sum(int(each[11]) + int(each[12]) for each in fields) / _TICK


async def measure(workers, conversations, turns, size):
    """One row: deltas of those there could be, milliseconds of CPU per turn, turns a second, MB of all processes."""
    async with running_simulator(Options(seed="bench", reasoning=False)) as simulator:
        options = ("--upstream", simulator.url, "--profile", "openai", "--workers", str(workers))
        async with serving(*options, "--log-level", "error") as process:
            talks = [
                Talk(process.url, f"words 20, number {n}. " + "x" * size, stream=True)
                for n in range(conversations)
            ]
            await talk_all(talks, 1)
            processes = [process.child.pid, *(workers_of(process.child.pid) if workers > 1 else [])]
            before, began = spent(processes), time.monotonic()
            await talk_all(talks, turns)
            took, cpu = time.monotonic() - began, spent(processes) - before
            modes = [answer.mode for talk in talks for answer in talk.answers[1:]]
            memory = [_resident(number) for number in processes]
    return modes.count("delta"), len(modes), 1000 * cpu / len(modes), len(modes) / took, memory


def _resident(number):
    lines = Path(f"/proc/{number}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.workers", description=__doc__)
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--size", type=int, default=20_000, help="bytes of each conversation's first message")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    sys.stdout.write("workers  deltas kept   CPU per turn   turns/s   MB of each process\n")
    for workers in given.workers:
        kept, turns, cpu, rate, memory = asyncio.run(
            measure(workers, given.conversations, given.turns, given.size)
        )
        sizes = " + ".join(map(str, memory))
        sys.stdout.write(f"{workers:7}  {kept:5} of {turns:<5} {cpu:9.2f} ms  {rate:8.0f}   {sizes}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
