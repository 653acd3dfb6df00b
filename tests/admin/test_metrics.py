"""``/metrics``: its series are a closed set, whatever is sent."""

import asyncio
import itertools
import os
import random
import shutil
import subprocess
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.admin import METRICS, Metrics
from gateway.simulator import Options
from gateway.stats import MODELS, Stats, TurnRecord
from tests.gateways import Api, running_gateway, running_simulator

BODY = {"model": "gpt-5", "input": [{"role": "user", "content": "hello"}], "store": False}


def turn(**change):
    """A turn, with changes."""
    values = {
        "mode": "full", "reason": "new_conversation", "outcome": "ok", "status": 200, "client_in": 10, "upstream_out": 12,
        "first_event": 0.25, "added": 0.002, "total": 0.5, "recoveries": (), "model": "gpt-5", "waited": 0.01,
    }  # fmt: skip
    return TurnRecord(**(values | change))


def text_of(stats):
    """The metrics of these statistics alone."""
    snapshot = stats.snapshot(connections={}, conversations={}, uptime=1, version="1.2.3")
    metrics = Metrics(stats, lambda: snapshot)
    metrics.prepare()
    return metrics.render().decode()


def series_of(text):
    """Every series: its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text, name, **labels):
    """The value of one series."""
    (found,) = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return found


def test_what_one_turn_adds():
    """A turn is counted once under its mode, outcome, model and reason, with its bytes, tries and times."""
    stats = Stats()
    for record in (
        turn(),
        turn(mode="delta", reason=None, upstream_out=4, recoveries=("replay", "full_resend")),
    ):
        stats.begin()
        stats.end(record)
    stats.begin()
    text = text_of(stats)
    assert value(text, "upwire_build_info", version="1.2.3") == 1
    assert value(text, "upwire_turns_total", mode="delta", outcome="ok", model="gpt-5") == 1
    assert value(text, "upwire_turns_total", mode="http", outcome="failed", model="gpt-5") == 0
    assert value(text, "upwire_turn_reasons_total", reason="new_conversation") == 1
    assert value(text, "upwire_turns_in_flight") == 1
    assert value(text, "upwire_received_bytes_total") == 20
    assert value(text, "upwire_sent_bytes_total") == 16
    assert value(text, "upwire_saved_bytes") == 4
    assert value(text, "upwire_tries_total", kind="first") == 2
    assert value(text, "upwire_tries_total", kind="replay") == 1
    assert value(text, "upwire_turn_duration_seconds_sum", mode="full") == 0.5
    assert value(text, "upwire_turn_duration_seconds_bucket", mode="full", le="0.25") == 0
    assert value(text, "upwire_turn_duration_seconds_bucket", mode="full", le="0.5") == 1
    assert value(text, "upwire_first_event_seconds_count", mode="delta") == 1
    assert value(text, "upwire_added_latency_seconds_bucket", le="0.0025") == 2
    assert value(text, "upwire_pool_wait_seconds_bucket", le="0.005") == 0


def test_every_metric_is_listed_and_every_listed_one_is_there():
    """The list that the documentation is made from is what is served."""
    families = {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text_of(Stats()))
        if family.name.startswith("upwire_")
    }
    assert set(families) == set(METRICS)
    for name, (kind, labels, text) in METRICS.items():
        assert (families[name].type, families[name].documentation) == (kind, text)
        for sample in families[name].samples:
            assert set(sample.labels) - {"le"} == set(labels)


def test_b70_labels_of_turns_are_bounded_by_the_code():
    """Ten thousand model names in every mode and outcome add no series beyond the known families, and no long label."""
    stats = Stats()
    rng = random.Random(70)
    for number, (mode, outcome) in zip(
        range(10_000),
        itertools.cycle(itertools.product(("delta", "full", "http"), ("ok", "failed", "cancelled"))),
    ):
        known = rng.choice(MODELS)
        model = rng.choice([known, f"{known}-{number}", f"odd model {number}", f"x/{number}", "é" * 300])
        stats.begin()
        stats.end(turn(mode=mode, reason=None, outcome=outcome, model=model))
    text = text_of(stats)
    models = {dict(labels)["model"] for name, labels in series_of(text) if name == "upwire_turns_total"}
    assert models <= set(MODELS)
    assert sum(name == "upwire_turns_total" for name, _ in series_of(text)) <= 9 * len(MODELS)
    assert len(text) < 100_000
    assert all(len(label) <= 40 for _, labels in series_of(text) for _, label in labels)


@pytest.mark.parametrize(
    "many", [600, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
async def test_b70_odd_clients_add_no_series(many):
    """Very many unknown paths, models, conversations and a hundred keys leave the set of series as after the first ten."""
    options = Options(words=0)
    async with (
        running_simulator(options) as simulator,
        running_gateway(simulator.url, sockets=8, socket_wait=0.01, log_level="error") as gateway,
        aiohttp.ClientSession() as session,
    ):

        async def scrape():
            async with session.get(gateway.root + "/metrics") as answer:
                assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
                return await answer.text()

        async def odd(number):
            headers = {
                "authorization": f"Bearer sk-{number % 100}",
                "x-upwire-mode": "http" if number % 3 else "",
            }
            path = (f"/v1/secret{number}", f"/scan/{number}.php", f"/stats/{number}")[number % 3]
            async with session.get(gateway.root + path, headers=headers) as answer:
                await answer.read()
            body = BODY | {"model": f"odd-{number}", "input": [{"role": "user", "content": f"c{number}"}]}
            async with session.post(gateway.url + "/responses", json=body, headers=headers) as answer:
                await answer.read()

        for number in range(10):
            await odd(number)
        before = series_of(await scrape())
        limit = asyncio.Semaphore(8)

        async def bounded(number):
            async with limit:
                await odd(number)

        await asyncio.gather(*(bounded(number) for number in range(10, many)))
        text = await scrape()
        assert series_of(text) == before
        for word in ("odd", "secret", "scan", "sk-", "127.0.0.1"):
            assert word not in text
        assert value(text, "upwire_turns_in_flight") == 0


async def test_a_turn_of_the_product_shows_in_every_metric():
    """A conversation through a real gateway moves turns, bytes, sockets, conversations and all four histograms."""
    async with (
        running_simulator() as simulator,
        running_gateway(simulator.url) as gateway,
        Api(gateway.url) as api,
    ):
        first = await api.create(BODY)
        history = [*BODY["input"], *first.answer["output"], {"role": "user", "content": "more"}]
        assert (await api.create(BODY | {"input": history})).mode == "delta"
        text = (await Api.get(api, "/../metrics")).raw.decode()
    assert value(text, "upwire_turns_total", mode="delta", outcome="ok", model="gpt-5") == 1
    assert value(text, "upwire_connections", state="idle") == 1
    assert value(text, "upwire_connections_opened_total") == 1
    assert value(text, "upwire_connections_reused_total") == 1
    assert value(text, "upwire_conversations") == 2
    assert value(text, "upwire_conversation_items") >= 4
    assert value(text, "upwire_conversation_bytes") > 0
    for name in ("pool_wait", "added_latency"):
        assert value(text, f"upwire_{name}_seconds_count") == 2
    for name in ("first_event", "turn_duration"):
        assert value(text, f"upwire_{name}_seconds_count", mode="delta") == 1
    assert "process_resident_memory_bytes" in text


@pytest.fixture(scope="session")
def promtool(tmp_path_factory):
    """The checker of Prometheus itself: installed, or taken out of Debian's package where CI asks for it."""
    if (found := shutil.which("promtool")) is not None:
        return found
    if os.environ.get("CI") != "true":
        pytest.skip("needs promtool, from Debian's package prometheus")
    place = tmp_path_factory.mktemp("prometheus")
    # Unpacked, not installed: the package would start a server.
    for command in (["apt-get", "update", "-qq"], ["apt-get", "download", "-qq", "prometheus"]):
        subprocess.run(command, check=True, cwd=place, timeout=100, stdout=subprocess.DEVNULL)
    (package,) = place.glob("prometheus_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, place], check=True, timeout=60)
    return str(place / "usr" / "bin" / "promtool")


@pytest.mark.system
@pytest.mark.timeout(240)
def test_promtool_finds_nothing_wrong(promtool):
    """Prometheus's own checker accepts the text, and every name and unit in it."""
    stats = Stats()
    stats.begin()
    stats.end(turn())
    done = subprocess.run(
        [promtool, "check", "metrics"],
        check=False,
        input=text_of(stats),
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert Path(promtool).exists()
