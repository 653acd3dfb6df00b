"""Counting of turns."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conversation.reasons import Reason
from gateway.stats import MODES, REASONS, RECOVERIES, SAMPLES, Stats, TurnRecord, percentiles_ms

RECORD = TurnRecord(
    mode="delta",
    reason=None,
    outcome="ok",
    status=200,
    client_in=100,
    upstream_out=10,
    first_event=0.1,
    added=0.001,
    total=0.2,
    recoveries=(),
    model="m",
)

CONTRACT_REASONS = [
    "new_conversation",
    "history_changed",
    "reasoning_omitted",
    "settings_changed",
    "no_new_items",
    "parent_lost",
    "parent_superseded",
    "parent_busy",
    "not_found",
    "delta_refused",
    "connection_lost",
    "too_large",
    "not_upgradable",
    "client_parent",
    "no_socket",
    "upgrade_refused",
    "disabled",
]

modes = st.sampled_from(MODES)
records = modes.flatmap(
    lambda mode: st.builds(
        TurnRecord,
        mode=st.just(mode),
        reason=st.none() if mode == "delta" else st.sampled_from(REASONS),
        outcome=st.sampled_from(["ok", "failed", "cancelled"]),
        status=st.sampled_from([200, 400, 502]),
        client_in=st.integers(0, 10**8),
        upstream_out=st.integers(0, 10**8),
        first_event=st.none() | st.floats(0, 600),
        added=st.none() | st.floats(0, 1),
        total=st.floats(0, 600),
        recoveries=st.lists(st.sampled_from(RECOVERIES), max_size=3).map(tuple),
        model=st.text(max_size=5),
    )
)


def snapshot(stats: Stats) -> dict:
    """The statistics with nothing from outside."""
    return stats.snapshot(connections={}, conversations={}, uptime=1.5, version="9")


@given(st.lists(records, max_size=30), st.integers(0, 3))
def test_sums_hold_for_any_turns(ended, running):
    """Each ended turn has one mode, each but a delta one reason, and the saved bytes are the difference."""
    stats = Stats()
    for record in ended:
        stats.begin()
        stats.end(record)
    for _ in range(running):
        stats.begin()
    seen = snapshot(stats)
    turns = seen["turns"]
    assert turns["total"] == turns["delta"] + turns["full"] + turns["http"] == len(ended)
    assert turns["in_flight"] == running
    assert turns["failed"] == sum(r.outcome == "failed" for r in ended)
    assert turns["cancelled"] == sum(r.outcome == "cancelled" for r in ended)
    assert sum(seen["reasons"].values()) == turns["full"] + turns["http"]
    assert seen["bytes"]["client_in"] == sum(r.client_in for r in ended)
    assert seen["bytes"]["saved"] == seen["bytes"]["client_in"] - seen["bytes"]["upstream_out"]
    assert sum(seen["recoveries"].values()) == sum(len(r.recoveries) for r in ended)


def test_every_name_is_there_before_the_first_turn():
    """Tools that read the statistics find every key at once, numbers at 0 and percentiles null."""
    seen = snapshot(Stats())
    assert list(seen["reasons"]) == CONTRACT_REASONS
    assert set(seen["reasons"].values()) == {0}
    assert seen["turns"] == dict.fromkeys(
        ("total", "delta", "full", "http", "failed", "cancelled", "in_flight"), 0
    )
    assert seen["recoveries"] == {"full_resend": 0, "reconnect": 0, "http_fallback": 0, "replay": 0}
    nothing = {"p50": None, "p95": None, "p99": None}
    assert seen["latency_ms"] == {"first_event": nothing, "added": nothing, "duration": nothing}
    assert (seen["version"], seen["uptime_seconds"]) == ("9", 1.5)


def test_the_reasons_are_those_that_turns_give():
    """The set of reasons is written down once for counting and once for deciding; both are the same."""
    assert {reason.value for reason in Reason} == set(REASONS)


def test_what_others_hold_is_passed_on():
    """Connections and conversations appear as their owners gave them."""
    seen = Stats().snapshot(connections={"open": 1}, conversations={"known": 2}, uptime=0, version="")
    assert (seen["connections"], seen["conversations"]) == ({"open": 1}, {"known": 2})


def test_a_missing_duration_is_no_sample():
    """Turns without a measure of the gateway's own time do not drag its percentiles to 0."""
    stats = Stats()
    for added in (None, 0.004, None):
        stats.begin()
        stats.end(dataclasses.replace(RECORD, added=added))
    assert snapshot(stats)["latency_ms"]["added"] == {"p50": 4.0, "p95": 4.0, "p99": 4.0}


def test_only_the_newest_samples_count():
    """Percentiles follow the present: an old slow phase is forgotten, and memory is bounded."""
    stats = Stats()
    for at in range(2 * SAMPLES):
        stats.begin()
        stats.end(dataclasses.replace(RECORD, first_event=9.0 if at < SAMPLES else 1.0))
    assert snapshot(stats)["latency_ms"]["first_event"]["p99"] == 1000.0


@pytest.mark.parametrize(
    "change", [{"mode": "other"}, {"reason": "other"}, {"recoveries": ("replay", "other")}]
)
def test_an_unknown_name_is_refused_whole(change):
    """A record outside the closed sets raises and changes no number."""
    stats = Stats()
    stats.begin()
    before = snapshot(stats)
    with pytest.raises(KeyError):
        stats.end(dataclasses.replace(RECORD, **change))
    assert snapshot(stats) == before


@given(st.lists(st.floats(0, 100), min_size=1))
def test_percentiles_are_samples_in_order(samples):
    """A percentile is one of the samples, at least that share of them is no larger, and they do not fall."""
    found = percentiles_ms(samples)
    values = [found["p50"], found["p95"], found["p99"]]
    assert values == sorted(values)
    for share, value in zip((0.5, 0.95, 0.99), values, strict=True):
        assert any(math.isclose(value, s * 1000, abs_tol=0.001) for s in samples)
        assert sum(s * 1000 <= value + 0.001 for s in samples) >= share * len(samples)
