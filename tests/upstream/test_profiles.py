"""What is known of upstreams before the first turn, and that each kind is served without an error that plain HTTP has not."""

import asyncio
import contextlib
import dataclasses
import io
import json

import pytest

from gateway.simulator import PLAYED, Fault, FunctionScript
from gateway.simulator.faults import SendError, Silence, Stall, after_deltas
from gateway.upstream.profile import PROFILES, profile_of
from tests.faults.scenes import answers, bare, body, held, leave_after, said, user
from tests.gateways import Api, running_gateway, running_simulator


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://api.openai.com.evil.example/v1", "generic"),
        ("https://notapi.openai.com/v1", "generic"),
        ("https://mine.openai.azure.com/openai/v1", "azure"),
        ("https://mine.cognitiveservices.azure.com/openai/v1", "azure"),
        ("https://api.x.ai/v1", "xai"),
        ("https://us-east-1.api.x.ai/v1", "xai"),
        ("https://chatgpt.com/backend-api/codex", "codex"),
        ("http://127.0.0.1:4000/v1", "generic"),
        ("https://ai-gateway.vercel.sh/v1", "generic"),
    ],
)
def test_the_host_decides(url, name):
    """Known hosts have their profile, all others the careful one; a setting overrules the host."""
    assert profile_of(url).name == name
    assert profile_of(url, "xai").name == "xai"


def test_the_generic_profile_is_the_weakest():
    """It trusts an upstream with nothing that another profile does without, so it is right everywhere."""
    generic = PROFILES["generic"]
    for other in PROFILES.values():
        assert generic.reloads <= other.reloads
        assert generic.survives_errors <= other.survives_errors
        assert generic.one_model >= other.one_model
        assert generic.max_frame <= other.max_frame
        assert generic.socket_age <= other.socket_age


@contextlib.asynccontextmanager
async def played(name, *rows, options=None, **settings):
    """The simulated upstream as this kind, or with other ``options``, a gateway with the profile, and a client."""
    async with running_simulator(
        options or PLAYED[name], FunctionScript(answers(*([said(row)] for row in rows)))
    ) as simulator:
        async with (
            running_gateway(simulator.url, profile=name, **settings) as gateway,
            Api(gateway.url) as api,
        ):
            yield simulator, gateway, api


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("name", PLAYED)
async def test_a_conversation_with_an_error_on_the_way(name, stream):
    """Deltas before and after an error of the upstream; in between what it needs in full; the context is always right."""
    async with played(name, "a1", "a2", "a3", "a4") as (simulator, _, api):
        items, modes = [], []
        for n in (1, 2, 3, 4):
            items.append(user(f"u{n}"))
            if n == 3:
                simulator.faults.add(Fault(actions=SendError(status=500)))
                failed = await api.create(body(items, stream=stream))
                assert failed.status == 500
            seen = await api.create(body(items, stream=stream))
            assert seen.status == 200
            modes.append(seen.mode)
            items.append(said(f"a{n}"))
            assert held(simulator, seen) == [bare(item) for item in items]
        closed = {entry.close_code for entry in simulator.journal if entry.closed_by == "server"}
    assert modes == ["full", "delta", "full", "delta"]
    assert closed <= {1000}


@pytest.mark.parametrize("name", PLAYED)
async def test_two_models_in_turns(name):
    """No socket is asked for a model that it does not serve, and the change costs no error."""
    async with played(name, "a1", "a2", "a3", "a4") as (simulator, _, api):
        mine, other, seen = [], [], []
        for n, (items, model) in enumerate([(mine, "gpt-5"), (other, "gpt-5-mini")] * 2, 1):
            items.append(user(f"u{n}"))
            seen.append(await api.create(body(items, model=model)))
            items.append(said(f"a{n}"))
        changed = await api.create(body([*mine, user("u5")], model="gpt-5-mini"))
        codes = {entry.close_code for entry in simulator.journal}
    assert [(one.status, one.mode) for one in seen] == [
        (200, "full"),
        (200, "full"),
        (200, "delta"),
        (200, "delta"),
    ]
    assert (changed.status, changed.mode, changed.reason) == (200, "full", "settings_changed")
    assert 1008 not in codes


@pytest.mark.parametrize("name", PLAYED)
async def test_a_stored_conversation_whose_socket_is_gone(name):
    """It goes on elsewhere as a delta where the upstream can reload it, else in full at once, without asking in vain."""
    async with played(name, "a1", "a2") as (simulator, _, api):
        first = await api.create(body([user("u1")], store=True))
        await simulator.close_sockets(1001)
        await simulator.until(lambda _: not simulator.open_sockets)
        second = await api.create(body([user("u1"), said("a1"), user("u2")], store=True))
        creates = simulator.journal.creates("ws")
    assert (first.mode, second.status) == ("full", 200)
    assert second.mode == ("delta" if PROFILES[name].reloads else "full")
    assert len(creates) == 2


@pytest.mark.parametrize("name", PLAYED)
async def test_a_socket_that_grew_too_old(name):
    """The upstream says so instead of answering; the turn goes in full on a new socket and its client sees an answer."""
    aged = dataclasses.replace(PLAYED[name], max_age=0.2)
    async with played(name, "a1", "a2", "a3", options=aged) as (simulator, _, api):
        items, seen = [], []
        for n in (1, 2, 3):
            if n == 2:
                opened = simulator.journal.opened()[-1].at
                await asyncio.sleep(max(0.0, opened + 0.25 - asyncio.get_running_loop().time()))
            items.append(user(f"u{n}"))
            seen.append(await api.create(body(items)))
            items.append(said(f"a{n}"))
            assert held(simulator, seen[-1]) == [bare(item) for item in items]
    assert [one.status for one in seen] == [200] * 3
    assert [one.mode for one in seen] == ["full", "full", "delta"]


