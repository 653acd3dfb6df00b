"""The rows of the table: each measures its subjects in turn, several times, and compares within one round."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

from tests.bench import client, subjects
from tests.bench.client import Client, talk

FLAT, PACED, RATE = 20_000, 6000, 4000
BIG = 5_000_000


@dataclass
class Row:
    """One line: what the target is about, its bound, and what came out in each round."""

    name: str
    target: float
    unit: str
    values: list
    note: str = ""
    key: str = ""
    """Under which a CPU ratio is recorded; others are not."""
    beside: dict = field(default_factory=dict)

    @property
    def measured(self):
        return statistics.median(self.values)

    @property
    def best(self):
        return min(self.values)

    @property
    def met(self):
        return self.measured <= self.target


@dataclass
class Bench:
    """All subjects running, and how often to measure. ``nginx`` is None where it is not to be had."""

    nginx: subjects.Subject | None
    passthrough: subjects.Subject
    gateway: subjects.Subject
    uvloop: subjects.Subject | None
    direct: subjects.Subject
    rounds: int

    @property
    def base(self):
        """What ratios are against."""
        return self.nginx or self.passthrough

    @property
    def all(self):
        return [each for each in (self.nginx, self.passthrough, self.gateway, self.uvloop) if each]


def alone(what):
    """One of ``tests.bench.matching``, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.matching", what], check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def diffs(rounds):
    found = [alone("diff") for _ in range(rounds)]
    size = f"{found[0]['bytes'] / 1e6:.1f} MB, 2000 items"
    return [
        Row("diff, body repeated, against orjson.loads", 0.06, "x", [f["repeats"] for f in found], size, "diff_repeated"),
        Row("diff, body re-serialised, against orjson.loads", 0.6, "x", [f["respells"] for f in found],
            f"{size}; never seen so at all (tier 3): {statistics.median(f['unseen'] for f in found):.1f} x", "diff_respelled"),
    ]  # fmt: skip


def cpu_of_turns(subject, conversation, turns):
    """Processor seconds a turn, over a connection that is open already."""
    connection = Client(subject.port)
    conversation.turn(connection)
    conversation.turn(connection)
    time.sleep(0.02)
    before = subject.cpu
    for _ in range(turns):
        conversation.turn(connection)
    time.sleep(0.02)
    taken = (subject.cpu - before) / turns
    connection.close()
    return taken


def ingest(bench, turns=6):
    costs = {each.name: [] for each in bench.all}
    for number in range(bench.rounds):
        for each in bench.all:
            costs[each.name].append(cpu_of_turns(each, talk(BIG, label=f"in{number}{each.name}"), turns))
    return [
        Row(f"ingest + diff, 5 MB, CPU against {bench.base.name} forwarding it ({each.name})", 1.6, "x",
            against(costs[each.name], costs[bench.base.name]), in_ms(costs), "ingest" if each is bench.gateway else "")
        for each in ours(bench)
    ]  # fmt: skip


def events(bench):
    rows = []
    for name, count, rate in (("paced", PACED, RATE), ("flat", FLAT, 0)):
        costs = {each.name: [] for each in bench.all}
        for number in range(bench.rounds):
            for each in bench.all:
                conversation = talk(2000, events=count, rate=rate, label=f"{name}{number}")
                costs[each.name].append(cpu_of_turns(each, conversation, 1) / count)
        note = ", ".join(f"{name} {statistics.median(cost) * 1e6:.1f} us" for name, cost in costs.items())
        for each in ours(bench):
            recorded = each is bench.gateway
            ratio = against(costs[each.name], costs[bench.base.name])
            if rate:
                title = f"CPU per event, one stream at 4,000/s, against {bench.base.name} ({each.name})"
                rows.append(Row(title, 2.3, "x", ratio, note, "event_paced" if recorded else ""))
            else:
                plain = against(costs[each.name], costs[bench.passthrough.name])
                title = f"CPU per event flat out ({each.name})"
                row = Row(title, 10.0, "us", [cost * 1e6 for cost in costs[each.name]], note)
                row.beside = {"event_flat": min(plain)} if recorded else {}
                rows.append(row)
    return rows


def latency(bench, seconds=2):
    """20 streams at 200 events a second each: how much later than directly each event comes, half of them."""
    added = {each.name: [] for each in bench.all}
    for number in range(bench.rounds):
        medians = {}
        for each in (bench.direct, *bench.all):
            talks = [talk(2000, events=200 * seconds, rate=200, label=f"la{number}.{n}") for n in range(20)]
            medians[each.name] = statistics.median(client.together(each.port, talks))
        for each in bench.all:
            added[each.name].append((medians[each.name] - medians[bench.direct.name]) / 1000)
    note = ", ".join(f"{name} +{statistics.median(times):.0f} us" for name, times in added.items())
    return [
        Row(f"added latency p50, 20 streams x 200/s, against what {bench.base.name} adds ({each.name})", 2.2, "x",
            against(added[each.name], added[bench.base.name]), note)
        for each in ours(bench)
    ]  # fmt: skip


