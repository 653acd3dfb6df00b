"""Faults that others met: turns that run twice, sockets of another key, a storage flag that changes on its way."""

import asyncio
import json

import openai
import pytest

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import answers, body, post_broken, said, scene, user
from tests.gateways import Api, running_gateway
from tests.upstream.raw_peer import raw_peer

# -- B29


@pytest.fixture
def quick_retries(monkeypatch):
    """The SDK's own number of retries, without its pauses."""
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr(openai._base_client, "MAX_RETRY_DELAY", 0.002)


async def with_sdk(run, stream=False, **fields):
    """One call of the SDK with its defaults: what it raised or gave, and how many requests it made."""
    async with openai.AsyncOpenAI(base_url=run.gateway.url, api_key="sk-test") as client:
        try:
            made = await client.responses.create(model="gpt-5", store=False, stream=stream, **fields)
            found = [event async for event in made] if stream else made
        except openai.OpenAIError as failure:
            found = failure
    return found, (await run.until_idle())["turns"]["total"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
@pytest.mark.parametrize("end", [f.Abort(), f.Cut(), f.Close(1011)], ids=["reset", "fin", "1011"])
@pytest.mark.usefixtures("quick_retries")
async def test_b29_a_turn_that_may_have_run_is_run_once_per_request(end, stream):
    """The upstream reads the frame of a new socket and drops it: one execution for each request that the SDK makes."""
    async with scene() as run:
        run.simulator.faults.add(Fault(actions=(f.Silence(0.02), end), times=None))
        failure, requests = await with_sdk(run, stream, input="hello")

        assert isinstance(failure, openai.InternalServerError)
        assert (failure.status_code, failure.code) == (502, "upstream_connection_lost")
        assert requests == 1 + openai.DEFAULT_MAX_RETRIES
        assert len(run.simulator.journal.creates()) == requests


def created_and_completed(text):
    """The two events of a short answer, as frames."""
    response = {
        "id": "resp_" + text,
        "object": "response",
        "model": "gpt-5",
        "output": [{"id": "msg_1", **said(text)}],
    }
    started = {**response, "status": "in_progress", "output": []}
    return (
        json.dumps({"type": "response.created", "sequence_number": 0, "response": started}).encode(),
        json.dumps(
            {
                "type": "response.completed",
                "sequence_number": 1,
                "response": {**response, "status": "completed"},
            }
        ).encode(),
    )


@pytest.mark.parametrize(
    ("pong", "revives", "executions"),
    [(False, True, 3), (False, False, 3), (True, True, 2)],
    ids=["dead", "all dead", "alive"],
)
async def test_b29_a_reused_socket_that_was_dead_is_worth_one_repeat(pong, revives, executions):
    """Without a pong behind the frame it is repeated once and never twice; with one the upstream may have begun."""
    frames = []

    async def play(raw):
        for _ in range(2):
            frames.append(await raw.text())
            if len(frames) != 2 and (revives or len(frames) == 1):
                for event in created_and_completed(f"a{len(frames)}"):
                    raw.write(1, event)
                continue
            if pong:
                opcode, payload = await raw.frame()
                assert opcode == 9
                raw.write(10, payload)
                await asyncio.sleep(0.05)
            raw.reset()
            return
        await raw.ponging()

    async with (
        raw_peer(play) as url,
        running_gateway(url.replace("ws", "http").removesuffix("/responses")) as gateway,
        Api(gateway.url) as api,
    ):
        first = await api.create(body([user("u1")]))
        second = await api.create(body([user("u1"), *first.answer["output"], user("u2")]))
    assert len(frames) == executions
    if pong or not revives:
        assert (second.status, second.answer["error"]["code"]) == (502, "upstream_connection_lost")
    else:
        assert (second.status, second.mode, second.reason) == (200, "full", "connection_lost")
        assert second.answer["output"][0]["content"][0]["text"] == "a3"


@pytest.mark.parametrize(
    "refusal",
    [
        f.SendError(status=400, code="websocket_connection_limit_reached"),
        f.SendError(status=400, code="previous_response_not_found"),
        f.Close(1009),
    ],
    ids=["limit", "not found", "1009"],
)
async def test_b29_what_was_refused_is_tried_again_without_the_client(refusal):
    """A refusal before anything ran costs the client nothing."""
    async with scene(answers([said("a1")], [said("a2")])) as run:
        first = await run.api.create(body([user("u1")]))
        run.simulator.faults.add(Fault(actions=refusal))
        second = await run.api.create(body([user("u1"), *first.answer["output"], user("u2")]))

        assert second.status == 200
        assert second.answer["output"][0]["content"][0]["text"] == "a2"
        assert len(run.simulator.journal.creates()) == 3


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
async def test_b29_nothing_is_repeated_after_the_first_event(stream):
    """A reused socket that is lost after ``response.created`` is not replaced, with or without pongs."""
    async with scene(answers([said("a1")])) as run:
        first = await run.api.create(body([user("u1")]))
        run.simulator.faults.add(Fault(at=f.CREATED, actions=f.Abort()))
        sent = body([user("u1"), *first.answer["output"], user("u2")], stream=stream)
        status, events, broken = await post_broken(run.api, sent) if stream else (0, [], False)
        if stream:
            assert (status, broken, events[-1]["type"]) == (200, True, "response.failed")
        else:
            assert (await run.api.create(sent)).status == 502
        assert len(run.simulator.journal.creates()) == 2


# -- B32


async def test_b32_another_key_or_account_is_another_conversation():
    """Each change of key, organisation, project or other header dials with its own headers, in full and without a foreign id."""
    callers = {
        "T1": {},
        "T2": {"authorization": "Bearer sk-b"},
        "T3": {},
        "T4": {"openai-organization": "org-2"},
        "T5": {"openai-project": "proj-2"},
        "T6": {"openai-beta": "assistants=v9"},
    }
    async with scene(answers(*([said(f"a{n}")] for n in range(6)))) as run:
        history, modes = [user("u1")], []
        for name, headers in callers.items():
            async with Api(run.gateway.url, key="sk-a") as api:
                seen = await api.create(body(history, store=True), headers=headers)
            modes.append(seen.mode)
            if name in ("T1", "T3"):
                history = [*history, *seen.answer["output"], user(f"after {name}")]
            frame = run.frames[-1]
            for header, value in {"authorization": "Bearer sk-a", **headers}.items():
                assert frame.headers[header] == value
            assert not {"openai-organization", "openai-project", "openai-beta"} & (
                frame.headers.keys() - headers.keys()
            )

        assert modes == ["full", "full", "delta", "full", "full", "full"]
        assert [frame.parent is None for frame in run.frames] == [mode == "full" for mode in modes]
        sockets = [frame.connection for frame in run.frames]
        assert sockets[2] == sockets[0]
        assert len(set(sockets)) == 5
        assert run.frames[-1].items == history


# -- B34

ABSENT = object()


@pytest.mark.parametrize("stored", [True, False, ABSENT], ids=["true", "false", "absent"])
@pytest.mark.parametrize("dropped", [False, True], ids=["kept", "dropped"])
@pytest.mark.parametrize("websocket", [True, False], ids=["socket", "http"])
async def test_b34_the_storage_flag_goes_up_as_it_came(websocket, dropped, stored):
    """Every body upstream has the client's own ``store``; without storage no id is used on another socket than its own."""
    fields = {} if stored is ABSENT else {"store": stored}
    options = {"websocket": websocket, "reasoning": False}
    async with scene(options=options) as run:
        history, turns = [user("u0")], []
        for number in range(3):
            sent = {"model": "gpt-5", "input": history, **fields}
            seen = await run.api.create(sent)
            assert seen.status == 200
            upstream = {**run.simulator.response(seen.answer["id"]), "previous_response_id": None}
            assert seen.answer == upstream
            assert seen.answer["store"] is (stored is not False)
            history = [*history, *seen.answer["output"], user(f"u{number + 1}")]
            turns.append(seen)
            if dropped and websocket:
                await run.simulator.close_sockets(1001)
                await run.until_idle()
                await run.simulator.until(lambda _: run.simulator.open_sockets == 0)

        creates = run.simulator.journal.creates()
        assert [create.body.get("store", ABSENT) for create in creates] == [stored] * 3
        assert {create.transport for create in creates} == {"ws" if websocket else "http"}
        home = {create.response_id: create.connection for create in creates}
        for create in creates[1:]:
            if create.parent is not None and stored is False:
                assert home[create.parent] == create.connection
        if websocket:
            chained = not (dropped and stored is False)
            assert [seen.mode for seen in turns] == ["full", *(["delta"] if chained else ["full"]) * 2]
