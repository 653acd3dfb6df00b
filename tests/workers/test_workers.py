"""``upwire serve --workers 2``: no delta is lost, and whichever worker is asked speaks for all."""

import asyncio
import contextlib
import json
import os
import signal
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from gateway.simulator import Options
from tests.gateways import running_simulator
from tests.gateways import seen as seen_of
from tests.serving import begin, serving
from tests.storm.client import CODINGS
from tests.workers.conversations import (
    Talk,
    in_flight,
    lives,
    stats,
    status_of,
    talk_all,
    texts,
    until,
    workers_of,
)

ORPHAN = [{"type": "function_call_output", "call_id": "call_unknown", "output": "ok"}]
KEY = {"authorization": "Bearer sk-test"}
CANARY = "canary-1f0c9a7d-of-a-user"


def shown(number, place):
    """What the system shows of a process to whoever lists them."""
    return Path(f"/proc/{number}/{place}").read_bytes()


@contextlib.asynccontextmanager
async def two_workers(*options, simulated=None, **environment):
    """A simulated upstream, and two workers in front of it."""
    async with running_simulator(simulated or Options(seed="workers")) as simulator:
        named = ("--upstream", simulator.url, "--profile", "openai", "--workers", "2")
        async with serving(*named, *options, **environment) as process:
            yield simulator, process


async def test_no_delta_is_lost_whichever_worker_a_turn_comes_in_at():
    """Of many turns over new connections each is a delta but the first of its conversation, with the answers of a direct run."""
    async with two_workers() as (simulator, process), running_simulator(Options(seed="workers")) as direct:
        here, there = [
            [Talk(url, f"words 2, number {n}", store=n % 3 == 0, stream=n % 2 == 0) for n in range(16)]
            for url in (process.url, direct.url.removesuffix("/v1"))
        ]
        await talk_all(here, 10)
        await talk_all(there, 10)
        assert list(map(texts, here)) == list(map(texts, there))
        assert {answer.mode for talk in here for answer in talk.answers[1:]} == {"delta"}
        found = await stats(process.url)
        turns = found["turns"]
        assert (turns["total"], turns["full"], turns["delta"]) == (160, 16, 144)
        assert found["reasons"]["new_conversation"] == 16
        assert found["workers"] == {"count": 2, "silent": []}
        assert {socket["worker"] for socket in found["sockets"]} == {0, 1}
        assert not any(entry.overlapped for entry in simulator.journal if entry.kind == "create")


async def test_a_conversation_is_known_in_another_spelling():
    """A client that changes how it writes its first item, and one that first sent a text alone, stay where they are."""
    async with two_workers() as (_, process):
        for number in range(6):
            talk = Talk(process.url, f"hello {number}")
            first = await talk.turn(input=f"hello {number}")
            assert first.mode == "full"
            part = {"type": "input_text", "text": f"hello {number}"}
            talk.history[0] = {"type": "message", "role": "user", "content": [part], "status": "completed"}
            assert (await talk.turn()).mode == "delta"
            talk.history[0] = {"content": f"hello {number}", "role": "user", "id": None}
            assert (await talk.turn(headers={"x-stainless-retry-count": "1"})).mode == "delta"


@pytest.mark.parametrize("store", [True, False])
async def test_a_client_that_chains_by_itself_meets_the_worker_that_knows_its_parent(store):
    """Its own parent is found in whichever worker, also without being stored, and its answers continue it."""
    async with two_workers() as (simulator, process):
        for number in range(4):
            talk = Talk(process.url, f"hello {number}", store=store)
            named = (await talk.turn(grow=False)).answer["id"]
            for _ in range(4):
                talk.history = []
                found = await talk.turn("and?", grow=False, previous_response_id=named)
                assert (found.status, found.reason) == (200, "client_parent")
                assert found.answer["previous_response_id"] == named
                named = found.answer["id"]
        connections = {}
        for entry in simulator.journal.creates("ws"):
            if entry.parent:
                assert connections[entry.parent] == entry.connection
            connections[entry.response_id] = entry.connection


