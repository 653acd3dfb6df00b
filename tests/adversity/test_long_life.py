"""A gateway that runs for long: sockets that grow old under it, and many turns that must leave nothing behind."""

import asyncio
import contextlib
import gc
import json
import os
import re
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.conversation.digests import DIGEST_SIZE, Digester
from gateway.conversation.fields import FieldFacts
from gateway.conversation.items import facts_of
from gateway.conversation.transcripts import Transcript
from gateway.store import Store, StoreLimits
from tests.adversity.rig import KEY, answered_in, asked_for, body, finished, rig, said, until, user
from tests.gateways import Api

CONTEXT = re.compile(r"modulo=(\w+) settings=\w+ items=(\d+)")
PAGE = os.sysconf("SC_PAGE_SIZE")


async def converse(run, name, enough, *, store, seen):
    """One conversation, turn after turn, until there was enough; what came of each turn goes to ``seen``."""
    asked = [user(f"conversation {name}")]
    while not enough():
        stream = len(seen) % 2 == 0
        answer = await run.api.create(body(asked, store=store, stream=stream))
        assert (answer.status, answer.answer["status"]) == (200, "completed")
        assert answered_in(run.simulator, answer) == asked_for(run.simulator, asked)
        seen.append(answer)
        outputs = [_output(item) for item in finished(answer) if item["type"].endswith("_call")]
        asked = [*asked, *finished(answer), *outputs, user("go on")]


def _output(call):
    return {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "done"}


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
async def test_turns_go_on_over_many_rotations(store):
    """No turn fails, none is sent on a socket past its age, and a new socket costs at most one full turn of a conversation."""
    age = 0.25
    async with rig({"max_age": 2 * age, "reasoning": False}, socket_age=age) as run:
        opened = run.simulator.journal.opened
        seen = [[] for _ in range(4)]

        def enough():
            return len(opened()) >= 30

        async with asyncio.TaskGroup() as group:
            for number, answers in enumerate(seen):
                group.create_task(converse(run, number, enough, store=store, seen=answers))

        born = {one.connection: one.at for one in opened()}
        assert all(one.at - born[one.connection] < age + 0.1 for one in run.frames)
        assert not [one for one in run.frames if one.outcome != "completed"]
        made_on = {one.response_id: one for one in run.frames}
        for answers in seen:
            assert len(answers) > 20
            for before, answer in zip([None, *answers], answers, strict=False):
                entry = made_on[answer.answer["id"]]
                if before is None:
                    assert (answer.mode, answer.reason) == ("full", "new_conversation")
                elif store or made_on[before.answer["id"]].connection == entry.connection:
                    assert (answer.mode, entry.parent) == ("delta", before.answer["id"])
                    assert len(entry.items) < len(run.simulator.context_of(before.answer["id"]))
                else:
                    assert (answer.mode, answer.reason, entry.parent) == ("full", "parent_lost", None)
        stats = await run.at_rest()
        assert stats["connections"]["closed"]["age"] > 20
        assert sum(stats["recoveries"].values()) == 0
        await run.tasks_at_rest()


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
async def test_an_upstream_with_a_lower_age_limit_costs_no_error(store):
    """A turn that is refused because of the socket's age is sent again on a new one, hidden from its client."""
    async with rig({"max_age": 0.15, "reasoning": False}) as run:
        answers = []

        def enough():
            return len(run.simulator.journal.opened()) >= 6

        await converse(run, "one", enough, store=store, seen=answers)
        refused = [one for one in run.frames if one.outcome == "refused"]
        assert {one.code for one in refused} == {"websocket_connection_limit_reached"}
        assert len(refused) >= 5
        stats = await run.at_rest()
        assert stats["recoveries"]["reconnect"] == len(refused)
        assert stats["turns"]["failed"] == 0
        modes = [answer.mode for answer in answers]
        assert modes.count("full") == 1 + len(refused)
        assert stats["connections"]["open"] == 1


@dataclass
class Process:
    """One of our commands, running."""

    url: str
    pid: int
    log: Path

    @property
    def files(self):
        """How many files it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def resident(self):
        """Bytes of memory that it has."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE


@contextlib.asynccontextmanager
async def command(log, *arguments):
    """``upwire`` with these arguments, on a free port, until the end of the block; what it logs goes to the file ``log``."""
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", *arguments, "--port", "0", stdout=asyncio.subprocess.PIPE, stderr=stream
        )  # fmt: skip
    try:
        line = b""
        while not line.startswith(b"listening on "):
            line = await asyncio.wait_for(process.stdout.readline(), 20)
            assert line, log.read_text()
        yield Process(line.split()[2].decode() + "/v1", process.pid, log)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