def first_event(bench, turns=60):
    times = {each.name: [] for each in bench.all}
    for number in range(bench.rounds):
        for each in bench.all:
            conversation, connection = talk(20_000, label=f"fe{number}"), Client(each.port)
            conversation.turn(connection)
            times[each.name].append(
                1000 * statistics.median(conversation.turn(connection) for _ in range(turns))
            )
            connection.close()
    note = ", ".join(f"{name} {statistics.median(t):.2f} ms" for name, t in times.items())
    return [
        Row(f"first event, 20 KB body, after {bench.base.name}'s ({each.name})", 0.5, "ms",
            [a - b for a, b in zip(times[each.name], times[bench.base.name], strict=True)], note)
        for each in ours(bench)
    ]  # fmt: skip


def growth(bench, sizes=(20_000, 100_000, 500_000, BIG), turns=12):
    """What one more turn costs as its history grows: bytes sent upstream, and processor time."""
    exponents, sent, costs = [], [], {size: [] for size in sizes}
    for number in range(bench.rounds):
        for size in sizes:
            conversation = talk(size, label=f"gr{number}")
            connection = Client(bench.gateway.port)
            conversation.turn(connection)
            before = subjects.stats(bench.gateway)["bytes"]["upstream_out"]
            conversation.turn(connection)
            sent.append(subjects.stats(bench.gateway)["bytes"]["upstream_out"] - before)
            connection.close()
            costs[size].append(
                cpu_of_turns(
                    bench.gateway, conversation, max(4, turns * 20_000 * 8 // size) if size < BIG else 4
                )
            )
        exponents.append(slope({size: costs[size][-1] for size in sizes}))
    note = ", ".join(f"{size // 1000} KB {statistics.median(costs[size]) * 1000:.2f} ms" for size in sizes)
    return [
        Row("bytes sent upstream per turn, most over least, 20 KB to 5 MB", 1.1, "x", [max(sent) / min(sent)],
            f"{min(sent)} to {max(sent)} bytes"),
        Row("CPU per turn as history grows, 20 KB to 5 MB, exponent", 0.5, "", exponents, note),
    ]  # fmt: skip


def idle_sockets(gateway, count=200):
    """Resident memory that each further open and idle socket takes, its conversation with it."""

    def open_some(label, number):
        for at in range(number):
            connection = Client(gateway.port)
            talk(2000, label=f"{label}{at}").turn(connection)
            connection.close()

    open_some("warm", 50)
    before, had = gateway.resident, subjects.stats(gateway)["connections"]["idle"]
    open_some("idle", count)
    grown, has = gateway.resident - before, subjects.stats(gateway)["connections"]["idle"]
    return [Row("memory per open idle upstream socket", 100, "KB", [grown / 1024 / max(1, has - had)],
                f"{has - had} sockets")]  # fmt: skip


def compressed_sockets(folder, pins, *, offered="auto", instructions=20_000, count=300):
    """The same where frames are compressed, each conversation with instructions of its own that fold badly."""
    wide = ("--sockets-per-identity", "1000", "--sockets", "1000", "--compression", offered)
    command = [
        sys.executable,
        "-m",
        "tests.bench.simulated",
        "synthetic",
        "127.0.0.1",
        '{"compression":true}',
    ]
    with (
        subjects.running("simulated upstream", command, pins.others if pins.possible else None) as upstream,
        subjects.gateway(upstream.port, folder, pins, *wide) as gateway,
    ):

        def open_some(number):
            for _ in range(number):
                text = os.urandom(instructions // 2).hex()
                body = {
                    "model": "m",
                    "store": False,
                    "stream": True,
                    "instructions": text,
                    "input": "x" * 2000,
                }
                connection = Client(gateway.port)
                connection.turn(json.dumps(body).encode())
                connection.close()

        open_some(50)
        before = gateway.resident
        open_some(count)
        grown, now = gateway.resident - before, subjects.stats(gateway)["connections"]["idle"]
    name = f"memory per idle socket, compression {offered}, {instructions // 1000} KB of instructions"
    return [Row(name, 100, "KB", [grown / 1024 / (now - 50)], f"{now - 50} sockets")]


def conversations():
    grown, by_shape = alone("resident"), alone("memory")
    note = f"grown turn by turn (125 turns): {by_shape['125 turns'] / 1024:.0f} KB each in place of {by_shape['one turn'] / 1024:.0f}"
    return [Row("memory, 10,000 conversations of 500 items", 150, "MB", [grown / 1e6], note)]


def against(ours_, theirs):
    return [a / b for a, b in zip(ours_, theirs, strict=True)]


def ours(bench):
    return [each for each in (bench.gateway, bench.uvloop) if each]


def in_ms(costs):
    return ", ".join(f"{name} {statistics.median(cost) * 1000:.2f} ms" for name, cost in costs.items())


def slope(costs):
    xs, ys = [math.log(size) for size in costs], [math.log(cost) for cost in costs.values()]
    x, y = statistics.mean(xs), statistics.mean(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
