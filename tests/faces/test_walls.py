"""Whose conversation is whose: sockets and parents never cross from one caller to another, however alike they talk."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from structlog.testing import capture_logs

from gateway.simulator import Options
from tests.faces.pairs import USER
from tests.faces.raw_client import RawClient
from tests.gateways import Api, running_gateway, running_simulator

PER_REQUEST = [
    "user-agent", "accept", "accept-language", "accept-encoding", "content-language", "x-stainless-retry-count",
    "x-stainless-read-timeout", "x-client-request-id", "x-request-id", "traceparent", "tracestate", "baggage", "sentry-trace",
    "session-id", "session_id", "thread-id", "x-session-id", "x-session-affinity", "x-codex-turn-metadata", "x-codex-window-id",
    "x-upwire-note",
]  # fmt: skip
TELLING = [
    "authorization", "api-key", "x-api-key", "openai-organization", "openai-project", "openai-beta", "chatgpt-account-id",
    "originator", "cookie", "x-custom", "x-stainles", "x-codex",
]  # fmt: skip


async def two_turns(ask):
    """A first turn and the turn that goes on from it; ``ask`` sends a body as the first or the second caller."""
    first = await ask(0, {"model": "gpt-5", "input": [USER]})
    assert first.status == 200
    return await ask(1, {"model": "gpt-5", "input": [USER, *first.answer["output"], USER]})


@pytest.mark.parametrize("name", PER_REQUEST)
async def test_headers_of_one_request_do_not_part_a_conversation(name):
    """A header that belongs to a single request may change from turn to turn: same socket, a delta."""
    async with (
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url) as gateway,
        Api(gateway.url) as api,
    ):

        async def ask(number, body):
            return await api.create(body, headers={name: f"identity;v={number}"})

        second = await two_turns(ask)
        assert second.mode == "delta"
        assert len(upstream.journal.opened()) == 1


async def test_connection_headers_and_automatic_keys_do_not_part_a_conversation():
    """What ends at a connection, headers that ``Connection`` names, and the SDKs' own idempotency keys tell nobody apart."""
    async with (
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url) as gateway,
        Api(gateway.url) as api,
    ):
        sets = [
            {"connection": "keep-alive, x-hop", "x-hop": "1", "keep-alive": "timeout=5", "idempotency-key": "stainless-python-retry-1"},
            {"te": "trailers", "idempotency-key": "stainless-python-retry-2"},
        ]  # fmt: skip

        async def ask(number, body):
            return await api.create(body, headers=sets[number])

        assert (await two_turns(ask)).mode == "delta"
        assert len(upstream.journal.opened()) == 1
        assert (
            not {"x-hop", "keep-alive", "idempotency-key", "te"} & upstream.journal.opened()[0].headers.keys()
        )


@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
@pytest.mark.parametrize("name", TELLING)
async def test_any_other_header_tells_callers_apart(name, store):
    """With another value of it the same history is a new conversation, in full, on a socket of its own that carries the value."""
    async with (
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url) as gateway,
        Api(gateway.url) as api,
    ):

        async def ask(number, body):
            return await api.create({**body, "store": store}, headers={name: f"Bearer sk-{number}"})

        second = await two_turns(ask)
        assert (second.mode, second.reason) == ("full", "new_conversation")
        assert [entry.headers[name] for entry in upstream.journal.opened()] == ["Bearer sk-0", "Bearer sk-1"]
        frames = upstream.journal.creates("ws")
        assert frames[0].connection != frames[1].connection
        assert frames[1].parent is None
        assert len(frames[1].items) > 2


@pytest.mark.parametrize("present", [0, 1])
async def test_a_header_that_is_there_or_not_tells_callers_apart(present):
    """Leaving a telling header out is another caller too."""
    async with (
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url) as gateway,
        Api(gateway.url) as api,
    ):

        async def ask(number, body):
            return await api.create(body, headers={"openai-project": "p"} if number == present else {})

        assert (await two_turns(ask)).reason == "new_conversation"
        assert len(upstream.journal.opened()) == 2


async def test_the_query_tells_callers_apart():
    """Another query is another upstream, as with versions and deployments in it: its own socket, at its own URL."""
    async with (
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url) as gateway,
        Api(gateway.url) as api,
    ):

        async def ask(number, body):
            return await api.create(body, path=f"/responses?api-version={number}")

        assert (await two_turns(ask)).reason == "new_conversation"
        paths = [entry.path for entry in upstream.journal.opened()]
        assert paths == ["/v1/responses?api-version=0", "/v1/responses?api-version=1"]


async def test_the_query_of_the_upstream_setting_goes_along():
    """A query in the base URL is part of every turn, and one caller's turns share one socket under it."""
    async with (
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url + "?api-version=7") as gateway,
        Api(gateway.url) as api,
    ):

        async def ask(_number, body):
            return await api.create(body)

        assert (await two_turns(ask)).mode == "delta"
        assert [entry.path for entry in upstream.journal.opened()] == ["/v1/responses?api-version=7"]


