"""What commands and ways out say of several upstreams: each by its name, and nothing that is secret."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aiohttp
import pytest

from gateway.cli.check import KEY_VARIABLE, rows
from gateway.cli.config import as_toml
from gateway.cli.live import view
from gateway.cli.stats import table
from gateway.config import load
from gateway.server.reload import reloaded
from gateway.settings import Settings, UpstreamEntry
from gateway.simulator import Options
from gateway.stats import TurnRecord
from gateway.traces import open_traces
from gateway.upstream.entries import all_entries
from tests.gateways import Api, running_simulator
from tests.upstreams_several.worlds import PATH, USER, converse, two_upstreams
from tests.walls.canaries import canary, found_in, watched

README = Path(__file__).parents[2] / "README.md"


async def checked(config, **given):
    """The rows of ``upwire check``."""
    return [
        row
        async for row in rows(str(config), {"port": 0, "dial_timeout": 5.0, **given}, live=False, model="")
    ]


def tables(tmp_path, **upstreams):
    """A file with these tables."""
    file = tmp_path / "upwire.toml"
    file.write_text(
        "\n".join(
            line
            for name, values in upstreams.items()
            for line in (
                f"[upstreams.{name}]",
                *(f"{key} = {json.dumps(value)}" for key, value in values.items()),
            )
        )
    )
    return file


async def test_check_tries_every_upstream_with_its_own_key(tmp_path, monkeypatch):
    """The user's key is the main upstream's and goes nowhere else; what fails is said under the name of its upstream."""
    monkeypatch.setenv(KEY_VARIABLE, "sk-mine")
    monkeypatch.setenv("AZURE", "sk-azure")
    azure = Options(keys=frozenset({"sk-azure"}), api_key_header=True)
    async with (
        running_simulator(Options(keys=frozenset({"sk-mine"}))) as main,
        running_simulator(azure) as second,
        running_simulator(Options(websocket=False)) as third,
    ):
        file = tables(
            tmp_path,
            azure={
                "path": "/azure",
                "url": second.url + "?key=secret",
                "key_env": "AZURE",
                "profile": "azure",
            },
            plain={"path": "/plain", "url": third.url},
            gone={"path": "/gone", "url": "http://no-such-host.invalid/v1"},
        )
        found = await checked(file, upstream=main.url)
        by_upstream = {}
        for row in found:
            by_upstream.setdefault(row.upstream, []).append((row.name, row.verdict))
        steps = ["proxy", "DNS", "TCP", "TLS"]
        assert by_upstream[""][2:] == [(name, "ok") for name in (*steps, "upgrade", "key")]
        assert by_upstream["azure"] == [(name, "ok") for name in ("upstream", *steps, "upgrade", "key")]
        assert by_upstream["plain"][-2:] == [("upgrade", "warning"), ("key", "warning")]
        assert by_upstream["gone"][-1] == ("DNS", "failed")
        heads = [row.seen for row in found if row.name == "upstream"]
        assert heads[0] == f"azure, /azure -> {second.url}?..., profile azure"
        assert "secret" not in str(found) and "sk-" not in str(found)
        for upstream in (second, third):
            assert "sk-mine" not in json.dumps([entry.headers for entry in upstream.journal])
        assert {entry.headers.get("api-key") for entry in second.journal if entry.headers} == {"sk-azure"}


async def test_check_names_the_key_that_is_not_there(tmp_path):
    """The setting and its table are named."""
    file = tables(tmp_path, a={"path": "/a", "url": "http://h", "key_file": str(tmp_path / "none")})
    (row,) = await checked(file)
    assert (row.name, row.verdict) == ("config", "failed")
    assert "key_file of upstreams.a" in row.seen


async def test_statistics_for_people_have_a_line_for_each():
    """Only where there are several."""
    async with two_upstreams(second=Options(websocket=False)) as world:
        async with world.api() as one, world.api(second=True) as two:
            await converse(one)
            await converse(two, 1)
        found = await world.stats()
        told = table(found)
        assert re.search(
            r"upstreams:\nmain +2 turns +50% delta, .*, /v1 -> http://\S+, WebSocket works\n", told
        )
        assert re.search(r"\nsecond +1 turns .* WebSocket refused \(status 426\)", told)
        alone = found | {"upstreams": {"main": found["upstreams"]["main"]}}
        assert "upstreams:" not in table(alone)
        assert len(view(found, found).renderables) == len(view(alone, alone).renderables) + 2


async def test_a_path_that_is_nobodys_is_answered_with_those_that_are():
    """Whoever mistyped it finds the right one."""
    async with two_upstreams() as world, aiohttp.ClientSession() as session:
        async with session.get(world.gateway.root + "/secnod/v1/models") as answer:
            error = (await answer.json())["error"]
        assert (
            error["message"]
            == f"Nothing is here; this gateway serves the API under /v1 and other APIs under {PATH}."
        )


def test_a_reload_says_that_upstreams_take_a_restart():
    """Nothing of them changes in a running gateway but their keys."""
    entry = UpstreamEntry(name="a", path="/a", url="http://h")
    found = reloaded(Settings(), Settings(upstreams=(entry,), route=("/b=http://h",)))
    assert found.settings == Settings()
    assert set(found.need_restart) == {"route", "upstreams"}


def test_the_settings_are_printed_without_secrets_and_read_again_with_them(tmp_path):
    """A query and the value of a header may be one."""
    file = tmp_path / "upwire.toml"
    file.write_text(
        'route = ["/b=http://h/v1?key=sEcr3t"]\n'
        '[upstreams.a]\npath = "/a"\nurl = "http://h/v1?key=sEcr3t"\nkey_env = "MINE"\n'
        '[upstreams.a.headers]\n"x-a!" = \'sEcr3t "quoted"\'\n'
    )
    loaded = load({}, {}, config=str(file))
    shown = as_toml(loaded)
    assert "sEcr3t" not in shown
    assert (
        '# upstreams = {"a" = {"path" = "/a", "url" = "http://h/v1?...", "headers" = {"x-a!" = "..."}'
        in shown
    )
    again = tmp_path / "again.toml"
    again.write_text(as_toml(loaded, reveal=True))
    assert load({}, {}, config=str(again)).settings == loaded.settings


def test_the_example_of_the_documentation_is_a_configuration(tmp_path):
    """It can be copied."""
    (block,) = re.findall(r"(?ms)^```toml\n(\[upstreams\..*?)^```$", README.read_text())
    (tmp_path / "upwire.toml").write_text(block)
    _, azure = all_entries(load({}, {}, config=str(tmp_path / "upwire.toml")).settings)
    assert (azure.name, azure.path, azure.headers) == ("azure", "/azure/openai/v1", (("x-team", "tools"),))


def test_a_span_has_the_address_of_its_upstream():
    """And its name, unless it is the main one."""
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason="needs the extra otel")
    memory = pytest.importorskip(
        "opentelemetry.sdk.trace.export.in_memory_span_exporter"
    ).InMemorySpanExporter()
    traces = open_traces(
        "https://one.example/v1",
        export.SimpleSpanProcessor(memory),
        further={"second": "http://two.example:81/v1?key=x"},
    )
    for name in ("main", "second"):
        traces.turn(
            TurnRecord(
                mode="full", reason="new_conversation", outcome="ok", status=200, client_in=1, upstream_out=1, first_event=None,
                added=None, total=1.0, recoveries=(), model="gpt-5", upstream=name,
            )
        )  # fmt: skip
    told = [dict(span.attributes) for span in memory.get_finished_spans()]
    assert [(each["server.address"], each["server.port"], each.get("upwire.upstream")) for each in told] == [
        ("one.example", 443, None),
        ("two.example", 81, "second"),
    ]


async def test_no_way_out_has_a_key_or_a_header_of_an_upstream(tmp_path):
    """The process at its most talkative: output, statistics, metrics, files; with an upstream that works and one that does not."""
    key = tmp_path / "key"
    key.write_text(canary("injected"))
    async with running_simulator(Options(rounds=0)) as main, running_simulator(Options(rounds=0)) as other:
        file = tmp_path / "upwire.toml"
        file.write_text(
            f'[upstreams.second]\npath = "{PATH}"\nurl = "{other.url}?key={canary("querykey")}"\nkey_file = "{key}"\n'
            f'[upstreams.second.headers]\nx-own = "{canary("header")}"\n'
            f'[upstreams.gone]\npath = "/gone"\nurl = "http://127.0.0.1:9/v1?key={canary("querykey")}"\nkey_file = "{key}"\n'
        )
        async with watched(tmp_path / "home", "--upstream", main.url, "--config", str(file)) as process:
            out = []
            for path in ("/v1", PATH, "/gone/v1"):
                async with Api(process.url + path, canary("key")) as api:
                    for body in (
                        {"input": [USER]},
                        {"input": [USER], "stream": True},
                        {"input": "x", "background": True},
                    ):
                        answer = await api.create({"model": "gpt-5", **body})
                        out += [str(answer.headers), answer.raw.decode() if path == "/gone/v1" else ""]
                    out.append(str((await api.get("/models")).headers))
            key.write_text("not usable " + canary("injected"))
            async with Api(process.url + PATH) as api:
                assert (await api.get("/models")).status == 200
                for place in ("stats", "metrics", "dashboard"):
                    async with api.session.get(f"{process.url}/{place}") as answer:
                        out.append(await answer.text())
            process.child.terminate()
            code, *said = await process.ended(20)
            assert code == 0
            assert "upstream_key_unusable" in said[1]
            written = list(process.files())
        assert canary("injected") in json.dumps([entry.headers for entry in other.journal])
        for text in (*out, *said, *process.lines, *written):
            assert not found_in(text)
