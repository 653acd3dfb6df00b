"""An upstream that goes away and comes back on the same address: between turns, under them, and before the first."""

import asyncio

import pytest

from gateway.simulator import Fault, Options, Simulator
from gateway.simulator import faults as f
from tests.adversity.rig import answered_in, asked_for, body, calling, finished, rig, rig_before, until, user
from tests.ports import free_port

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
STORE = pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])


async def stop(run):
    """The upstream goes away; back when the gateway knows that its sockets are gone."""
    await run.simulator.stop()

    async def noticed():
        return (await run.stats())["connections"]["open"] == 0

    await until(noticed)


async def start(run):
    """The upstream comes back on the port that it had."""
    await run.simulator.start(port=run.simulator.port)


async def go_on(run, asked, seen, text, **fields):
    """The next turn of a conversation, and all that it asked for; it must be right whatever its mode."""
    asked = [*asked, *finished(seen), user(text)]
    answer = await run.api.create(body(asked, **fields))
    assert answer.status == 200
    assert answered_in(run.simulator, answer) == asked_for(run.simulator, asked)
    return asked, answer


@BOTH
@STORE
@pytest.mark.parametrize("forgets", [True, False], ids=["forgets", "remembers"])
async def test_a_restart_between_two_turns_is_hidden(forgets, store, stream):
    """The next turn is right: a delta where the upstream kept the response, full where it did not; after it deltas again."""
    async with rig({"reasoning": False}) as run:
        asked = [user("one")]
        first = await run.api.create(body(asked, store=store, stream=stream))
        await stop(run)
        if forgets:
            run.simulator.forget_all()
        await start(run)
        asked, second = await go_on(run, asked, first, "two", store=store, stream=stream)
        if not store:
            assert (second.mode, second.reason) == ("full", "parent_lost")
        elif forgets:
            assert (second.mode, second.reason) == ("full", "not_found")
        else:
            assert second.mode == "delta"
        asked, third = await go_on(run, asked, second, "three", store=store, stream=stream)
        assert third.mode == "delta"
        stats = await run.at_rest()
        assert (stats["turns"]["failed"], stats["connections"]["closed"]["lost"]) == (0, 1)
        assert stats["recoveries"]["http_fallback"] == 0
        await run.tasks_at_rest()


@BOTH
@pytest.mark.parametrize(
    "moment", [f.RECEIPT, f.after_deltas(2), f.BEFORE_TERMINAL], ids=["before", "in", "behind"]
)
async def test_a_restart_under_a_turn_ends_it_honestly(moment, stream):
    """The turn may have run, so its client is told; the conversation goes on from its last whole turn."""
    async with rig({"reasoning": False}) as run:
        asked = [user("one")]
        first = await run.api.create(body(asked, stream=stream))
        run.simulator.faults.add(Fault(actions=f.Stall(), at=moment))
        async with calling(
            run.gateway, body([*asked, *finished(first), user("lost")], stream=stream)
        ) as caller:
            await run.simulator.until(lambda journal: len(journal.creates()) == 2)
            if stream and moment is not f.RECEIPT:
                await caller.read_until(b"response.created")
            await stop(run)
            if stream and moment is not f.RECEIPT:
                seen = await caller.rest()
                assert seen.count(b"event: response.failed") == 1
                assert not seen.endswith(b"0\r\n\r\n")
            else:
                await caller.read_until(b"upstream_connection_lost")
                assert caller.seen.startswith(b"HTTP/1.1 502 ")
        stats = await run.at_rest()
        assert (stats["turns"]["failed"], stats["turns"]["cancelled"]) == (1, 0)
        await start(run)
        asked, second = await go_on(run, asked, first, "two", stream=stream)
        assert (second.mode, second.reason) == ("full", "parent_lost")
        _, third = await go_on(run, asked, second, "three", stream=stream)
        assert third.mode == "delta"
        assert len(run.simulator.journal.creates()) == 4


