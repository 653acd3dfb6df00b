"""The README's table of agent loops, from what ``python -m tests.bench.agent --record`` measured."""

from __future__ import annotations

import json

from tests.bench.agent import RECORDED, SESSIONS
from tests.documents.reference import table


def measured():
    """What was recorded."""
    return json.loads(RECORDED.read_text())


def costly(conditions):
    """Whether the upstream was told to take its time."""
    return any(conditions[name] for name in ("per_request", "per_kb", "pace"))


def size(count):
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1000:.0f} KB"


def speed():
    """A row for each session, a column for each set of conditions: directly -> through upwire."""
    found = measured()
    sets = [loop["conditions"] for loop in found["loops"]]
    by = {
        (at, row["session"], row["way"]): row
        for at, loop in enumerate(found["loops"])
        for row in loop["rows"]
    }
    heads = ["agent loop", "sent upstream"]
    heads += [f"{c['round_trip'] * 1000:.0f} ms{', costs' if costly(c) else ''}" for c in sets]
    rows = []
    for session, title in SESSIONS.items():
        pair = [by[0, session, way]["sent"] for way in ("direct", "gateway")]
        times = [[by[at, session, way]["took"] for way in ("direct", "gateway")] for at in range(len(sets))]
        rows.append([title, " → ".join(map(size, pair)), *(f"{a:.2f} → {b:.2f} s" for a, b in times)])
    costs = next(c for c in sets if costly(c))
    rates = {c["rate"] / 1e6 for c in sets}
    assert len(rates) == 1
    told = (
        f"Directly → through upwire, whole loops, medians of {found['rounds']}. *Costs*: {costs['per_request'] * 1000:.0f} ms a request, "
        f"{costs['per_kb'] * 1000:g} ms per KB of context that the upstream does not hold, {costs['pace'] * 1000:g} ms a token. "
        f"Elsewhere the upstream answers at once. {rates.pop():g} Mbit/s each way; the columns name the round trip."
    )
    return table(heads, rows) + "\n\n" + told + "\n"
