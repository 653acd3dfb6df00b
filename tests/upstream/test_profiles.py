"""What is known of upstreams before the first turn, and that each kind is served without an error that plain HTTP has not."""

import contextlib
import io
import json

import pytest

from gateway.simulator import PLAYED, Fault, FunctionScript
from gateway.simulator.faults import SendError
from gateway.upstream.profile import PROFILES, profile_of
from tests.faults.scenes import answers, bare, body, held, said, user
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
async def played(name, *rows, **settings):
    """The simulated upstream as this kind, a gateway with the profile, and a client."""
    async with running_simulator(
        PLAYED[name], FunctionScript(answers(*([said(row)] for row in rows)))
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
