"""``python -m tests.bench.sizing``: what one conversation, one turn and one idle socket take, and what follows for many.

Prints the tables of deploy/sizing.md; with ``--write`` they are put there. Everything is measured on one gateway process and one processor, with all checks,
metrics and logs on, before an upstream on the same machine that speaks neither TLS nor compression.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import io
import math
import os
import platform
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from gateway import __version__
from tests.bench import client, rows, subjects
from tests.bench.client import Client, talk

PAGE = Path(__file__).parents[2] / "deploy" / "sizing.md"
BEGIN, END = "<!-- measured -->", "<!-- end -->"
BODY = 100_000
"""Bytes of the history of a usual turn of a coding agent."""
EVENTS = 100
"""Events of its answer."""
ITEMS = 100
"""Items of a usual conversation."""
_PING = 1.0
_LARGE = 400_000
_PACE = 500
_WIDE = ("--sockets", "4000", "--sockets-per-identity", "4000", "--max-in-flight", "4000")


@dataclass
class Found:
    """Everything measured: bytes, seconds of one processor, numbers of files."""

    base: float
    base_files: int
    socket: float
    item: float
    running: float
    running_files: float
    fixed: float
    byte: float
    event: float
    new: float
    ping: float

    def turn(self, size=BODY, events=EVENTS):
        """Processor time of a delta with ``size`` bytes of history and an answer of ``events`` events."""
        return self.fixed + size * self.byte + events * self.event

    def conversation(self, items=ITEMS):
        """Memory of an idle conversation that grew turn by turn, with its socket."""
        return self.socket + items * self.item


def say(text=""):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def files(subject):
    """Open files of a process."""
    return len(os.listdir(f"/proc/{subject.child.pid}/fd"))  # noqa: PTH208 (only their number)


def cpu_of_new(gateway, count):
    """Processor time of the first turn of a conversation: sent in full, over a new socket."""
    connection = Client(gateway.port)
    talks = [talk(BODY, label=f"new{number}") for number in range(count)]
    before = gateway.cpu
    for each in talks:
        each.turn(connection)
    connection.close()
    return (gateway.cpu - before) / count


def cpu_of_pings(gateway, sockets, seconds):
    """Processor time of one ping and its pong on an idle socket; what it takes without any is left out."""

    def idle():
        before = gateway.cpu
        time.sleep(seconds)
        return gateway.cpu - before

    without = idle()
    rows.idle_sockets(gateway, sockets - 50)
    return max(0.0, idle() - without) / (sockets * seconds / _PING)


def running(gateway, count=100):
    """Bytes and files that one running turn takes, its body and a socket of its own among them."""
    talks = [talk(BODY, events=3 * 20, rate=20, label=f"run{number}") for number in range(count)]
    before, had = gateway.resident, files(gateway)
    work = threading.Thread(target=client.together, args=(gateway.port, talks))
    work.start()
    most = opened = 0
    while work.is_alive():
        most, opened = max(most, gateway.resident), max(opened, files(gateway))
        time.sleep(0.05)
    work.join()
    return max(0.0, (most - before) / count), (opened - had) / count


def measure(rounds, sockets):
    """All of it."""
    pins = subjects.Pins()
    pins.apply()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        to = stack.enter_context(subjects.upstream(pins)).port
        with subjects.gateway(to, folder, pins, *_WIDE) as gateway:
            base, base_files = gateway.resident, files(gateway)
            small, large, eventful, new = [], [], [], []
            for number in range(rounds):
                small.append(rows.cpu_of_turns(gateway, talk(2000, label=f"s{number}"), 200))
                large.append(rows.cpu_of_turns(gateway, talk(_LARGE, label=f"l{number}"), 30))
                paced = talk(2000, events=_PACE, rate=_PACE, label=f"e{number}")
                eventful.append(rows.cpu_of_turns(gateway, paced, 2))
                new.append(cpu_of_new(gateway, 20))
            socket = rows.idle_sockets(gateway, sockets)[0].measured * 1024
        with subjects.gateway(to, folder, pins, *_WIDE) as gateway:
            # Once before: what the process keeps for the next time is not counted again for each.
            running(gateway, 20)
            taken, opened = running(gateway)
        with subjects.gateway(to, folder, pins, *_WIDE, "--ping-interval", str(_PING)) as gateway:
            ping = cpu_of_pings(gateway, sockets, 5)
    # A busy machine makes them larger, never smaller.
    fixed, event_all = min(small), min(eventful)
    byte = (min(large) - fixed) / (_LARGE - 2000)
    return Found(
        base=base,
        base_files=base_files,
        socket=socket,
        item=rows.alone("memory")["125 turns"] / 500,
        running=taken,
        running_files=opened,
        fixed=fixed - 2000 * byte,
        byte=byte,
        event=max(0.0, event_all - fixed) / (_PACE - 1),
        new=min(new),
        ping=ping,
    )


def table(head, lines):
    """A Markdown table."""
    say("| " + " | ".join(head) + " |")
    say("|" + " --- |" * len(head))
    for line in lines:
        say("| " + " | ".join(line) + " |")


def show(found):
    """What was measured, and what follows for a thousand."""
    kb, us = 1024, 1e6
    table(
        ("measured", "one takes"),
        [
            ("the process, idle", f"{found.base / kb / kb:.0f} MB, {found.base_files} files"),
            ("idle upstream socket, with a short conversation", f"{found.socket / kb:.1f} KB, 1 file"),
            ("item of a conversation that grew turn by turn", f"{found.item:.0f} bytes"),
            (f"running turn with {BODY // 1000} KB of history", f"{found.running / kb:.0f} KB, {found.running_files:.1f} files"),
            ("turn, delta: fixed part", f"{found.fixed * us:.0f} us of a processor"),
            ("turn, delta: each KB of its history", f"{found.byte * 1000 * us:.2f} us"),
            ("each event of the answer, as it comes", f"{found.event * us:.0f} us"),
            (f"first turn of a conversation, {BODY // 1000} KB, over a new socket", f"{found.new * us:.0f} us"),
            ("ping and pong on an idle socket", f"{found.ping * us:.0f} us"),
        ],
    )  # fmt: skip
    turn, each = found.turn(), found.conversation()
    say()
    table(
        ("1,000 of", "sockets", "memory", "processor"),
        [
            (
                f"idle conversations of {ITEMS} items, `store: false`",
                "1,000 upstream",
                f"{1000 * each / kb / kb:.0f} MB",
                f"{100 * 1000 * found.ping / 20:.1f} % (a ping each 20 s)",
            ),
            (
                f"idle conversations of {ITEMS} items, `store: true`",
                "none needed",
                f"{1000 * ITEMS * found.item / kb / kb:.0f} MB",
                "none",
            ),
            (
                f"turns a minute, {BODY // 1000} KB and {EVENTS} events each",
                "see turns at once",
                "see turns at once",
                f"{100 * 1000 * turn / 60:.1f} % of one",
            ),
            (
                "turns at once",
                f"1,000 upstream, {1000 * (found.running_files - 1):.0f} of clients",
                f"{1000 * found.running / kb / kb:.0f} MB",
                "by turns a minute",
            ),
        ],
    )
    say(f"\nOne processor: {60 / turn:,.0f} turns a minute at most; plan for half of it.")


def show_million(found, conversations=1_000_000, active=10_000, each=4):
    """What follows for very many, of which some take turns."""
    turns, held = active * each, conversations * ITEMS * found.item
    pinged = found.ping / 20

    def column(sockets):
        processors = turns * found.turn() / 60 + sockets * pinged + sockets / 3300 * found.new
        return [
            f"{sockets:,}",
            f"{held / 1e9:.0f} GB + {sockets * found.socket / 1e9:.1f} GB",
            f"{turns * found.turn() / 60:.1f}",
            f"{sockets * pinged:.1f}",
            f"{sockets / 3300:.0f} a second: {sockets / 3300 * found.new:.1f}",
            f"{math.ceil(processors / 0.5):,}",
        ]

    names = (
        "upstream sockets",
        "memory: items + sockets",
        "processors: turns",
        "processors: pings, one each 20 s",
        "processors: new sockets for old ones, each 55 minutes",
        "processes, each half busy",
    )
    table(
        (
            f"{conversations:,} conversations, {active:,} of them with {each} turns a minute",
            "`store: true`, sockets for the busy ones",
            "`store: false`, a socket each",
        ),
        list(zip(names, column(active), column(conversations), strict=True)),
    )


def machine():
    """What it ran on, in a few words."""
    text = Path("/proc/cpuinfo").read_text()
    name = text.partition("model name")[2].partition("\n")[0].strip(" :\t") or platform.machine()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{name}, {os.cpu_count()} processors, {platform.system()} {platform.release().split('-')[0]}, {python}"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sizing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sockets", type=int, default=500)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    begun = time.monotonic()
    found = measure(given.rounds, given.sockets)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        today = dt.datetime.now(dt.UTC).date()
        say(f"upwire {__version__}, {today}, {machine()}; {time.monotonic() - begun:.0f} s.\n")
        show(found)
        say()
        show_million(found)
    say(out.getvalue())
    if given.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + out.getvalue() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
