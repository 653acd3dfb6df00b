"""Statistics of several processes, added up, are those of one process that counted everything."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.stats import MODES, OUTCOMES, REASONS, RECOVERIES, Stats, TurnRecord
from gateway.stats.merging import exported, merged, merged_snapshot, summed

times = st.floats(0, 700, allow_nan=False)
records = st.builds(
    TurnRecord,
    mode=st.sampled_from(MODES),
    reason=st.sampled_from([None, *REASONS]),
    outcome=st.sampled_from(OUTCOMES),
    status=st.just(200),
    client_in=st.integers(0, 10**9),
    upstream_out=st.integers(0, 10**9),
    first_event=st.none() | times,
    added=st.none() | times,
    total=times,
    recoveries=st.lists(st.sampled_from(RECOVERIES), max_size=2).map(tuple),
    model=st.sampled_from(["gpt-5", "o3", "nobody's"]),
    waited=st.none() | times,
)


def counted(turns):
    """Statistics of these turns."""
    stats = Stats()
    for turn in turns:
        stats.begin()
        stats.end(turn)
    return stats


def told(stats):
    """All that can be asked of statistics."""
    histograms = {
        **{f"duration {mode}": stats.duration[mode] for mode in MODES},
        **{f"first event {mode}": stats.first_event[mode] for mode in MODES},
        "added": stats.added,
        "waited": stats.waited,
    }
    snapshot = stats.snapshot(connections={}, conversations={}, uptime=1.0, version="1")
    return snapshot, stats.by_model, {name: each.cumulative() for name, each in histograms.items()}


@given(st.lists(st.lists(records, max_size=12), min_size=1, max_size=4))
def test_the_sum_of_processes_is_one_that_saw_all(parts):
    """Counters, buckets and percentiles, after a way through JSON."""
    exports = [json.loads(json.dumps(exported(counted(part), len(parts)))) for part in parts]
    assert told(merged(exports)) == told(counted([turn for part in parts for turn in part]))


def test_a_snapshot_of_several_names_the_sockets_of_each_and_the_best_health():
    """Numbers are summed wherever they stand; what is no sum is taken from the first, sockets from all."""
    seen = {
        1: _seen(
            uptime_seconds=5.0, upstream={"websocket": "works", "refusal": None, "frame_limit_bytes": 9}
        ),
        0: _seen(
            uptime_seconds=3.0, upstream={"websocket": "refused", "refusal": 403, "frame_limit_bytes": 7}
        ),
    }
    found = merged_snapshot(merged([]), seen, most=3)
    assert found["connections"] == {"open": 4, "closed": {"age": 2}}
    assert found["uptime_seconds"] == 5.0
    assert found["upstream"] == {"websocket": "works", "refusal": None, "frame_limit_bytes": 7}
    assert [socket["worker"] for socket in found["sockets"]] == [0, 0, 1]


def test_sums_leave_texts_and_truths_as_they_are():
    """What only one process knows is kept."""
    assert summed([{"a": 1, "b": "x", "c": True}, {"a": 2, "d": 4}]) == {"a": 3, "b": "x", "c": True, "d": 4}


def _seen(**more):
    return {
        "connections": {"open": 2, "closed": {"age": 1}},
        "sockets": [{"socket": 1, "worker": 0}, {"socket": 2, "worker": 0}],
        **more,
    }
