"""Recorded conversations answered with their recorded items."""

import json
from pathlib import Path

import pytest

from gateway.simulator import TraceScript

TRACES = sorted((Path(__file__).parent.parent / "traces").glob("*.jsonl"))


def rows_of(path):
    """The turns of a recording."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [row for row in rows if row["path"].endswith("/responses") and isinstance(row.get("body"), dict)]


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
async def test_a_recording_is_served_as_it_was_recorded(simulate, http, path):
    """Each request of a real client is accepted and gets the items and ids that it got then."""
    rows = rows_of(path)
    script = TraceScript(rows)
    simulator = await simulate(script)
    for row in rows:
        body = {key: value for key, value in row["body"].items() if key != "stream"}
        async with http.post(f"{simulator.url}/responses", json=body) as answer:
            response = await answer.json()
            assert answer.status == 200, response
        assert (response["id"], response["output"]) == (row["reply"]["id"], row["reply"]["output"])
    chained = any(row["body"].get("previous_response_id") for row in rows)
    assert script.strays == (len(rows) - 1 if chained else 0)
    assert len(script) == 0


async def test_creates_beyond_the_recording_are_refused(simulate, post):
    """An empty recording answers nothing."""
    status, answer = await post(await simulate(TraceScript([])), input="q")
    assert (status, answer["error"]["code"]) == (500, "trace_used_up")