async def test_a_deleted_response_is_forgotten_by_every_worker():
    """Whichever worker takes the DELETE, nothing is chained through that response afterwards."""
    async with two_workers() as (simulator, process):
        for number in range(6):
            talk = Talk(process.url, f"hello {number}", store=True)
            await talk.turn()
            assert (await talk.turn()).mode == "delta"
            name = talk.answers[-1].answer["id"]
            place = f"{process.url}/v1/responses/{name}"
            assert await status_of(place, method="DELETE", headers=talk.headers) == 200
            await talk.turn()
            assert simulator.journal.creates()[-1].parent != name


async def test_a_worker_that_dies_is_replaced_and_costs_its_conversations_one_full_turn():
    """After a kill the others go on, a new worker is there, and each conversation has one more full turn at most."""
    async with two_workers() as (_, process):
        talks = [Talk(process.url, f"hello {n}") for n in range(16)]
        await talk_all(talks, 3)
        before = workers_of(process.child.pid)
        os.kill(before[0], signal.SIGKILL)

        async def gone():
            return not lives(before[0])

        # What a dying process still took is lost with it, as with any gateway; the next turns come before another takes its place.
        await until(gone)
        await talk_all(talks, 4)
        for talk in talks:
            modes = [answer.mode for answer in talk.answers]
            assert [answer.status for answer in talk.answers] == [200] * 7
            assert modes[:3] == ["full", "delta", "delta"]
            assert modes[3:].count("full") <= 1
            assert set(modes[4:]) == {"delta"}
        lost = sum(talk.answers[3].mode == "full" for talk in talks)
        assert 0 < lost < len(talks)
        after = workers_of(process.child.pid)
        assert len(after) == 2
        assert before[0] not in after
        assert before[1] in after
        process.child.send_signal(signal.SIGTERM)
        code, _, err = await process.ended(within=8)
        assert code == 0
        assert err.count('"event": "worker_ended"') == 1


async def test_limits_are_those_of_all_workers_together():
    """Turns at once and sockets do not exceed what is set, however the turns are spread."""
    slow = Options(token_pace=0.02, reasoning=False)
    limits = ("--sockets", "4", "--sockets-per-identity", "4", "--max-in-flight", "8", "--conversations", "6")
    async with two_workers(*limits, simulated=slow) as (_, process):
        talks = [Talk(process.url, f"words 20 {n}") for n in range(30)]
        running = asyncio.gather(*(talk.turn() for talk in talks))
        most = 0
        while not running.done():
            seen = await stats(process.url)
            assert seen["connections"]["open"] + seen["connections"]["dialling"] <= 4
            assert seen["turns"]["in_flight"] <= 8
            most = max(most, seen["turns"]["in_flight"])
            await asyncio.sleep(0.05)
        answers = await running
        assert {answer.status for answer in answers} == {200, 503}
        assert most >= 4
        assert (await stats(process.url))["conversations"]["known"] <= 6


async def test_running_streams_of_all_workers_finish_before_the_end():
    """After SIGTERM no worker is ready, new turns are refused, what runs ends whole, and the exit code is 0."""
    slow = Options(token_pace=0.02, reasoning=False)
    async with two_workers(simulated=slow) as (_, process):
        talks = [Talk(process.url, f"words 60 {n}") for n in range(6)]
        running = asyncio.gather(*(talk.turn() for talk in talks))
        await in_flight(process.url, 6)
        process.child.send_signal(signal.SIGTERM)

        async def draining():
            return await status_of(process.url + "/readyz") == 503

        await until(draining)
        for _ in range(6):
            assert await draining()
            assert await status_of(process.url + "/v1/responses", method="POST", json={"input": "x"}) == 503
        answers = await running
        assert {answer.answer["status"] for answer in answers} == {"completed"}
        assert (await process.ended(within=8))[0] == 0


async def test_a_stream_that_outlasts_the_drain_ends_as_a_failure_wherever_it_runs():
    """Each client sees one failure event and a broken body, and all processes end in time with 0."""
    slow = Options(token_pace=0.02, reasoning=False)
    async with two_workers("--drain-timeout", "0.3", simulated=slow) as (_, process):

        async def watch(number):
            seen = bytearray()
            body = {"model": "gpt-5", "stream": True, "store": False, "input": f"words 5000 {number}"}
            async with aiohttp.ClientSession() as session:
                async with session.post(process.url + "/v1/responses", json=body, headers=KEY) as answer:
                    try:
                        async for piece in answer.content.iter_any():
                            seen += piece
                    except aiohttp.ClientError:
                        return seen
            return b"a whole body"

        running = asyncio.gather(*map(watch, range(4)))
        await in_flight(process.url, 4)
        process.child.send_signal(signal.SIGTERM)
        for seen in await running:
            assert seen.count(b"event: response.failed") == 1
            assert b"response.completed" not in seen
        assert (await process.ended(within=8))[0] == 0


