"""Unmodified clients, by base URL alone: what they see is what they see without the gateway, and their turns are deltas."""

import os
import sys

import pytest

from tests.clients import results
from tests.clients.catalog import ROWS

pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

CASES = [pytest.param(row, level, id=f"{row.name}-{level}") for row in ROWS for level in row.levels]
WRITE = os.environ.get("UPWIRE_CLIENT_RESULTS") == "write"


def rows(pin, how=""):
    """One way of using a client, as a parameter."""
    return pytest.mark.parametrize(
        "row", [pytest.param(row, id=row.name) for row in ROWS if row.pin == pin and how in row.how][:1]
    )


@pytest.mark.parametrize(("row", "level"), CASES)
def test_a_client_sees_the_same(played, row, level):
    """Exit codes, final texts, tool calls and every answer on the wire are those of the direct run."""
    seen = played(row)
    through = seen.through[level]

    assert all(step[0] in (0, "interrupted") for step in through.steps), through.errors
    assert through.steps == seen.direct.steps
    assert through.answers == seen.direct.answers
    assert len(through.turns) >= 8
    assert any(shown for step in through.steps for shown in step[1])


@pytest.mark.parametrize(("row", "level"), CASES)
def test_the_upstream_held_what_the_client_asked_for(played, row, level):
    """In every turn the context that was answered is the one that the client's own body stands for."""
    compared = [pair for pair in played(row).through[level].contexts if pair is not None]
    for held, asked in compared:
        assert held.loose == asked.loose
        if level != "lenient":
            assert held.modulo == asked.modulo
    assert len(compared) >= (1 if row.besides.get(level) == "client_parent" else 6)


@pytest.mark.parametrize(("row", "level"), CASES)
def test_every_later_turn_is_a_delta(played, row, level):
    """What is no delta begins a conversation, comes after an interruption that cost its socket, or has the row's own reason."""
    run = played(row).through[level]
    reasons = {name: count for name, count in run.stats["reasons"].items() if count}
    allowed = {"new_conversation": row.begins, "parent_lost": 1, row.besides.get(level, ""): len(run.turns)}

    assert all(count <= allowed.get(name, 0) for name, count in reasons.items()), run.outcomes
    assert reasons["new_conversation"] == row.begins
    if level not in row.besides:
        assert run.stats["turns"]["delta"] >= len(run.turns) - row.begins - 1
        assert run.stats["bytes"]["upstream_out"] < run.stats["bytes"]["client_in"]


@rows("codex", "built-in")
def test_codex_tries_an_upgrade_and_goes_on(played, row):
    """Its built-in provider is told 426 once in each process, and then sends its turns over HTTP."""
    run = played(row).through["equivalent"]
    upgrades = [one for one in run.exchanges if one.headers.get("upgrade", "").lower() == "websocket"]
    assert [one.status for one in upgrades] == [426] * len(row.agent.steps)
    assert len(run.turns) == 8


@rows("codex", "zstd")
def test_a_login_of_codex_compresses(played, row):
    """With a login every turn's body is zstd; the upstream gets it decoded."""
    run = played(row).through["equivalent"]
    assert {turn.headers.get("content-encoding") for turn in run.turns} == {"zstd"}
    assert all(turn.headers["chatgpt-account-id"] == "acc-test" for turn in run.turns)


@rows("opencode")
def test_opencode_asks_for_two_answers_at_once(played, row):
    """The title and the first turn are different conversations that run side by side."""
    first, second = played(row).through["equivalent"].turns[:2]
    assert {first.body["model"], second.body["model"]} == {"gpt-5", "gpt-5-mini"}
    assert first.outcome == second.outcome == "new_conversation"


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_no_fewer_deltas_than_committed(played, row):
    """The committed table is of these versions, and says no more than what this run showed."""
    seen = played(row)
    recorded = {} if WRITE else results.committed()
    for level, run in seen.through.items():
        now = results.line_of(row, level, run)
        before = now if WRITE else recorded[now[0], now[2], now[3]]
        assert (before[1], before[4]) == (now[1], now[4])
        assert int(now[5]) >= int(before[5])


def test_the_table(played, capsys):
    """Prints the table of all clients that were run; replaces the committed one when it is asked to."""
    lines = [
        results.line_of(row, level, run)
        for row in ROWS
        if played.ran(row)
        for level, run in played(row).through.items()
    ]
    with capsys.disabled():
        sys.stdout.write("\n" + results.table(lines))
    if WRITE:
        assert len(lines) == len(CASES)
        results.write(lines)
    assert lines or not results.installing.IN_CI
