"""Dashboard and alerts: what they ask for is there, and a real Prometheus that scrapes a real gateway finds it."""

import asyncio
import contextlib
import json
import re
import shutil
import socket

import aiohttp
import pytest

from gateway.admin.metrics import METRICS
from tests.deploy.tools import DEPLOY, debian, run, yaml_documents
from tests.gateways import Api, running_gateway, running_simulator

PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = json.loads((DEPLOY / "grafana" / "upwire.json").read_text())
PANELS = DASHBOARD["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
VARIABLES = {"$instance": ".*", "$__rate_interval": "1m", "$__range": "1m"}
TOKEN = "t" * 32


def filled(query):
    """A query of the dashboard as Grafana sends it."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query
    return query


def names_in(query):
    """The names of metrics that a query asks for, without what a histogram adds to them."""
    names = set(re.findall(r"\b(?:upwire|process)_\w+", re.sub(r'"[^"]*"', "", query)))
    return {re.sub(r"_(bucket|count|sum)$", "", name) if name not in METRICS else name for name in names}


def test_the_dashboard_asks_only_for_what_is_there():
    """Every metric in it is one of ours or of the process; every one of ours that counts something is shown."""
    process = {
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_max_fds",
    }
    asked = set().union(*(names_in(query) for _, query in QUERIES))
    assert asked <= set(METRICS) | process
    # What only counts where it was switched on is left to those who do.
    optional = {
        name for name in METRICS if name.startswith(("upwire_index_", "upwire_identity_", "upwire_upstream_"))
    }
    assert set(METRICS) - asked - optional <= {
        "upwire_uptime_seconds",
        "upwire_saved_bytes",
        "upwire_conversation_items",
    }


def test_the_dashboard_is_laid_out_and_explained():
    """Panels have ids and titles of their own, a meaning, a source that can be chosen, and do not overlap."""
    assert len({panel["id"] for panel in PANELS}) == len({panel["title"] for panel in PANELS}) == len(PANELS)
    taken = set()
    for panel in PANELS:
        assert panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "instance"]
    assert DASHBOARD["uid"] == "upwire"


@pytest.mark.system
def test_the_alerts_are_valid_and_fire_when_they_should():
    """The rules parse, and each fires for what it is about and not for what looks like it."""
    promtool = debian("promtool", "prometheus")
    run(promtool, "check", "rules", "--lint=all", "--lint-fatal", PROMETHEUS / "alerts.yml")
    run(promtool, "check", "config", PROMETHEUS / "prometheus.yml")
    assert "SUCCESS" in run(promtool, "test", "rules", PROMETHEUS / "alerts_test.yml")


@pytest.mark.system
def test_each_alert_is_tested_and_asks_for_what_is_there():
    """No alert is without a test in which it fires, without something to do, or about a metric that does not exist."""
    (read,) = yaml_documents((PROMETHEUS / "alerts.yml").read_text())
    (tests,) = yaml_documents((PROMETHEUS / "alerts_test.yml").read_text())
    fired = {
        case["alertname"]
        for test in tests["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    rules = [rule for group in read["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} == fired
    for rule in rules:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert len(rule["annotations"]["description"]) > 40
        unknown = {name for name in names_in(rule["expr"]) - set(METRICS) if not name.startswith("process_")}
        assert not unknown


@contextlib.asynccontextmanager
async def prometheus(folder, gateway):
    """A Prometheus with the shipped configuration, but another target, the token, and a second between scrapes; gives its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = (PROMETHEUS / "prometheus.yml").read_text()
    (folder / "token").write_text(TOKEN)
    text = text.replace("127.0.0.1:7411", gateway.removeprefix("http://")).replace(": 15s", ": 1s")
    text = re.sub(r"# (authorization:\n *)# (.*)/run/secrets/upwire_token", rf"\1\2{folder / 'token'}", text)
    assert str(folder / "token") in text
    (folder / "prometheus.yml").write_text(text)
    shutil.copy(PROMETHEUS / "alerts.yml", folder)
    with (folder / "log").open("w") as log:
        child = await asyncio.create_subprocess_exec(
            debian("prometheus", "prometheus"), f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        await asyncio.wait_for(child.wait(), 20)


async def ask(client, url, query):
    """The series that a query gives."""
    with contextlib.suppress(aiohttp.ClientConnectionError):
        async with client.get(url + "/api/v1/query", params={"query": query}) as answer:
            read = await answer.json(content_type=None) if answer.status < 500 else {"status": "starting"}
            if read["status"] == "success":
                return read["data"]["result"]
            assert answer.status != 400, read
    return []


@pytest.mark.system
async def test_a_real_prometheus_finds_everything(tmp_path):
    """It scrapes a gateway with a token; every query of the dashboard then has an answer, and every alert can be evaluated."""
    debian("prometheus", "prometheus")
    body = {"model": "gpt-5", "store": False, "input": "words 2"}
    async with (
        running_simulator() as simulator,
        running_gateway(simulator.url, token=TOKEN) as gateway,
        Api(gateway.url, **{"x-upwire-token": TOKEN}) as api,
        prometheus(tmp_path, gateway.root) as url,
        aiohttp.ClientSession() as client,
    ):
        async with asyncio.timeout(60):
            while not await ask(client, url, "upwire_turns_in_flight"):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.2)
            for mode in ({}, {"x-upwire-mode": "http"}):
                assert (await api.create(body, headers=mode)).status == 200
            missing = QUERIES
            while missing:
                await asyncio.sleep(0.5)
                # What is only there when something happens may give nothing.
                found = {query: await ask(client, url, filled(query)) for _, query in missing}
                missing = [
                    (title, query) for title, query in missing if not found[query] and "> 0" not in query
                ]
        async with client.get(url + "/api/v1/rules") as answer:
            rules = [rule for group in (await answer.json())["data"]["groups"] for rule in group["rules"]]
        assert len(rules) == len((PROMETHEUS / "alerts.yml").read_text().split("- alert:")) - 1
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
        assert not [rule["name"] for rule in rules if rule["state"] == "firing"]