async def test_a_second_signal_is_obeyed_within_a_second():
    """Nothing is waited for, and no worker is left."""
    slow = Options(token_pace=0.02, reasoning=False)
    async with two_workers("--drain-timeout", "60", simulated=slow) as (_, process):
        workers = workers_of(process.child.pid)
        talk = asyncio.ensure_future(Talk(process.url, "words 5000").turn())  # noqa: TID251
        await in_flight(process.url, 1)
        process.child.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        process.child.send_signal(signal.SIGTERM)
        code, _, _ = await process.ended(within=3)
        assert code == 128 + signal.SIGTERM
        assert not any(map(lives, workers))
        with pytest.raises(aiohttp.ClientError):
            await talk


async def test_workers_end_with_their_parent_and_leave_the_port_free(tmp_path):
    """A parent that is killed leaves no process and no file behind, and another gateway can be started on its port."""
    async with two_workers(TMPDIR=str(tmp_path)) as (simulator, process):
        await Talk(process.url, "hello").turn()
        workers = workers_of(process.child.pid)
        process.child.kill()

        async def gone():
            return not any(map(lives, workers))

        await until(gone)
        assert not list(tmp_path.iterdir())
        port = process.url.rpartition(":")[2]
        again = await begin("--port", port, "--upstream", simulator.url, "--workers", "2")
        await again.ready()
        again.child.send_signal(signal.SIGTERM)
        assert (await again.ended(within=8))[0] == 0


async def test_a_second_gateway_on_the_same_port_is_told_so():
    """The error is that of a single process."""
    async with two_workers() as (_, process):
        other = await begin("--port", process.url.rpartition(":")[2], "--workers", "2")
        code, _, err = await other.ended(within=10)
    assert code == 1
    assert "is in use" in err
    assert "--port" in err


async def test_what_a_worker_cannot_use_is_said_once(tmp_path):
    """A setting that only the workers look at ends the start with one plain error."""
    other = await begin("--port", "0", "--workers", "2", "--upstream-key-file", str(tmp_path / "none"))
    code, out, err = await other.ended(within=10)
    assert (code, out) == (1, "")
    assert err.count("Error:") == 1
    assert "none" in err


async def test_clients_cannot_pass_for_a_worker():
    """Private headers of a client mean nothing, reach no upstream, and do not keep a turn from its worker."""
    forged = {"x-upwire-worker": "0" * 64, "x-upwire-identity": "00" * 16}
    async with two_workers() as (simulator, process):
        talks = [Talk(process.url, f"hello {n}") for n in range(8)]
        for talk in talks:
            assert (await talk.turn(headers=forged)).mode == "full"
            assert (await talk.turn()).mode == "delta"
            assert (await talk.turn(headers=forged)).mode == "delta"
        for path in ("/-/stats", "/-/holds", "/-/deleted", "/-/recent"):
            assert await status_of(process.url + path, headers=forged) == 404
        assert not any(
            name.lower().startswith("x-upwire") for e in simulator.journal for name in dict(e.headers or ())
        )