@BOTH
async def test_turns_while_the_upstream_is_away_fail_at_once_and_the_first_after_it_does_not(stream):
    """Nothing is reached by any way: 502 that says so. As soon as plain HTTP would work, the gateway does, and sockets follow."""
    async with rig({"reasoning": False}) as run:
        asked = [user("one")]
        first = await run.api.create(body(asked, stream=stream, store=True))
        await stop(run)
        for _ in range(2):
            seen = await asyncio.wait_for(run.api.create(body([user("away")], stream=stream)), 1)
            assert (seen.status, seen.answer["error"]["code"]) == (502, "upstream_unreachable")
        await start(run)
        asked, second = await go_on(run, asked, first, "two", stream=stream, store=True)
        assert second.mode in ("http", "delta")

        async def by_socket():
            seen = await run.api.create(body([user("back")], stream=stream))
            assert seen.status == 200
            return seen.mode == "full"

        await until(by_socket, 5)
        _, third = await go_on(run, asked, second, "three", stream=stream, store=True)
        assert third.mode == "delta"
        assert (await run.at_rest())["turns"]["failed"] == 2


async def test_an_upstream_that_is_not_there_at_first():
    """A gateway that is started before the network is up is ready, fails its turns honestly, and needs no restart later."""
    port = free_port()
    simulator = Simulator(Options(reasoning=False))
    async with rig_before(f"http://127.0.0.1:{port}/v1", simulator) as run:
        async with run.api.session.get(run.gateway.root + "/readyz") as answer:
            assert answer.status == 200
        seen = await run.api.create(body([user("early")]))
        assert (seen.status, seen.answer["error"]["code"]) == (502, "upstream_unreachable")
        await simulator.start(port=port)
        try:
            asked = [user("one")]
            first = await run.api.create(body(asked))
            assert (first.status, first.mode, first.reason) == (200, "http", "upgrade_refused")
            answers = [first]

            async def by_socket():
                nonlocal asked
                asked, answer = await go_on(run, asked, answers[-1], "go on")
                answers.append(answer)
                return answer.mode == "full"

            await until(by_socket, 5)
            _, last = await go_on(run, asked, answers[-1], "at last")
            assert last.mode == "delta"
        finally:
            await simulator.stop()
        await run.at_rest()


async def test_many_conversations_outlive_several_restarts():
    """Turns of eight clients before, under and behind three restarts: each either fails honestly or is right; then all go on."""
    async with rig({"reasoning": False, "token_pace": 0.001}) as run:
        outcomes = []
        over = asyncio.Event()

        async def client(number):
            asked = [user(f"client {number}")]
            while not over.is_set():
                try:
                    seen = await run.api.create(body(asked, store=number % 2 == 0))
                except Exception as failure:  # noqa: BLE001 (a broken stream; which class is the client's affair)
                    outcomes.append(type(failure).__name__)
                    continue
                outcomes.append(seen.status)
                if seen.status == 200:
                    assert answered_in(run.simulator, seen) == asked_for(run.simulator, asked)
                    asked = [*asked, *finished(seen), user("go on")]
                    if len(asked) > 12:
                        asked = asked[:1]
                else:
                    assert seen.status == 502
                    await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(client(number))
            for _ in range(3):
                good = outcomes.count(200)
                await until(lambda good=good: outcomes.count(200) >= good + 16, 10)
                await run.simulator.stop()
                await until(lambda: 502 in outcomes[-8:], 10)
                await start(run)
            began = len(outcomes)
            await until(lambda: outcomes[began:].count(200) >= 32, 10)
            over.set()
        assert set(outcomes) <= {200, 502, "ClientPayloadError"}
        # Each client has one turn under way when the upstream is back, which may have failed before.
        assert set(outcomes[began + 8 :]) == {200}
        stats = await run.at_rest()
        assert stats["turns"]["cancelled"] == 0
        await run.tasks_at_rest()
