"""``python -m tests.bench``: the gateway beside nginx and a plain pass-through, one table.

``--quick`` measures the recorded processor ratios only, ``--check`` fails if one is worse than 1.5 times its recorded value, and
``--record`` records what was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import rows, subjects
from tests.bench.startup import startup

RECORDED = Path(__file__).with_name("recorded.json")
WORSE = 1.5
_FLOORED = {"diff_repeated": 0.03}
"""Ratios so small that only more than this is worth failing for."""


def say(text=""):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show(found):
    """The table."""
    width = max(len(row.name) for row in found)
    say(f"{'what':{width}}  {'target':>10}  {'measured':>10}  {'spread':>15}  met")
    for row in found:
        bound, got = f"{row.target:g} {row.unit}", f"{row.measured:.3g} {row.unit}"
        spread = f"{min(row.values):.3g}..{max(row.values):.3g}"
        say(f"{row.name:{width}}  {bound:>10}  {got:>10}  {spread:>15}  {'yes' if row.met else 'NO'}")
        if row.note:
            say(f"{'':{width}}    {row.note}")


def show_curve():
    say("\nCPU of one turn's reading and planning (us), and against orjson.loads of the same body")
    say(
        f"{'bytes':>10} {'items':>7} {'loads':>9} | {'repeats':>9} {'':>6} | {'re-serialises':>13} {'':>6} | {'never seen':>10}"
    )
    for row in rows.alone("curve"):
        loads = row["loads"]
        say(
            f"{row['bytes']:>10} {row['items']:>7} {loads:>9.0f} | {row['repeats']:>9.0f} {row['repeats'] / loads:>5.2f}x"
            f" | {row['respells']:>13.0f} {row['respells'] / loads:>5.2f}x | {row['unseen']:>10.0f} {row['unseen'] / loads:.1f}x"
        )


def ratios(found):
    """The least of each recorded ratio: a busy machine makes them larger, never smaller."""
    kept = {row.key: row.best for row in found if row.key}
    for row in found:
        kept.update(row.beside)
    return {name: round(value, 4) for name, value in kept.items()}


def worse(measured, recorded):
    """Which ratios are worse than they may be."""
    return [
        f"{name}: {measured[name]:.3g}, recorded {value:.3g}"
        for name, value in recorded.items()
        if name in measured and measured[name] > WORSE * max(value, _FLOORED.get(name, 0.0))
    ]


def measure(*, quick, rounds, install=True):
    """All rows, or those that have a recorded ratio."""
    pins = subjects.Pins()
    pins.apply()
    if not pins.possible:
        say("one processor only: nothing is pinned")
    path = subjects.find_nginx(install=install)
    if path is None:
        say(
            "nginx is not installed and cannot be (needs root and Debian's packages): compared with aiohttp instead"
        )
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        beside = stack.enter_context(tempfile.TemporaryDirectory())
        upstream = stack.enter_context(subjects.upstream(pins))
        to = upstream.port
        bench = rows.Bench(
            nginx=stack.enter_context(subjects.nginx(path, to, folder, pins)) if path else None,
            passthrough=stack.enter_context(subjects.passthrough(to, pins)),
            gateway=stack.enter_context(subjects.gateway(to, folder, pins, name="gateway, asyncio")),
            uvloop=stack.enter_context(
                subjects.gateway(to, beside, pins, name="gateway, uvloop", loop="uvloop")
            ),
            direct=upstream,
            rounds=rounds,
        )
        found = rows.diffs(rounds if not quick else 2)
        found += rows.ingest(bench)
        found += rows.events(bench)
        if quick:
            return found, path
        found += rows.latency(bench)
        found += rows.first_event(bench)
        found += rows.growth(bench)
        wide = ("--sockets-per-identity", "1000", "--sockets", "1000")
        with subjects.gateway(to, folder, pins, *wide) as roomy:
            found += rows.idle_sockets(roomy)
        found += rows.compressed_sockets(folder, pins)
        found += rows.conversations()
        found += startup(folder, rounds)
    return found, path


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--rounds", type=int, default=None)
    given = parser.parse_args()
    begun = time.monotonic()
    found, path = measure(quick=given.quick, rounds=given.rounds or (3 if given.quick else 5))
    show(found)
    if not given.quick:
        show_curve()
    say(f"\n{time.monotonic() - begun:.0f} s; medians of rounds; each ratio within one round")
    measured = ratios(found)
    if given.record:
        RECORDED.write_text(json.dumps({"nginx": path is not None, "ratios": measured}, indent=2) + "\n")
    if given.check:
        failed = check(measured, path)
        for line in failed:
            say("worse than 1.5 times what is recorded: " + line)
        raise SystemExit(1 if failed else 0)


def check(measured, path):
    """What is too much worse than recorded; ratios against nginx count only where both times it was nginx."""
    recorded = json.loads(RECORDED.read_text())
    known = recorded["ratios"]
    if recorded["nginx"] != (path is not None):
        known = {
            name: value
            for name, value in known.items()
            if name in {"diff_repeated", "diff_respelled", "event_flat"}
        }
    return worse(measured, known)


if __name__ == "__main__":
    main()