async def test_no_secret_stands_in_a_command_line_or_environment(tmp_path):
    """Neither the token of the gateway nor a drawn key is visible to whoever lists processes, and the folder is private."""
    (tmp_path / "token").write_text(CANARY + "\n")
    environment = {"TMPDIR": str(tmp_path)}
    async with two_workers("--token-file", str(tmp_path / "token"), **environment) as (_, process):
        (folder,) = tmp_path.glob("upwire-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        talk = Talk(process.url, "hello")
        assert (await talk.turn(headers={"x-upwire-token": CANARY})).status == 200
        workers = workers_of(process.child.pid)
        assert len(workers) == 2
        for number in (process.child.pid, *workers):
            for place in ("cmdline", "environ"):
                text = shown(number, place)
                assert CANARY.encode() not in text
                assert not any(
                    len(part) >= 64 and part.isalnum() for part in text.replace(b"=", b"\0").split(b"\0")
                )
        process.child.send_signal(signal.SIGTERM)
        assert (await process.ended(within=8))[0] == 0
    assert not folder.exists()


async def test_a_client_that_leaves_ends_its_turn_in_the_other_worker():
    """The upstream's socket closes wherever the turn ran, and the turn is counted as cancelled."""
    slow = Options(token_pace=0.02, reasoning=False)
    async with two_workers(simulated=slow) as (_, process):
        for number in range(6):
            async with aiohttp.ClientSession() as session:
                body = {"model": "gpt-5", "stream": True, "store": False, "input": f"words 5000 {number}"}
                async with session.post(process.url + "/v1/responses", json=body, headers=KEY) as answer:
                    await answer.content.readline()
                    answer.close()

        async def cancelled():
            found = await stats(process.url)
            return found if found["turns"]["cancelled"] == 6 else None

        found = await until(cancelled)
        assert found["turns"]["in_flight"] == 0
        assert found["connections"]["closed"]["client_left"] == 6


async def test_a_reload_reaches_every_worker(tmp_path):
    """After SIGHUP every worker goes on with the new settings."""
    file = tmp_path / "config.toml"
    file.write_text('mode = "auto"\n')
    async with two_workers("--config", str(file)) as (_, process):
        talks = [Talk(process.url, f"hello {n}") for n in range(6)]
        await talk_all(talks, 1)
        file.write_text('mode = "http"\n')
        process.child.send_signal(signal.SIGHUP)

        async def heard(talk):
            return (await talk.turn(grow=False)).reason == "disabled"

        for talk in talks:
            await until(partial(heard, talk))
        for talk in talks:
            assert (await talk.turn()).reason == "disabled"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"stream": True}, 200),
        ({"stream": False}, 200),
        ({"stream": True, "input": ORPHAN}, 400),
        ({"stream": False, "previous_response_id": "resp_unknown"}, 400),
        ({"stream": True, "x_unknown_to_the_api": 1}, 200),
        ({"stream": True, "background": True}, 200),
    ],
)
async def test_an_answer_looks_the_same_from_every_worker(more, status):
    """Status and the names of all headers are those of a single process, wherever the turn ran."""
    async with two_workers() as (simulator, process):
        named = ("--upstream", simulator.url, "--profile", "openai")
        async with serving(*named) as alone:
            single = await Talk(alone.url, "hello").turn(**more)
        seen = [await Talk(process.url, f"hello {n}").turn(**more) for n in range(12)]
    assert {answer.status for answer in seen} == {single.status}
    assert {frozenset(answer.headers) for answer in seen} == {frozenset(single.headers)}
    assert single.status == status


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd"])
async def test_compressed_bodies_reach_the_other_worker(coding):
    """Whatever the coding of a request, and however it is cut into chunks, its conversation is found."""
    async with two_workers() as (_, process):
        for number in range(6):
            talk = Talk(process.url, f"hello {number}")
            await talk.turn()
            for _ in range(2):
                talk.history.append({"role": "user", "content": "and?"})
                data = CODINGS[coding](json.dumps({**talk.fields, "input": talk.history}).encode())

                async def pieces(data=data):
                    for at in range(0, len(data), 100):
                        yield data[at : at + 100]

                headers = {**talk.headers, "content-encoding": coding}
                async with aiohttp.ClientSession() as session:
                    url = process.url + "/v1/responses"
                    async with session.post(url, data=pieces(), headers=headers) as answer:
                        found = await seen_of(answer)
                assert (found.status, found.mode) == (200, "delta")
                talk.history += found.answer["output"]


async def test_limits_on_bodies_are_kept_where_they_come_in():
    """A body that is too large, or not what its coding says, is refused whichever worker it comes in at."""
    async with two_workers("--max-body", "2000") as (simulator, process):
        for number in range(6):
            talk = Talk(process.url, f"hello {number} " + "x" * 3000)
            assert (await talk.turn()).status == 413
            broken = Talk(process.url, f"hello {number}")
            assert (await broken.turn(headers={"content-encoding": "gzip"})).status == 400
        assert not simulator.journal.creates()
