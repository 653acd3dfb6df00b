"""Upstreams that send what they should not: it never reaches a client as an answer, and never another turn."""

import aiohttp
import pytest

from gateway.settings import Settings
from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.adversity.rig import answered_in, asked_for, body, calling, finished, rig, until, user

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "json"])
MB = 1_000_000

RUBBISH = {
    "no JSON": f.SendText("HTTP/1.1 502 Bad Gateway"),
    "no object": f.SendText("[1, 2]"),
    "no type": f.SendText('{"response": {}}'),
    "a type that is no text": f.SendText('{"type": 7}'),
    "an empty frame": f.SendText(""),
    "binary": f.SendBinary(b"\x00\x01\x02"),
    "deep nesting": f.SendText('{"type": ' + "[" * 100_000),
}


@BOTH
@pytest.mark.parametrize("what", RUBBISH)
async def test_rubbish_before_the_answer_is_an_honest_error(what, stream):
    """The request may run, so it is not repeated; nothing of the rubbish is shown, and the next turn is served on a new socket."""
    async with rig({"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=RUBBISH[what]))
        seen = await run.api.create(body([user("one")], stream=stream))
        assert (seen.status, set(seen.answer)) == (502, {"error"})
        assert seen.answer["error"]["code"] == "upstream_connection_lost"
        assert len(run.frames) == 1
        await run.simulator.until(lambda journal: journal.closed(), 2)
        following = await run.api.create(body([user("one")], stream=stream))
        assert following.status == 200
        assert answered_in(run.simulator, following) == asked_for(run.simulator, [user("one")])
        assert (await run.at_rest())["turns"]["failed"] == 1


@BOTH
@pytest.mark.parametrize("what", RUBBISH)
async def test_rubbish_within_the_answer_breaks_it(what, stream):
    """A stream ends as a failure without the end of its body, JSON as an error; neither holds any of the rubbish."""
    async with rig({"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=RUBBISH[what], at=f.after_deltas(2)))
        async with calling(run.gateway, body([user("one")], stream=stream)) as caller:
            if stream:
                seen = bytes(await caller.rest())
                assert seen.count(b"event: response.failed") == 1
                assert seen.rstrip().rpartition(b"\n")[2].startswith(b'data: {"type":"response.failed"')
                assert not seen.endswith(b"0\r\n\r\n")
                assert seen.count(b".delta\n") == 2
            else:
                await caller.read_until(b"upstream_connection_lost")
                assert caller.seen.startswith(b"HTTP/1.1 502 ")
        await run.simulator.until(lambda journal: journal.closed(), 2)
        assert (await run.at_rest())["connections"]["open"] == 0
        following = await run.api.create(body([user("one"), user("two")], stream=stream))
        assert (following.status, following.mode) == (200, "full")


def _event_of(size):
    """An event whose JSON, as the simulator writes it, has ``size`` bytes."""
    return f.huge_event(size - len('{"type":"response.future.event","padding":""}'))


@BOTH
@pytest.mark.parametrize(("off", "taken"), [(-1, True), (0, True), (1, False)])
async def test_an_event_may_have_as_many_bytes_as_the_limit_says(off, taken, stream):
    """One byte more ends the turn as lost, and the socket with it."""
    limit = 50_000
    async with rig({"reasoning": False}, max_event=limit) as run:
        run.simulator.faults.add(Fault(actions=_event_of(limit + off), at=f.after_deltas(1)))
        async with calling(run.gateway, body([user("one")], stream=stream)) as caller:
            await caller.read_until(
                b"response.completed" if taken and stream else b'"status"' if taken else b"_lost"
            )
        stats = await run.at_rest()
        assert stats["turns"]["failed"] == (0 if taken else 1)
        assert stats["connections"]["open"] == (1 if taken else 0)
        assert (b"response.future.event" in caller.seen) is (taken and stream)


def test_an_event_of_100_mb_passes_by_default():
    """The default limit leaves room for the largest events that were seen, 100 MB of base64 images."""
    assert Settings().max_event > 100 * MB


STRAYS = {
    "an event of another response": f.SendEvent({"type": "response.output_text.delta", "response_id": "resp_other", "delta": "stray"}),
    "an event without a response": f.SendEvent({"type": "response.output_text.delta", "item_id": "msg_other", "delta": "stray"}),
    "a terminal event of another response": f.SendEvent(
        {"type": "response.completed", "response": {"id": "resp_other", "status": "completed", "output": ["stray"]}}
    ),
    "the terminal event again": f.RepeatTerminal(),
    "the beginning of another response": f.SendEvent(
        {"type": "response.created", "response": {"id": "resp_other", "status": "in_progress", "output": []}}
    ),
    "the failure of another response": f.SendEvent(
        {"type": "response.failed", "response": {"id": "resp_other", "status": "failed", "error": {"code": "stray", "message": "stray"}}}
    ),
    "rubbish": f.SendText("stray"),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("delay", [0.0, 0.03], ids=["at once", "later"])
@pytest.mark.parametrize("what", STRAYS)
async def test_what_comes_behind_the_terminal_event_is_for_nobody(what, delay, stream):
    """The answer stays as it was, its socket serves nobody any more, and the next turn is answered as it was asked."""
    async with rig({"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=(f.Silence(delay), STRAYS[what]), at=f.AFTER_TERMINAL))
        first = await run.api.create(body([user("one")], stream=stream))
        assert first.answer["status"] == "completed"
        assert b"stray" not in first.raw
        assert first.kinds.count("response.completed") == int(stream)
        await run.simulator.until(lambda journal: journal.closed(), 2)
        asked = [user("one"), *finished(first), user("two")]
        second = await run.api.create(body(asked, stream=stream))
        assert (second.mode, second.reason) == ("full", "parent_lost")
        assert b"stray" not in second.raw
        assert answered_in(run.simulator, second) == asked_for(run.simulator, asked)


@BOTH
@pytest.mark.parametrize("what", STRAYS)
async def test_what_comes_behind_the_terminal_event_is_not_the_next_turns(what, stream):
    """Also when the next turn is already on the socket: it gets its own answer or an error, and no third turn gets it."""
    async with rig({"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=(f.Silence(0.05), STRAYS[what]), at=f.AFTER_TERMINAL))
        first = await run.api.create(body([user("one")], stream=stream))
        asked = [user("one"), *finished(first), user("two")]
        await _own_or_error(run, body(asked, stream=stream))
        for text in ("three", "four"):
            other = await run.api.create(body([user(text)], stream=stream))
            assert other.status == 200
            assert b"stray" not in other.raw
            assert answered_in(run.simulator, other) == asked_for(run.simulator, [user(text)])
            assert other.kinds.count("response.completed") == int(stream)


@BOTH
@pytest.mark.parametrize("end", [f.Fail(), f.EndIncomplete()], ids=["failed", "incomplete"])
async def test_a_second_terminal_event_of_an_answer_that_did_not_complete(end, stream):
    """A repeated failure is not taken for that of the turn that comes next on the socket."""
    async with rig({"reasoning": False}) as run:
        run.simulator.faults.add(
            Fault(actions=(end, f.Silence(0.05), f.RepeatTerminal()), at=f.after_deltas(1))
        )
        first = await run.api.create(body([user("one")], stream=stream))
        assert first.status in (200, 500)
        for text in ("two", "three", "four"):
            seen = await run.api.create(body([user(text)], stream=stream))
            assert (seen.status, seen.answer["status"]) == (200, "completed")
            assert answered_in(run.simulator, seen) == asked_for(run.simulator, [user(text)])


@BOTH
@pytest.mark.parametrize("delay", [0.0, 0.05], ids=["at once", "later"])
async def test_an_error_and_a_failure_for_one_refused_turn(delay, stream):
    """Where both are sent, the second may fail a turn that is on the socket already, but no turn gets another's answer."""
    late = f.SendEvent(
        {"type": "response.failed", "response": {"id": "resp_refused", "status": "failed", "error": {"code": "stray", "message": "stray"}}}
    )  # fmt: skip
    refusal = f.SendError(status=429, code="rate_limit_exceeded", message="Slow down.")
    async with rig({"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=(refusal, f.Silence(delay), late)))
        refused = await run.api.create(body([user("one")], stream=stream))
        assert (refused.status, refused.answer["error"]["code"]) == (429, "rate_limit_exceeded")
        await _own_or_error(run, body([user("two")], stream=stream))
        for text in ("three", "four"):
            seen = await run.api.create(body([user(text)], stream=stream))
            assert (seen.status, seen.answer["status"]) == (200, "completed")
            assert answered_in(run.simulator, seen) == asked_for(run.simulator, [user(text)])


@BOTH
@pytest.mark.parametrize(
    "what", [name for name in STRAYS if name not in ("the terminal event again", "rubbish")]
)
async def test_an_event_before_the_beginning_of_the_answer(what, stream):
    """It is left over from another response: the client sees its own answer only, or an error, and the socket is given up."""
    async with rig({"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=STRAYS[what]))
        await _own_or_error(run, body([user("one")], stream=stream))
        await run.simulator.until(lambda journal: journal.closed(), 2)
        following = await run.api.create(body([user("two")], stream=stream))
        assert following.status == 200
        assert answered_in(run.simulator, following) == asked_for(run.simulator, [user("two")])


@BOTH
@pytest.mark.parametrize("what", ["an event of another response", "a terminal event of another response"])
async def test_an_event_of_another_response_within_the_answer(what, stream):
    """It is left out, the answer is whole, and the socket is given up."""
    async with rig({"reasoning": False}) as run:
        run.simulator.faults.add(Fault(actions=STRAYS[what], at=f.after_deltas(2)))
        first = await run.api.create(body([user("one")], stream=stream))
        assert first.answer["status"] == "completed"
        assert b"stray" not in first.raw
        await run.simulator.until(lambda journal: journal.closed(), 2)


@pytest.mark.parametrize("kind", ["codex.rate_limits", "responsesapi.websocket_timing", "keepalive"])
async def test_notices_may_come_at_any_time(kind):
    """What concerns only the transport costs an idle socket nothing and no client sees it."""
    notice = f.SendEvent({"type": kind, "note": "stray"})
    async with rig({"reasoning": False}) as run:
        run.simulator.faults.add(
            Fault(actions=(notice, f.Silence(0.02), notice), at=f.AFTER_TERMINAL), Fault(actions=notice)
        )
        asked = [user("one")]
        first = await run.api.create(body(asked))
        asked = [*asked, *finished(first), user("two")]
        await until(lambda: run.simulator.journal.creates()[0].outcome == "completed")
        second = await run.api.create(body(asked))
        assert second.mode == "delta"
        assert b"stray" not in first.raw + second.raw
        assert not run.simulator.journal.closed()


async def _own_or_error(run, sent):
    """A turn that a stray event met may fail or break, but never be answered with something else."""
    try:
        seen = await run.api.create(sent)
    except aiohttp.ClientPayloadError:
        return
    if seen.status == 200:
        assert b"stray" not in seen.raw
        assert answered_in(run.simulator, seen) == asked_for(run.simulator, sent["input"])
    else:
        assert set(seen.answer) == {"error"}
