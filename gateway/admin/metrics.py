"""``/metrics``: the statistics in the text format of Prometheus.

Every name and every label value comes from a closed set in the code, so nothing that a client sends can add a series.
The library is imported by the first scrape, since most gateways are never scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gateway.stats import MODELS, MODES, OTHER, OUTCOMES, Histogram, Stats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

METRICS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "upwire_build_info": ("gauge", ("version",), "Always 1; the version is the label."),
    "upwire_uptime_seconds": ("gauge", (), "Seconds since the gateway was started."),
    "upwire_turns_total": (
        "counter",
        ("mode", "outcome", "model"),
        "Turns that have ended; the model is a known family, or other.",
    ),
    "upwire_turns_in_flight": ("gauge", (), "Turns that run now."),
    "upwire_turn_reasons_total": ("counter", ("reason",), "Turns that were not a delta, by why not."),
    "upwire_tries_total": (
        "counter",
        ("kind",),
        "Tries to answer a turn: the first, and those that followed a failure, hidden from the client.",
    ),
    "upwire_received_bytes_total": ("counter", (), "Decoded bytes of request bodies from clients."),
    "upwire_sent_bytes_total": (
        "counter",
        (),
        "Bytes of frames and bodies sent upstream for these, repeats included.",
    ),
    "upwire_saved_bytes": ("gauge", (), "Bytes received less bytes sent; repeats can make it fall."),
    "upwire_connections": ("gauge", ("state",), "Upstream sockets by what they are doing."),
    "upwire_connections_opened_total": ("counter", (), "Upstream sockets opened."),
    "upwire_connections_reused_total": ("counter", (), "Turns that were given an open socket."),
    "upwire_connections_closed_total": ("counter", ("reason",), "Upstream sockets closed, by why."),
    "upwire_connections_refused_total": (
        "counter",
        ("reason",),
        "Upstream sockets that could not be opened, by why.",
    ),
    "upwire_conversations": ("gauge", (), "Responses that may be continued."),
    "upwire_conversations_evicted_total": ("counter", (), "Responses dropped for lack of room or use."),
    "upwire_conversation_items": ("gauge", (), "Items remembered by their digests."),
    "upwire_conversation_bytes": ("gauge", (), "Memory that remembered conversations take, about."),
    "upwire_index_up": (
        "gauge",
        (),
        "1 while the shared index answers, 0 while it does not; nothing without one.",
    ),
    "upwire_index_lookups_total": (
        "counter",
        ("result",),
        "Look-ups in the shared index: hit, miss or error.",
    ),
    "upwire_index_writes_total": (
        "counter",
        ("result",),
        "Responses written to the shared index, or dropped because it took none.",
    ),
    "upwire_pool_wait_seconds": ("histogram", (), "Time that turns waited for a socket, dialling included."),
    "upwire_first_event_seconds": (
        "histogram",
        ("mode",),
        "Time from request read to first event of the upstream.",
    ),
    "upwire_added_latency_seconds": ("histogram", (), "The gateway's own part of the time of a turn."),
    "upwire_upstream_turns_total": ("counter", ("upstream", "mode"), "Turns that ended, by upstream."),
    "upwire_upstream_connections": ("gauge", ("upstream", "state"), "Sockets, by upstream."),
    "upwire_identity_turns_total": (
        "counter",
        ("identity", "mode"),
        "Turns that have ended, by the label that the operator gave to the key; other is all without one.",
    ),
    "upwire_identity_turns_in_flight": (
        "gauge",
        ("identity",),
        "Turns of a label that run now, or whose bodies still arrive.",
    ),
    "upwire_identity_received_bytes_total": (
        "counter",
        ("identity",),
        "Decoded bytes of its request bodies.",
    ),
    "upwire_identity_sent_bytes_total": ("counter", ("identity",), "Bytes sent upstream for these."),
    "upwire_identity_sockets": ("gauge", ("identity",), "Upstream sockets of a label."),
    "upwire_turn_duration_seconds": ("histogram", ("mode",), "Time from request read to end of answer."),
}
"""Every metric of ours: its type, its labels and its meaning."""

SOCKET_STATES = ("busy", "idle", "dialling")


class Metrics:
    """Writes the statistics for a scrape; a collector of the library, registered with it at the first one."""

    def __init__(self, stats: Stats, snapshot: Callable[[], dict[str, Any]]) -> None:
        self._stats = stats
        self._snapshot = snapshot
        self._registry: CollectorRegistry | None = None
        self._label: str | None = None

    @property
    def prepared(self) -> bool:
        """Whether ``prepare`` was called."""
        return self._registry is not None

    def prepare(self) -> None:
        """Import the library, once; takes many milliseconds, and may be done in a thread."""
        from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415

        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        self._registry = registry

    def render(self, label: str | None = None) -> bytes:
        """The text for a scrape, with the numbers of one ``label`` or of all; ``prepare`` comes first."""
        from prometheus_client import generate_latest  # noqa: PLC0415

        assert self._registry is not None  # noqa: S101
        self._label = label
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Nothing, so that registering does not collect."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Every metric with all its series."""
        stats, seen = self._stats, only(self._label, self._snapshot())
        sockets, kept = seen["connections"], seen["conversations"]
        yield _metric("upwire_build_info", {(seen["version"],): 1})
        yield _metric("upwire_uptime_seconds", {(): seen["uptime_seconds"]})
        yield _metric("upwire_turns_total", _turns(stats))
        yield _metric("upwire_turns_in_flight", {(): stats.in_flight})
        yield _metric("upwire_turn_reasons_total", _by(stats.reasons))
        tries = {"first": sum(stats.modes.values()), **stats.recoveries}
        yield _metric("upwire_tries_total", _by(tries))
        yield _metric("upwire_received_bytes_total", {(): stats.client_in})
        yield _metric("upwire_sent_bytes_total", {(): stats.upstream_out})
        yield _metric("upwire_saved_bytes", {(): stats.client_in - stats.upstream_out})
        yield _metric("upwire_connections", _by({state: sockets.get(state, 0) for state in SOCKET_STATES}))
        yield _metric("upwire_connections_opened_total", {(): sockets.get("opened", 0)})
        yield _metric("upwire_connections_reused_total", {(): sockets.get("reused", 0)})
        yield _metric("upwire_connections_closed_total", _by(sockets.get("closed", {})))
        yield _metric("upwire_connections_refused_total", _by(sockets.get("refused", {})))
        yield _metric("upwire_conversations", {(): kept.get("known", 0)})
        yield _metric("upwire_conversations_evicted_total", {(): kept.get("evicted", 0)})
        yield _metric("upwire_conversation_items", {(): kept.get("items", 0)})
        yield _metric("upwire_conversation_bytes", {(): kept.get("bytes", 0)})
        yield from _identities(seen["identities"])
        yield from _upstreams(seen["upstreams"])
        yield from _index(seen["index"])
        yield _histogram("upwire_pool_wait_seconds", {(): stats.waited})
        yield _histogram("upwire_first_event_seconds", {(mode,): stats.first_event[mode] for mode in MODES})
        yield _histogram("upwire_added_latency_seconds", {(): stats.added})
        yield _histogram("upwire_turn_duration_seconds", {(mode,): stats.duration[mode] for mode in MODES})


