"""``python -m tests.bench.agent``: agent loops over an emulated link, directly and through the gateway.

The upstream is simulated; its times are the conditions that the table names. Directly means plain HTTP over one kept-alive connection.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench import link
from tests.bench.simulated import SYNTHETIC

RECORDED = Path(__file__).with_name("recorded_loops.json")
"""What the README quotes."""
SESSIONS = {
    SYNTHETIC: "30 turns, 50 KB + 10 KB each",
    "codex-http-0.171.0": "Codex, recorded",
    "opencode-1.18.33": "opencode, recorded",
    "pi-1.6.0": "pi, recorded",
}


@dataclass(frozen=True)
class Conditions:
    """Times in seconds, rate in bits a second."""

    round_trip: float
    rate: float
    per_request: float
    per_kb: float
    pace: float

    @property
    def upstream(self):
        return json.dumps(
            {"cost_per_request": self.per_request, "cost_per_kb": self.per_kb, "token_pace": self.pace}
        )

    def __str__(self):
        return (
            f"round trip {self.round_trip * 1000:.0f} ms, {self.rate / 1e6:g} Mbit/s each way; upstream: "
            f"{self.per_request * 1000:g} ms a request, {self.per_kb * 1000:g} ms per KB it does not hold, "
            f"{self.pace * 1000:g} ms a token"
        )


def say(text=""):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def started(command, *, inside=None, talk=False):
    """A process whose first line that ends in a number is its port."""
    child = subprocess.Popen(
        [*(["ip", "netns", "exec", inside] if inside else []), *command],
        stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        for line in child.stdout:
            last = line.strip().rpartition(":")[2]
            if last.isdigit():
                yield int(last), child
                return
        raise RuntimeError(f"{command[2]} ended before it said where it listens")
    finally:
        child.terminate()
        child.wait(15)
        child.stdout.close()
        if child.stdin is not None:
            child.stdin.close()


def gateway(url, inside):
    command = [
        sys.executable,
        "-m",
        "gateway",
        "serve",
        "--port",
        "0",
        "--upstream",
        url,
        "--profile",
        "openai",
    ]
    return started([*command, "--log-level", "warning"], inside=inside)


def loop(session, host, port, inside):
    command = [*(["ip", "netns", "exec", inside] if inside else []), sys.executable, "-m", "tests.bench.loop"]
    told = subprocess.run([*command, session, host, str(port)], check=True, stdout=subprocess.PIPE)
    return json.loads(told.stdout)


def over_packets(session, conditions, *, through_gateway):
    """One run over a link that holds back packets."""
    command = [sys.executable, "-m", "tests.bench.simulated", session, link.FAR_ADDRESS, conditions.upstream]
    with started(command, inside=link.FAR) as (port, _):
        before = link.sent()
        if not through_gateway:
            result = loop(session, link.FAR_ADDRESS, port, link.NEAR)
        else:
            with gateway(f"http://{link.FAR_ADDRESS}:{port}/v1", link.NEAR) as (own, _):
                result = loop(session, "127.0.0.1", own, link.NEAR)
        return {**result, "sent": link.sent() - before}


def over_bytes(session, conditions, *, through_gateway):
    """One run over a relay that holds back bytes."""
    command = [sys.executable, "-m", "tests.bench.simulated", session, "127.0.0.1", conditions.upstream]
    with started(command) as (port, _):
        relay = [sys.executable, "-m", "tests.bench.link", "relay", str(conditions.round_trip / 2),
                 str(conditions.rate / 8), "127.0.0.1", str(port)]  # fmt: skip
        with started(relay, talk=True) as (at, child):
            if not through_gateway:
                result = loop(session, "127.0.0.1", at, None)
            else:
                with gateway(f"http://127.0.0.1:{at}/v1", None) as (own, _):
                    result = loop(session, "127.0.0.1", own, None)
            child.stdin.write("\n")
            child.stdin.flush()
            return {**result, "sent": int(child.stdout.readline())}


def compare(sessions, conditions, rounds, *, packets):
    """The lines of the table for one set of conditions, medians of some rounds."""
    say(f"\n{conditions}")
    say(f"{'session':30} {'way':8} {'total':>8} {'waiting':>8} {'sent':>9}  turns")
    one = over_packets if packets else over_bytes
    made = []
    with contextlib.ExitStack() as stack:
        if packets:
            stack.enter_context(link.packets(conditions.round_trip / 2, conditions.rate / 8))
        for session in sessions:
            ways = {"direct": [], "gateway": []}
            for _ in range(rounds):
                for way, runs in ways.items():
                    runs.append(one(session, conditions, through_gateway=way == "gateway"))
            for way, runs in ways.items():
                middle = {k: statistics.median(run[k] for run in runs) for k in ("took", "waited", "sent")}
                modes = ", ".join(f"{count} {mode}" for mode, count in runs[-1]["modes"].items())
                say(f"{SESSIONS[session]:30} {way:8} {middle['took']:>6.2f} s {middle['waited']:>6.2f} s"
                    f" {middle['sent'] / 1000:>6.0f} KB  {modes}")  # fmt: skip
                made.append({"session": session, "way": way, "modes": runs[-1]["modes"], **middle})
    return made


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench.agent")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--session", choices=list(SESSIONS), action="append")
    parser.add_argument("--relay", action="store_true", help="hold back bytes even where packets could be")
    parser.add_argument(
        "--record", action="store_true", help=f"write {RECORDED.name}, which the README quotes: make docs"
    )
    given = parser.parse_args()
    packets = link.possible() and not given.relay
    if given.record and (given.session or not packets):
        parser.error("--record is for all sessions, and for a machine that can hold back packets")
    found = []
    say("Simulated upstream, emulated link: " + (
        "packets held back between two network namespaces, real TCP" if packets
        else "a relay that holds back bytes, so TCP's slow start is left out"))  # fmt: skip
    say(
        "direct: HTTP/1.1 without TLS over one kept-alive connection, no pause between turns. Waiting: from asking to the first"
    )
    say(f"event, all turns together. Sent: towards the upstream, {'packet' if packets else 'request'} headers included. "
        f"Medians of {given.rounds}.")  # fmt: skip
    for round_trip in (0.04, 0.08):
        for per_request, per_kb, pace in ((0.0, 0.0, 0.0), (0.3, 0.001, 0.005)):
            conditions = Conditions(round_trip, 20e6, per_request, per_kb, pace)
            rows = compare(given.session or list(SESSIONS), conditions, given.rounds, packets=packets)
            found.append({"conditions": asdict(conditions), "rows": rows})
    if given.record:
        RECORDED.write_text(json.dumps({"rounds": given.rounds, "loops": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