@pytest.mark.parametrize("name", PLAYED)
async def test_a_client_that_leaves_and_asks_again(name):
    """What it left is no part of any context, and the conversation goes on where it stood."""
    async with played(name, "a1", "a lost answer", "a2", "a3") as (simulator, _, api):
        items = [user("u1")]
        assert (await api.create(body(items))).mode == "full"
        items += [said("a1"), user("u2")]
        simulator.faults.add(Fault(at=after_deltas(1), actions=Stall()))
        await leave_after(api, body(items), 1)
        await simulator.until(lambda journal: any(entry.closed_by == "client" for entry in journal.closed()))
        for n in (2, 3):
            seen = await api.create(body(items))
            items.append(said(f"a{n}"))
            assert (seen.status, held(simulator, seen)) == (200, [bare(item) for item in items])
            assert seen.mode == ("full" if n == 2 else "delta")
            items.append(user(f"u{n + 1}"))


@pytest.mark.parametrize("status", [403, 404, 426, 500])
@pytest.mark.parametrize("name", PLAYED)
async def test_without_websocket(name, status):
    """All turns go over plain HTTP, with their context, and the statistics say what was answered."""
    closed = dataclasses.replace(PLAYED[name], websocket=False, upgrade_status=status)
    async with played(name, "a1", "a2", "a3", options=closed) as (simulator, gateway, api):
        items = []
        for n in (1, 2, 3):
            items.append(user(f"u{n}"))
            seen = await api.create(body(items))
            assert (seen.status, seen.mode, seen.reason) == (200, "http", "upgrade_refused")
            items.append(said(f"a{n}"))
            assert held(simulator, seen) == [bare(item) for item in items]
        async with api.session.get(gateway.root + "/stats") as answer:
            told = (await answer.json())["upstream"]
    assert (told["websocket"], told["refusal"]["status"]) == ("refused", status)


@pytest.mark.parametrize("name", PLAYED)
async def test_draining_in_the_middle_of_an_answer(name):
    """The answer that runs is given whole, and its socket is closed behind it."""
    async with played(name, "a1") as (simulator, gateway, api):
        simulator.faults.add(Fault(at=after_deltas(1), actions=Silence(0.3)))
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(api.create(body([user("u1")])))
            await simulator.until(lambda journal: len(journal.creates("ws")) == 1)
            gateway.stop.ask()
        seen = turn.result()
        await simulator.until(lambda _: not simulator.open_sockets)
    assert (seen.status, seen.kinds[-1]) == (200, "response.completed")


@pytest.mark.parametrize("name", PLAYED)
async def test_the_clients_query_and_the_upstreams_reach_both_transports(name):
    """``api-version`` and whatever else stands in a query goes with the upgrade, with plain HTTP and with all else."""
    async with running_simulator(PLAYED[name]) as simulator:
        async with (
            running_gateway(simulator.url + "?api-version=preview", profile=name) as gateway,
            Api(gateway.url) as api,
        ):
            turn = await api.create(body([user("u1")]), path="/responses?mine=1")
            plain = await api.create({**body([user("u1")]), "background": False, "prompt": {"id": "p"}})
            listed = await api.get("/models?after=x")
        paths = [entry.path for entry in simulator.journal if entry.path]
    assert (turn.mode, plain.mode, listed.status) == ("full", "http", 200)
    assert all("api-version=preview" in path for path in paths)
    assert any("mine=1" in path for path in paths) and any("after=x" in path for path in paths)


async def test_a_frame_that_is_too_large_for_some():
    """An upstream of an unknown kind that takes smaller frames says so once; the turn is answered, and the limit is learned."""
    large = user("x" * (4 * 1024 * 1024))
    async with played("generic", "a1", "a2") as (simulator, gateway, api):
        answers = [await api.create(data=io.BytesIO(json.dumps(body([large])).encode())) for _ in range(2)]
        async with api.session.get(gateway.root + "/stats") as answer:
            told = (await answer.json())["upstream"]
        codes = [entry.close_code for entry in simulator.journal.closed()]
    assert [(seen.status, seen.mode, seen.reason) for seen in answers] == [(200, "http", "too_large")] * 2
    assert codes.count(1009) == 1
    assert told["profile"]["name"] == "generic"
    assert told["frame_limit_bytes"] <= 4 * 1024 * 1024 + 1024
    assert (told["socket_age_seconds"], told["frame_limit_learned"]) == (720.0, True)


async def test_the_gateways_own_key_goes_where_azure_reads_it(tmp_path):
    """As ``api-key``, on the socket and over plain HTTP, and the client's own key goes no further."""
    (tmp_path / "key").write_text("azure-secret\n")
    async with played("azure", "a1", upstream_key_file=str(tmp_path / "key")) as (simulator, _, api):
        turn, other = await api.create(body([user("u1")])), await api.get("/models")
        sent = [entry.headers for entry in simulator.journal]
    assert (turn.status, turn.mode, other.status) == (200, "full", 200)
    assert {headers.get("api-key") for headers in sent} == {"azure-secret"}
    assert not [headers for headers in sent if "authorization" in headers]