def only(label: str | None, seen: dict[str, Any]) -> dict[str, Any]:
    """The statistics with the numbers of one ``label`` of the team and no other; of all with None."""
    if label is None:
        return seen
    mine = {name: value for name, value in seen["identities"].items() if name == label}
    return seen | {"identities": mine}


def _identities(seen: dict[str, Any]) -> Iterable[Metric]:
    """What is counted by label; the labels are those of the operator, and there are none unless they were named."""
    name = "upwire_identity_"
    modes: dict[tuple[str, ...], float] = {
        (label, mode): each["turns"][mode] for label, each in seen.items() for mode in MODES
    }
    yield _metric(name + "turns_total", modes)
    yield _metric(name + "turns_in_flight", {(label,): e["turns"]["in_flight"] for label, e in seen.items()})
    yield _metric(
        name + "received_bytes_total", {(label,): e["bytes"]["client_in"] for label, e in seen.items()}
    )
    yield _metric(
        name + "sent_bytes_total", {(label,): e["bytes"]["upstream_out"] for label, e in seen.items()}
    )
    yield _metric(name + "sockets", {(label,): e["sockets"] for label, e in seen.items()})


def _upstreams(seen: dict[str, Any]) -> Iterable[Metric]:
    """What is counted by upstream; the names are those of the operator."""
    turns: dict[tuple[str, ...], float] = {
        (name, mode): each["turns"][mode] for name, each in seen.items() for mode in MODES
    }
    yield _metric("upwire_upstream_turns_total", turns)
    sockets: dict[tuple[str, ...], float] = {
        (name, state): each["connections"][state] for name, each in seen.items() for state in SOCKET_STATES
    }
    yield _metric("upwire_upstream_connections", sockets)


def _index(seen: dict[str, Any]) -> Iterable[Metric]:
    # Without an index there is no series, so that nobody is alarmed by its lack.
    up: dict[tuple[str, ...], float] = {}
    if seen.get("state", "off") != "off":
        up = {(): seen["state"] in {"works", "read_only"}}
    yield _metric("upwire_index_up", up)
    lookups = {"hit": "hits", "miss": "misses", "error": "errors"}
    yield _metric("upwire_index_lookups_total", _by({name: seen.get(lookups[name], 0) for name in lookups}))
    writes = {name: seen.get(name, 0) for name in ("written", "dropped")}
    yield _metric("upwire_index_writes_total", _by(writes))


def _by(counted: dict[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): count for name, count in counted.items()}


def _turns(stats: Stats) -> dict[tuple[str, ...], float]:
    """Every mode and outcome for each model that was seen, so that a rate is never missing its first turn."""
    seen = {model for _, _, model in stats.by_model} | {OTHER}
    return {
        (mode, outcome, model): stats.by_model[mode, outcome, model]
        for model in MODELS
        if model in seen
        for mode in MODES
        for outcome in OUTCOMES
    }


def _metric(name: str, values: dict[tuple[str, ...], float]) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

    kind, labels, text = METRICS[name]
    family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)
    for values_of_labels, value in values.items():
        family.add_metric(values_of_labels, value)
    return family


def _histogram(name: str, histograms: dict[tuple[str, ...], Histogram]) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily  # noqa: PLC0415

    _, labels, text = METRICS[name]
    family = HistogramMetricFamily(name, text, labels=labels)
    for values_of_labels, histogram in histograms.items():
        family.add_metric(values_of_labels, histogram.cumulative(), histogram.total)
    return family
