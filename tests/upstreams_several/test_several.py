"""One gateway before several upstreams: each has its own requests, headers, keys and lessons, and no one those of another."""

from __future__ import annotations

import json

import aiohttp
import pytest
from structlog.testing import capture_logs

from gateway.simulator import Options
from tests.gateways import Api, running_gateway, running_simulator, seen
from tests.serving import serving
from tests.upstreams_several.worlds import PATH, USER, converse, two_upstreams

SECRET = "canary-of-the-second"


async def test_each_path_leads_to_its_upstream():
    """Turns over sockets, turns over plain HTTP and everything else, and nothing of one reaches the other."""
    async with two_upstreams() as world, world.api("sk-a") as one, world.api("sk-a", second=True) as two:
        assert (await converse(one))[0] == ["full", "delta"]
        assert not world.second.journal
        assert (await converse(two, 3))[0] == ["full", "delta", "delta"]
        assert len(world.main.journal.creates()) == 2
        assert len(world.second.journal.creates("ws")) == 3
        before = len(world.main.journal)
        plain = await two.create({"model": "gpt-5", "input": "x", "background": True})
        assert (plain.status, plain.mode) == (200, "http")
        assert (await two.get("/models")).status == 200
        assert (await two.get("/files/none/content")).status == 404
        assert (await two.get("/models?x=1")).status == 200
        assert world.second.journal[-1].path == "/v1/models?x=1"
        assert len(world.main.journal) == before
        told = (await world.stats())["upstreams"]
        assert [(name, each["path"]) for name, each in told.items()] == [("main", "/v1"), ("second", PATH)]
        assert told["main"]["turns"] == {
            "total": 2,
            "delta": 1,
            "full": 1,
            "http": 0,
            "failed": 0,
            "cancelled": 0,
        }
        assert told["second"]["turns"] == {
            "total": 4,
            "delta": 2,
            "full": 1,
            "http": 1,
            "failed": 0,
            "cancelled": 0,
        }
        assert [each["connections"]["open"] for each in told.values()] == [1, 1]


@pytest.mark.parametrize("store", [True, False])
async def test_one_key_at_two_upstreams_is_two_identities(store):
    """The very same history is new to the other upstream, and no socket is shared."""
    async with two_upstreams() as world, world.api() as one, world.api(second=True) as two:
        _, history = await converse(one, store=store)
        again = await two.create({"model": "gpt-5", "input": [*history, USER], "store": store})
        assert (again.status, again.mode, again.reason) == (200, "full", "new_conversation")
        assert [create.parent for create in world.second.journal.creates()] == [None]
        more = await one.create({"model": "gpt-5", "input": [*history, USER], "store": store})
        assert more.mode == "delta"
        assert (len(world.main.journal.opened()), len(world.second.journal.opened())) == (1, 1)


async def test_two_names_for_one_url_are_two_upstreams():
    """The operator tells them apart, perhaps by a header that counts for nothing in an identity."""
    async with running_simulator(Options(rounds=0)) as upstream:
        routes = (f"/a={upstream.url}", f"/b={upstream.url}")
        async with running_gateway(upstream.url, route=routes) as gateway:
            paths = (gateway.url, gateway.root + "/a", gateway.root + "/b/v1")
            history = [USER]
            for path in paths:
                async with Api(path) as api:
                    answer = await api.create({"model": "gpt-5", "input": history})
                    assert (answer.mode, answer.reason) == ("full", "new_conversation")
                    history = [*history, *answer.answer["output"], USER]
            assert len(upstream.journal.opened()) == len(paths)


async def test_deleting_at_one_upstream_forgets_nothing_of_another():
    """The same id at another upstream is another response."""
    async with two_upstreams() as world, world.api() as one, world.api(second=True) as two:
        _, history = await converse(one, 1)
        _, other = await converse(two, 1)
        response = world.second.journal.creates()[-1].response_id
        for api, path in ((one, one.url), (two, two.url)):
            async with api.session.delete(f"{path}/responses/{response}", headers=api.headers) as answer:
                assert answer.status == (404 if api is one else 200)
        assert (await one.create({"model": "gpt-5", "input": [*history, USER]})).mode == "delta"
        assert (await two.create({"model": "gpt-5", "input": [*other, USER]})).mode == "full"


def headers_seen(upstream, name):
    """What stood in a header wherever the upstream saw headers: upgrades and plain requests."""
    return {entry.headers.get(name) for entry in upstream.journal if entry.headers}


