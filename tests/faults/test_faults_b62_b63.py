"""Faults that others met: two turns on one lane, parents that a failed turn evicts, answers cut by a shutdown."""

import asyncio
import contextlib
import json
import signal
import sys
import time

import pytest

from gateway.simulator import Fault, Options
from gateway.simulator import faults as f
from gateway.turn import attempt
from tests.faults.scenes import body, finished, read_broken, scene, user
from tests.gateways import Api, running_simulator

# -- B62


@pytest.fixture
def short_trail(monkeypatch):
    """Do not wait long for what may follow an error in mid-stream."""
    monkeypatch.setattr(attempt, "_TRAILING_FAILURE", 0.1)


@pytest.mark.parametrize("lanes", [True, False], ids=["lanes", "no lanes"])
@pytest.mark.parametrize("limit", [32, 3], ids=["room", "crowded"])
async def test_b62_a_busy_lane_is_never_given_a_second_turn(limit, lanes):
    """Twenty turns at once on one conversation, then again: each socket has one at a time, and all are answered."""
    options = {"lanes": lanes, "token_pace": 0.002, "max_running": 1, "reasoning": False}
    async with scene(options=options, sockets_per_identity=limit, socket_wait=0.05) as run:
        first = await run.api.create(body([user("u1")], store=True))
        history = [user("u1"), *finished(first)]
        for again in range(2):
            found = await asyncio.gather(
                *(run.api.create(body([*history, user(f"{again} {n}")], store=True)) for n in range(20))
            )
            assert {seen.status for seen in found} == {200}
            assert {seen.answer["status"] for seen in found} == {"completed"}
        assert run.simulator.journal.overlaps() == []
        assert not [create for create in run.simulator.journal.creates() if create.outcome != "completed"]
        assert all("stream_id" not in frame.body for frame in run.frames)


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
@pytest.mark.parametrize("survives", [True, False], ids=["survives", "closes"])
async def test_b62_after_a_refused_turn_the_next_needs_two_frames_at_most(survives, store):
    """The refusal costs the upstream its memory of the parent; the turn behind it is served all the same."""
    options = {"survives_errors": survives, "any_error_evicts": True, "reasoning": False}
    refusal = f.SendError(status=400, code="invalid_value", kind="invalid_request_error", message="No.")
    async with scene(options=options, survives_errors=survives) as run:
        first = await run.api.create(body([user("u1")], store=store))
        history = [user("u1"), *finished(first)]
        run.simulator.faults.add(Fault(actions=refusal, times=2))
        refused = await run.api.create(body([*history, user("refused")], store=store))
        assert (refused.status, refused.answer["error"]["code"]) == (400, "invalid_value")
        if not store:
            run.simulator.forget(first.answer["id"])
        before = len(run.simulator.journal.creates())

        third = await run.api.create(body([*history, user("u2")], store=store))

        assert (third.status, third.answer["status"]) == (200, "completed")
        assert len(run.simulator.journal.creates()) - before <= 2
        held = run.simulator.context_of(third.answer["id"])
        assert [item.get("content") for item in held if item.get("role") == "user"] == [
            user("u1")["content"],
            user("u2")["content"],
        ]


@pytest.mark.usefixtures("short_trail")
@pytest.mark.parametrize("hit", [1, 3])
@pytest.mark.parametrize("at", [f.RECEIPT, f.CREATED], ids=["first", "later"])
async def test_b62_an_error_without_a_lane_ends_who_it_is_for(at, hit):
    """Of three turns that run, those whose socket brings an error that names no lane end, and the others go on."""
    text = json.dumps(
        {"type": "error", "error": {"type": "server_error", "code": None, "message": "Lost.", "param": None}}
    )
    async with scene(options={"token_pace": 0.005, "lanes": True}) as run:
        run.simulator.faults.add(Fault(at=at, actions=(f.SendText(text), f.EndQuietly()), times=hit))
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            turns = [group.create_task(run.api.create(body([user(f"u{n}")], stream=True))) for n in range(3)]
        found = [turn.result() for turn in turns]
        failed = [seen for seen in found if seen.status != 200 or seen.kinds[-1] != "response.completed"]
        assert len(failed) == hit
        for seen in failed:
            assert seen.status == 500 if at is f.RECEIPT else seen.kinds == ["response.created", "error"]
        assert (await run.until_idle())["turns"]["failed"] == hit


@pytest.mark.parametrize("lanes", [True, False], ids=["lanes", "no lanes"])
async def test_b62_a_lane_in_an_http_body_is_the_upstreams_to_judge(lanes):
    """A ``stream_id`` that the client sends over HTTP goes up untouched over HTTP, and that answer is the client's."""
    data = b'{"model":"gpt-5","input":"u","stream_id":"mine","store":false}'
    async with scene(options={"lanes": lanes}) as run, Api(run.simulator.url) as direct:
        seen = await run.api.create(data=data)
        expected = await direct.create(data=data)
        assert (seen.status, seen.answer) == (expected.status, expected.answer)
        assert [post.raw for post in run.posts] == [data, data]
        assert run.frames == []