async def test_a_gateway_token_is_asked_for_and_goes_no_further():
    """With a token asked for, nobody without it gets a turn, and the upstream never sees it, over either transport."""
    async with running_simulator(Options(rounds=0)) as upstream, running_gateway(upstream.url, token="open-sesame") as gateway:  # fmt: skip
        async with (
            Api(gateway.url) as stranger,
            Api(gateway.url, **{"x-upwire-token": "open-sesame"}) as friend,
        ):
            assert (await stranger.create({"model": "gpt-5", "input": "x"})).status == 401
            assert (await stranger.get("/models")).status == 401
            assert not len(upstream.journal)

            async def ask(_number, body):
                return await friend.create(body)

            assert (await two_turns(ask)).mode == "delta"
            assert (await friend.create({"model": "gpt-5", "input": "x", "background": True})).mode == "http"
            assert (await friend.get("/models")).status == 200
        assert not [entry for entry in upstream.journal if "open-sesame" in json.dumps(entry.headers)]


@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
async def test_two_keys_alternate_on_one_client_connection(store):
    """Two callers behind one kept-alive connection, with the same words turn by turn, have nothing in common upstream."""
    turns = 5
    async with (
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url) as gateway,
        RawClient(gateway.url) as client,
    ):
        histories = {"sk-one": [USER], "sk-two": [USER]}
        ids = {key: set() for key in histories}
        for number in range(turns):
            for key, history in histories.items():
                request = client.request(
                    "POST", "/responses", {"model": "gpt-5", "store": store, "input": history}
                )
                client.write(request.replace(b"sk-test", key.encode()))
                answer = await client.answer()
                assert answer.value("x-upwire-mode") == ("delta" if number else "full")
                response = json.loads(answer.body)
                ids[key].add(response["id"])
                history += [*response["output"], USER]
        check_walls(upstream, ids)
        assert len(upstream.journal.opened()) == 2


def check_walls(upstream, ids):
    """Every frame went out on a socket that was opened with its own key, and continues a response of that key only."""
    opened = {entry.connection: entry.key for entry in upstream.journal.opened()}
    for frame in upstream.journal.creates("ws"):
        key = opened[frame.connection]
        assert frame.response_id in ids[key]
        assert frame.parent is None or frame.parent in ids[key]


@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
async def test_ten_keys_at_once_with_the_same_words(store):
    """Many callers with identical conversations at the same time: each goes on from its own answers."""
    async with running_simulator(Options(rounds=0)) as upstream, running_gateway(upstream.url) as gateway:
        ids = {}

        async def talk(key):
            async with Api(gateway.url, key=key) as api:
                history, ids[key] = [USER], set()
                for number in range(4):
                    answer = await api.create(
                        {"model": "gpt-5", "store": store, "stream": number % 2 == 0, "input": history}
                    )
                    assert answer.mode == ("delta" if number else "full")
                    ids[key].add(answer.answer["id"])
                    history += [*answer.answer["output"], USER]

        await asyncio.gather(*(talk(f"sk-{number}") for number in range(10)))
        check_walls(upstream, ids)
        assert len(upstream.journal.opened()) == 10


async def test_a_key_cannot_name_the_response_of_another():
    """Naming somebody else's response by its id is refused by the upstream, on a socket of one's own."""
    async with running_simulator(Options(rounds=0)) as upstream, running_gateway(upstream.url) as gateway:
        async with Api(gateway.url, key="sk-one") as one, Api(gateway.url, key="sk-two") as two:
            made = await one.create({"model": "gpt-5", "input": [USER]})
            body = {"model": "gpt-5", "input": [USER], "previous_response_id": made.answer["id"]}
            refused = await two.create(body)
            assert (refused.status, refused.answer["error"]["code"]) == (400, "previous_response_not_found")
            assert [entry.key for entry in upstream.journal.opened()] == ["sk-one", "sk-two"]
            assert (await one.create(body)).status == 200


@contextlib.asynccontextmanager
async def logged():
    """What is logged, as events."""
    with capture_logs() as log:
        yield log


async def test_a_header_that_keeps_changing_goes_over_plain_http():
    """A telling header with a new value on every turn must not open a socket for each; the log names it once, not its values."""
    async with (
        logged() as log,
        running_simulator(Options(rounds=0)) as upstream,
        running_gateway(upstream.url) as gateway,
        Api(gateway.url) as api,
    ):
        modes = []
        for number in range(40):
            answer = await api.create(
                {"model": "gpt-5", "input": [USER]},
                headers={"x-nonce": f"value-{number}", "x-steady": "same"},
            )
            assert answer.status == 200
            modes.append((answer.mode, answer.reason))
        assert modes == [("full", "new_conversation")] * 20 + [("http", "not_upgradable")] * 20
        assert len(upstream.journal.opened()) == 20
        sent = [entry.headers["x-nonce"] for entry in upstream.journal.creates("http")]
        assert sent == [f"value-{number}" for number in range(20, 40)]
    told = [line for line in log if line["event"] == "header_keeps_changing"]
    assert [line["header"] for line in told] == ["x-nonce"]
    assert "value-" not in str(told)