@pytest.mark.parametrize("place", ["key_file", "key_env"])
async def test_headers_and_the_key_go_to_their_upstream_only(place, tmp_path, monkeypatch):
    """Over sockets, over plain HTTP and on every other path, in place of the client's own, which cannot take them away."""
    (tmp_path / "key").write_text(SECRET + "\n")
    monkeypatch.setenv("SOME_KEY", SECRET)
    entry = {
        place: str(tmp_path / "key") if place == "key_file" else "SOME_KEY",
        "headers": (("X-Team", "tools"), ("user-agent", "ours")),
    }
    strict = Options(rounds=0, keys=frozenset({SECRET}))
    async with two_upstreams(second=strict, entry=entry) as world:
        clients = [
            {
                "x-team": "mine",
                "connection": "x-team, authorization, keep-alive",
                "authorization": "Bearer sk-client",
            },
            {"api-key": "sk-client", "x-api-key": "sk-client"},
            {},
        ]
        for headers in clients:
            async with world.api(second=True) as api:
                api.headers = headers
                assert (await converse(api))[0] == ["full", "delta"]
                assert (await api.create({"model": "gpt-5", "input": "x", "background": True})).mode == "http"
                assert (await api.get("/models")).status == 200
        assert headers_seen(world.second, "authorization") == {f"Bearer {SECRET}"}
        assert headers_seen(world.second, "x-team") == {"tools"}
        assert headers_seen(world.second, "user-agent") == {"ours"}
        assert "sk-client" not in json.dumps([entry.headers for entry in world.second.journal])
        async with world.api("sk-client", **{"x-team": "mine"}) as api:
            await converse(api)
            await api.get("/models")
        assert headers_seen(world.main, "authorization") == {"Bearer sk-client"}
        assert headers_seen(world.main, "x-team") == {"mine"}
        assert SECRET not in json.dumps(await world.stats())


async def test_a_key_stands_where_its_kind_of_upstream_expects_it(monkeypatch):
    """Azure's has a header of its own."""
    monkeypatch.setenv("SOME_KEY", SECRET)
    azure = Options(rounds=0, keys=frozenset({SECRET}), api_key_header=True)
    async with two_upstreams(second=azure, entry={"key_env": "SOME_KEY", "profile": "azure"}) as world:
        async with world.api(second=True) as api:
            assert (await converse(api))[0] == ["full", "delta"]
        assert headers_seen(world.second, "api-key") == {SECRET}
        assert headers_seen(world.second, "authorization") == {None}


async def test_the_token_is_the_key_only_where_the_gateway_has_one(monkeypatch):
    """Elsewhere the token must stand in its own header, and is never passed on."""
    monkeypatch.setenv("SOME_KEY", SECRET)
    token = "t" * 32
    async with two_upstreams(entry={"key_env": "SOME_KEY"}, token=token) as world:
        async with world.api(token, second=True) as api:
            assert (await converse(api))[0] == ["full", "delta"]
        async with world.api(token) as api:
            refused = await api.create({"model": "gpt-5", "input": [USER]})
            assert (refused.status, refused.answer["error"]["code"]) == (401, "invalid_gateway_token")
        async with world.api(token, **{"x-upwire-token": token}) as api:
            refused = await api.create({"model": "gpt-5", "input": [USER]})
            assert (refused.status, refused.answer["error"]["code"]) == (401, "gateway_token_as_key")
        async with world.api("sk-other", second=True) as api:
            assert (await api.create({"model": "gpt-5", "input": [USER]})).status == 401
        assert not world.main.journal
        told = [entry.headers for entry in world.second.journal]
        assert token not in json.dumps(told)


async def test_clients_with_keys_of_their_own_stay_apart_behind_one_key(monkeypatch):
    """What a client presents is for the gateway, and still tells one from another."""
    monkeypatch.setenv("SOME_KEY", SECRET)
    async with two_upstreams(entry={"key_env": "SOME_KEY"}) as world:
        async with world.api("sk-one", second=True) as one, world.api("sk-two", second=True) as two:
            _, history = await converse(one)
            other = await two.create({"model": "gpt-5", "input": [*history, USER]})
            assert (other.mode, other.reason) == ("full", "new_conversation")