# -- B63

PACE = 0.02


class Process:
    """A running ``upwire serve``."""

    def __init__(self, child):
        self.child = child
        self.root = ""

    async def ready(self):
        """Wait until it listens."""
        while not self.root:
            line = (await asyncio.wait_for(self.child.stdout.readline(), 20)).decode()
            assert line
            if line.startswith("listening on "):
                self.root = line.split()[2]

    async def ended(self, within):
        """The exit code."""
        await asyncio.wait_for(self.child.communicate(), within)
        return self.child.returncode


@contextlib.asynccontextmanager
async def serving(*options):
    """The command before an upstream that takes its time for each word."""
    async with running_simulator(Options(token_pace=PACE, reasoning=False, parallel_calls=0)) as upstream:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", "serve", "--port", "0", "--upstream", upstream.url, *options,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            process = Process(child)
            await process.ready()
            yield process, upstream
        finally:
            if child.returncode is None:
                child.kill()
                await child.communicate()


def words(count, **fields):
    """A turn whose answer has so many words."""
    return body(f"words {count}", **{"stream": True, **fields})


async def until_draining(api, root):
    """Wait until readiness fails: how long that took."""
    began = time.monotonic()
    async with asyncio.timeout(5):
        while True:
            async with api.session.get(root + "/readyz") as answer:
                if answer.status == 503:
                    return time.monotonic() - began


@contextlib.asynccontextmanager
async def streaming(api, count):
    """A stream whose first event has come."""
    async with api.session.post(api.url + "/responses", json=words(count), headers=api.headers) as stream:
        assert b"response.created" in await stream.content.readline()
        yield stream


async def test_b63_running_answers_are_finished_after_the_signal():
    """Three streams and a turn in the queue are served, readiness fails at once, idle sockets get a close frame, exit 0."""
    async with (
        serving("--sockets-per-identity", "3", "--socket-wait", "30") as (process, upstream),
        contextlib.AsyncExitStack() as stack,
    ):
        for number in range(5):
            async with Api(process.root + "/v1", key=f"sk-idle-{number}") as idle:
                assert (await idle.create(words(1))).status == 200
        api = await stack.enter_async_context(Api(process.root + "/v1"))
        streams = [await stack.enter_async_context(streaming(api, 40)) for _ in range(3)]
        async with asyncio.TaskGroup() as group:
            queued = group.create_task(api.create(words(2, stream=False)))
            async with asyncio.timeout(5):
                while True:
                    async with api.session.get(process.root + "/stats") as answer:
                        now = await answer.json()
                    if now["turns"]["in_flight"] == 4:
                        break
            assert now["connections"]["open"] == 8
            process.child.send_signal(signal.SIGTERM)

            assert await until_draining(api, process.root) < 1
            async with api.session.get(process.root + "/healthz") as answer:
                assert answer.status == 200
            refused = await api.create(words(1))
            assert (refused.status, int(refused.headers["retry-after"]) > 0) == (503, True)
            for stream in streams:
                assert (await stream.read()).endswith(b"\n\n")
        served = queued.result()
        assert served.status == 200 or (served.status == 503 and served.headers["retry-after"])
        assert await process.ended(within=5) == 0
        closed = upstream.journal.closed()
        assert len(closed) == 8
        assert {(entry.close_code, entry.closed_by) for entry in closed} == {(1000, "client")}
        assert {create.outcome for create in upstream.journal.creates()} == {"completed"}


async def test_b63_when_the_grace_is_over_a_stream_ends_as_a_failure():
    """A stream that outlasts the grace gets one failure event and no clean end, and the process is gone soon after."""
    async with serving("--drain-timeout", "0.3") as (process, _), Api(process.root + "/v1") as api:
        async with streaming(api, 2000) as stream:
            began = time.monotonic()
            process.child.send_signal(signal.SIGTERM)
            events, broken = await read_broken(stream)
        assert await process.ended(within=5) == 0
        assert 0.3 <= time.monotonic() - began < 3
    assert broken
    assert [event["type"] for event in events if "response" in event] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert events[-1]["type"] == "response.failed"


async def test_b63_a_second_signal_ends_it_at_once():
    """Whatever runs, the process is gone within a second of the second signal."""
    async with serving("--drain-timeout", "60") as (process, _), Api(process.root + "/v1") as api:
        async with streaming(api, 2000):
            process.child.send_signal(signal.SIGTERM)
            await until_draining(api, process.root)
            began = time.monotonic()
            process.child.send_signal(signal.SIGTERM)
            code = await process.ended(within=5)
        assert code == 128 + signal.SIGTERM
        assert time.monotonic() - began < 1.5
