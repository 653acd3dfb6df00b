"""Adding up what several processes of one gateway counted, as if one process had counted all of it.

Counters are summed and histograms merged bucket by bucket. Percentiles are never averaged: they are taken over the newest durations of
all processes together.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from gateway.stats.histogram import Histogram
from gateway.stats.turns import SAMPLES, Stats

_FIRSTS = frozenset(
    {"version", "loop", "uptime_seconds", "upstream", "upstreams", "latency_ms", "sockets", "workers"}
)
"""Parts of a snapshot that are no sums."""


def exported(stats: Stats, processes: int) -> dict[str, Any]:
    """All that is counted, as JSON takes it; of the newest durations the part that is one of so many processes'."""
    return {name: _plain(value, SAMPLES // processes) for name, value in vars(stats).items()}


def merged(parts: Sequence[Mapping[str, Any]]) -> Stats:
    """The sum of what ``exported`` gave."""
    whole = Stats()
    for part in parts:
        for name, value in vars(whole).items():
            if name in part and part[name] is not None:
                setattr(whole, name, _added(value, part[name]))
    return whole


def merged_snapshot(stats: Stats, seen: Mapping[int, Mapping[str, Any]], most: int) -> dict[str, Any]:
    """One snapshot of those of several processes by their numbers (at least one); ``stats`` are their sum, ``most`` sockets are listed."""
    numbers = sorted(seen)
    first = seen[numbers[0]]
    names = dict.fromkeys(chain.from_iterable(seen[number] for number in numbers))
    whole = {
        name: first.get(name)
        if name in _FIRSTS
        else summed([seen[number][name] for number in numbers if name in seen[number]])
        for name in names
    }
    whole["uptime_seconds"] = max(seen[number]["uptime_seconds"] for number in numbers)
    whole["latency_ms"] = stats.latency_ms()
    sockets = [socket | {"worker": number} for number in numbers for socket in seen[number]["sockets"]]
    whole["sockets"] = sockets[:most]
    whole["upstream"] = _upstream([seen[number]["upstream"] for number in numbers])
    by_name = [seen[number].get("upstreams", {}) for number in numbers]
    whole["upstreams"] = {name: _one_of_several([each[name] for each in by_name]) for name in by_name[0]}
    return whole


def summed(values: Sequence[Any]) -> Any:
    """Whole numbers added up, wherever they stand; of all else, the first."""
    first = values[0]
    if isinstance(first, dict):
        names = dict.fromkeys(chain.from_iterable(values))
        return {name: summed([value[name] for value in values if name in value]) for name in names}
    if isinstance(first, int) and not isinstance(first, bool):
        return sum(values)
    return first


def _upstream(seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the first process tells of the upstream, but its health as it is for any of them."""
    whole = dict(seen[0])
    by_state = {one.get("websocket"): one for one in reversed(seen)}
    # A socket that works for one proves that the upstream takes them.
    best = by_state.get("works") or by_state.get("refused")
    if best is not None:
        whole |= {name: best[name] for name in ("websocket", "refusal", "retry_in_seconds") if name in best}
    return whole


def _one_of_several(seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One of several upstreams: what was counted is added up."""
    return _upstream(seen) | {part: summed([one[part] for one in seen]) for part in ("turns", "connections")}


def _plain(value: Any, samples: int) -> Any:
    if isinstance(value, Histogram):
        return {"counts": value.counts, "total": value.total}
    if isinstance(value, Counter):
        return [[list(name), count] for name, count in value.items()]
    if isinstance(value, dict):
        return {name: _plain(each, samples) for name, each in value.items()}
    if isinstance(value, deque):
        return list(value)[-samples:]
    return value if isinstance(value, int) else None


def _added(value: Any, part: Any) -> Any:
    if isinstance(value, Histogram):
        value.counts = [one + other for one, other in zip(value.counts, part["counts"], strict=True)]
        value.total += part["total"]
    elif isinstance(value, Counter):
        for name, count in part:
            value[tuple(name)] += count
    elif isinstance(value, dict):
        for name, each in part.items():
            value[name] = _added(value[name], each) if name in value else each
    elif isinstance(value, deque):
        value.extend(part)
    elif isinstance(value, int):
        value += part
    return value