async def test_what_one_upstream_teaches_counts_for_itself():
    """One that takes no WebSocket, and one with another kind: the other one goes on as before."""
    deaf = Options(rounds=0, websocket=False)
    async with two_upstreams(second=deaf, entry={"profile": "xai"}) as world:
        async with world.api(second=True) as two, world.api() as one:
            assert (await converse(two))[0] == ["http", "http"]
            assert (await converse(one))[0] == ["full", "delta"]
        told = await world.stats()
        main, second = told["upstreams"]["main"], told["upstreams"]["second"]
        assert (main["websocket"], second["websocket"]) == ("works", "refused")
        assert second["refusal"] == {"status": 426, "reason": "status"}
        assert (main["profile"], second["profile"]) == ("openai", "xai")
        assert (main["socket_age_seconds"], second["socket_age_seconds"]) == (3300.0, 1200.0)
        assert {name: told["upstream"][name] for name in ("websocket", "refusal")} == {
            "websocket": "works",
            "refusal": None,
        }


async def test_limits_are_those_of_the_gateway():
    """All upstreams together have so many sockets, not each."""
    async with two_upstreams(sockets=1, sockets_per_identity=1) as world:
        async with world.api() as one, world.api(second=True) as two:
            for _ in range(2):
                assert (await converse(one, 1))[0] == ["full"]
                assert (await converse(two, 1))[0] == ["full"]
        told = await world.stats()
        assert told["connections"]["open"] == 1
        assert told["connections"]["closed"]["evicted"] == 3


async def test_the_log_names_the_upstream_and_no_key(monkeypatch):
    """Of the main one nothing is said, as before."""
    monkeypatch.setenv("SOME_KEY", SECRET)
    with capture_logs() as logged:
        async with two_upstreams(entry={"key_env": "SOME_KEY"}) as world:
            async with world.api() as one, world.api(second=True) as two:
                await converse(one, 1)
                await converse(two, 1)
    turns = [line for line in logged if line["event"] == "turn"]
    assert [line.get("upstream") for line in turns] == [None, "second"]
    opened = [line for line in logged if line["event"] == "socket_opened"]
    assert [line.get("upstream") for line in opened] == [None, "second"]
    assert SECRET not in json.dumps(logged)


async def test_metrics_by_upstream():
    """Turns and sockets under the operator's names."""
    async with two_upstreams() as world:
        async with world.api(second=True) as two:
            await converse(two)
            async with two.session.get(world.gateway.root + "/metrics") as answer:
                text = await answer.text()
        assert 'upwire_upstream_turns_total{mode="delta",upstream="second"} 1.0' in text
        assert 'upwire_upstream_turns_total{mode="delta",upstream="main"} 0.0' in text
        assert 'upwire_upstream_connections{state="idle",upstream="second"} 1.0' in text


async def test_pages_of_other_sites_get_nothing_from_any_path():
    """What guards the API guards all of it."""
    async with two_upstreams() as world, aiohttp.ClientSession() as session:
        for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
            async with session.get(world.gateway.root + PATH + "/models", headers=headers) as answer:
                assert answer.status == 403
        async with session.get(world.gateway.root + "/second/v10/models") as answer:
            assert (await seen(answer)).answer["error"]["code"] == "not_found"
        assert not world.second.journal


async def test_the_command_takes_them_and_says_where_each_goes(tmp_path):
    """From the file and from flags; the query of a URL is not printed."""
    (tmp_path / "key").write_text(SECRET)
    async with running_simulator(Options(rounds=0)) as main, running_simulator(Options(rounds=0)) as other:
        file = tmp_path / "upwire.toml"
        file.write_text(
            f'[upstreams.azure]\npath = "/azure/openai/v1"\nurl = "{other.url}?key={SECRET}"\nkey_file = "{tmp_path / "key"}"\n'
        )
        options = ("--upstream", main.url, "--config", str(file), "--route", f"/b={other.url}")
        async with serving(*options) as process:
            assert f"upstream {main.url}" in process.lines
            assert (
                f"upstream /azure/openai/v1 -> {other.url}?..., key from {tmp_path / 'key'}" in process.lines
            )
            assert f"upstream /b -> {other.url}" in process.lines
            async with Api(process.url + "/azure/openai/v1") as api:
                assert (await api.create({"model": "gpt-5", "input": [USER]})).mode == "full"
            process.child.terminate()
            code, out, err = await process.ended(10)
            assert code == 0
            assert SECRET not in out + err + "".join(process.lines)
        assert other.journal.opened()[0].path.endswith(f"?key={SECRET}")