@dataclass
class Crowd:
    """Waves of conversations of one client, ten turns each; each last answer is compared with a direct one."""

    api: Api
    direct: Api
    turns: int = 10
    modes: list = field(default_factory=list)

    async def wave(self, numbers, *, at_once=24):
        """The conversations of these numbers from beginning to end, round by round, so many turns at once."""
        asked = {number: [user(f"conversation {number} words 1 loop 0")] for number in numbers}
        for at in range(self.turns):
            waiting = iter(numbers)

            async def work(waiting=waiting, at=at):
                for number in waiting:
                    await self.turn(asked, number, at)

            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(work())

    async def turn(self, asked, number, at):
        """One turn; half of the conversations are stored, a third of the turns are not streamed."""
        sent = body(asked[number], store=number % 2 == 0, stream=(number + at) % 3 > 0)
        seen = await self.api.create(sent)
        assert (seen.status, seen.answer["status"]) == (200, "completed")
        self.modes.append(seen.mode)
        asked[number] = [*asked[number], *finished(seen), user("go on words 1 loop 0")]
        if at + 1 == self.turns:
            assert _contexts(await self.direct.create(sent)) == _contexts(seen)


def _contexts(seen):
    """What an answer says about the context that it was made in."""
    found = CONTEXT.findall(seen.answer["output"][-1]["content"][0]["text"])
    assert found
    return found


async def test_a_thousand_turns_leave_no_task_and_no_socket():
    """A hundred conversations of ten turns, more than there are sockets: at the end everything is at rest and nothing is open."""
    async with (
        rig(sockets_per_identity=8, socket_wait=5.0, socket_idle=0.3) as run,
        Api(run.simulator.url, key=KEY) as direct,
    ):
        crowd = Crowd(run.api, direct)
        await crowd.wave(range(100), at_once=12)
        stats = await run.at_rest()
        assert stats["turns"]["total"] == 1000
        assert (stats["turns"]["failed"], stats["turns"]["cancelled"], stats["turns"]["http"]) == (0, 0, 0)
        assert stats["turns"]["delta"] == crowd.modes.count("delta") >= 450
        assert stats["connections"]["opened"] >= 8

        async def closed():
            return (await run.stats())["connections"]["open"] == run.simulator.open_sockets == 0

        await until(closed)
        await run.tasks_at_rest()


def test_of_evicted_responses_only_their_ids_stay():
    """A conversation of a thousand turns, of which ten responses may be kept, holds ten transcripts, and nothing of 4 KB."""
    digester = Digester(b"k" * 32)
    book = Store(StoreLimits(responses=10, items=10**6, age=10.0))
    newest = None
    before = len(_transcripts())
    for number in range(1000):
        answer = said(f"answer {number}") | {"phase": "final_answer"}
        sent, answered = (
            facts_of(json.dumps(item).encode(), digester) for item in (user(f"turn {number}"), answer)
        )
        assert max(len(part) for part in (answered.core, answered.phase)) == DIGEST_SIZE
        newest = book.add(
            b"me",
            response_id=f"resp_{number}",
            base=newest,
            sent=[sent],
            answered=[answered],
            fields=FieldFacts(frozenset(), b"", b"", truncates=False),
            stored=True,
            now=0.0,
        )
    assert len(book) == len(_transcripts()) - before == 10
    book.delete(b"me", "resp_3")
    assert len(book) == 0


def _transcripts():
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Transcript)]


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_ten_thousand_turns_leave_nothing_behind(tmp_path):
    """Sockets, files, memory and gauges are at the end of a thousand conversations of ten turns where they were."""
    limits = {"sockets-per-identity": 128, "conversations": 200, "socket-idle": 2, "socket-wait": 20}
    settings = [f"--{name}={value}" for name, value in limits.items()]
    async with (
        command(tmp_path / "upstream.log", "simulate") as upstream,
        command(tmp_path / "gateway.log", "serve", "--upstream", upstream.url, *settings) as gateway,
        Api(gateway.url, key=KEY) as api,
        Api(upstream.url, key=KEY) as direct,
    ):
        files = gateway.files
        crowd, resident = Crowd(api, direct), []
        for wave in range(10):
            await crowd.wave(range(100 * wave, 100 * wave + 100))
            resident.append(gateway.resident)

        async def stats():
            async with api.session.get(gateway.url.removesuffix("/v1") + "/stats") as answer:
                return await answer.json()

        async def closed():
            found = await stats()
            return found if found["connections"]["open"] == 0 else None

        last = await until(closed, 10)
        assert last["turns"]["total"] == 10_000
        assert [last["turns"][name] for name in ("failed", "cancelled", "http", "in_flight")] == [0, 0, 0, 0]
        assert last["turns"]["delta"] == crowd.modes.count("delta") >= 4500
        assert last["conversations"]["known"] == 200
        assert resident[-1] - resident[2] < 15_000_000, resident
        await api.session.close()
        await until(lambda: gateway.files <= files, 10)
    assert not [line for line in gateway.log.read_text().splitlines() if '"level": "info"' not in line]
