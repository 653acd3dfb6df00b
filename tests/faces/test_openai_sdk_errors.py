"""Failures as the openai SDK shows them: the same exception as directly, and never a broken answer taken for a whole one."""

from __future__ import annotations

import httpx2
import openai
import pytest

from gateway.simulator import Fault, Options
from gateway.simulator.faults import (
    RECEIPT,
    Abort,
    Close,
    Cut,
    Fail,
    SendBinary,
    SendError,
    SendEvent,
    SendText,
    after_deltas,
    after_events,
)
from tests.faces.pairs import USER, pair, plain
from tests.faces.sdk import Asyncio, Blocking, outcome, sdk_pair

KINDS = [Blocking, Asyncio]
ASK = {"model": "gpt-5", "input": [USER]}
RAISED = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "InternalServerError",
}


def asks(arrival):
    return arrival.body is not None


async def conversed(client):
    """One turn done: the history whose next turn is a delta."""
    first = await client.call(lambda c: c.responses.create, **ASK)
    return [USER, *(item.to_dict() for item in first.output), USER]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_exception_before_the_first_event(kind):
    """Class, status, code, parameter, body and retry-after are equal, for every way to ask, as first turn and as a delta."""
    async with pair(Options(rounds=0)) as sides, sdk_pair(kind, sides, max_retries=0) as clients:
        histories = [await conversed(client) for client in clients]
        for status, name in RAISED.items():
            headers = {"retry-after": "3"} if status in {429, 503} else {}
            error = SendError(
                status=status,
                kind="some_type",
                code="some_code",
                message="No.",
                param="input",
                headers=headers,
            )
            sides.arm(Fault(at=RECEIPT, actions=error, matches=asks, times=None))
            got = []
            for client, history in zip(clients, histories, strict=True):
                asked = [ASK, {"model": "gpt-5", "input": history}]
                failures = [
                    await outcome(client.call(lambda c: c.responses.create, **fields)) for fields in asked
                ]
                failures += [await outcome(client.events([], **fields)) for fields in asked]
                failures += [await outcome(client.helper([], **fields)) for fields in asked]
                got.append(failures)
            assert {failure["raised"] for failure in got[0]} == {name}
            assert got[1] == got[0]
            assert headers == {} or got[1][0]["retry-after"] == "3"
            for upstream in (sides.direct, sides.behind):
                upstream.faults.clear()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_the_sdks_own_retries_go_on_working(kind, status):
    """The SDK tries again by itself as often as directly, waits as told, and gets its answer."""
    error = SendError(status=status, message="Again.", headers={"retry-after-ms": "5"})
    async with pair(Options(rounds=0)) as sides, sdk_pair(kind, sides) as clients:
        sides.arm(Fault(at=RECEIPT, actions=error, matches=asks, times=2))
        answers = [await client.call(lambda c: c.responses.create, **ASK) for client in clients]
        assert plain(answers[1].to_dict()) == plain(answers[0].to_dict())
        assert len(sides.direct.journal.creates()) == len(sides.behind.journal.creates()) == 3


BREAKS = {
    "reset": Abort(),
    "hung up": Cut(),
    "closed": Close(1011),
    "closed in order": Close(1000),
    "no json": SendText("<html>"),
    "a list": SendText("[]"),
    "no type": SendText('{"a":1}'),
    "bytes": SendBinary(b"\x00\x01"),
    "a cut event": SendText('{"type":"response.output_text.delta","delta":"ab'),
}
MOMENTS = {"at the start": after_events(1), "at a delta": after_deltas(2)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", BREAKS)
async def test_an_answer_that_breaks_is_never_taken_for_whole(kind, moment, how):
    """Whatever becomes of the upstream in the middle of an answer: the stream, the helper and the whole answer raise."""
    async with (
        pair(Options(rounds=0, reasoning=False)) as sides,
        sdk_pair(kind, sides, max_retries=0) as (_, client),
    ):
        for history in (ASK["input"], await conversed(client)):
            fields = {"model": "gpt-5", "input": history}
            for ask in (client.events, client.helper):
                sides.behind.faults.add(Fault(at=MOMENTS[moment], actions=BREAKS[how], transport="ws"))
                seen = []
                with pytest.raises((openai.APIError, httpx2.TransportError, RuntimeError)):
                    await ask(seen, **fields)
                kinds = [event.type for event in seen]
                assert kinds[0] == "response.created"
                assert "response.completed" not in kinds
            before = len(sides.behind.journal.creates())
            sides.behind.faults.add(Fault(at=MOMENTS[moment], actions=BREAKS[how], transport="ws"))
            with pytest.raises(openai.InternalServerError) as raised:
                await client.call(lambda c: c.responses.create, **fields)
            assert raised.value.status_code == 502
            assert raised.value.code == "upstream_connection_lost"
            assert len(sides.behind.journal.creates()) == before + 1
        healed = await client.call(lambda c: c.responses.create, **fields)
        assert healed.status == "completed"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_broken_stream_ends_with_one_failure(kind):
    """The SDK is given the failure event in its right form, with the response it belongs to, before it raises."""
    async with pair(Options(rounds=0)) as sides, sdk_pair(kind, sides, max_retries=0) as (_, client):
        sides.behind.faults.add(Fault(at=after_deltas(2), actions=Abort(), transport="ws"))
        seen = []
        with pytest.raises((openai.APIConnectionError, httpx2.TransportError)):
            await client.events(seen, **ASK)
        *before, last = seen
        assert last.type == "response.failed"
        assert last.response.status == "failed"
        assert last.response.id == before[0].response.id
        assert last.response.error.code == "upstream_connection_lost"
        assert last.sequence_number == before[-1].sequence_number + 1


ENDS = {
    "an error event": SendError(status=500, code="server_error", message="Broken.", shape="stream"),
    "an error event and a failure": SendError(status=500, code="server_error", message="Broken.", shape="stream", then_failed=True),
    "an overload": SendError(status=503, kind="service_unavailable_error", code="server_is_overloaded", shape="stream"),
    "a flat error": SendError(status=429, kind="invalid_request_error", code="rate_limit_exceeded", message="Slow.", shape="flat"),
    "a failure": Fail(code="server_error", message="Broken."),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", ENDS)
async def test_the_upstreams_own_errors_in_a_stream_are_passed_on(kind, moment, how, monkeypatch):
    """An error or a failure that the upstream itself sends ends the stream for the SDK as it does directly."""
    monkeypatch.setattr("gateway.turn.attempt._TRAILING_FAILURE", 0.05)
    async with (
        pair(Options(rounds=0, reasoning=False)) as sides,
        sdk_pair(kind, sides, max_retries=0) as clients,
    ):
        histories = [await conversed(client) for client in clients]
        for turn in (0, 1):
            got = []
            for client, history in zip(clients, histories, strict=True):
                fields = {"model": "gpt-5", "input": history[: 1 + 2 * turn]}
                asked = []
                for ask in (client.events, client.helper):
                    sides.arm(Fault(at=MOMENTS[moment], actions=ENDS[how], matches=asks))
                    seen = []
                    try:
                        failure = await outcome(ask(seen, **fields))
                    except RuntimeError as error:
                        failure = str(error)
                    asked.append([str(failure), [event.to_dict() for event in seen]])
                    for upstream in (sides.direct, sides.behind):
                        upstream.faults.clear()
                got.append(asked)
            assert plain(got[1]) == plain(got[0])


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_in_mid_answer_become_statuses(kind, monkeypatch):
    """A client that waits for the whole answer gets an error in the middle of it with the status that it stands for."""
    monkeypatch.setattr("gateway.turn.attempt._TRAILING_FAILURE", 0.05)
    async with pair(Options(rounds=0)) as sides, sdk_pair(kind, sides, max_retries=0) as clients:
        for how in ENDS.values():
            sides.arm(Fault(at=after_deltas(1), actions=how, matches=asks))
            one, other = [
                await outcome(client.call(lambda c: c.responses.create, **ASK)) for client in clients
            ]
            if isinstance(how, SendError) and not how.then_failed:
                assert other == one
            else:
                assert (other["raised"], other["status_code"]) == ("InternalServerError", 500)
            for upstream in (sides.direct, sides.behind):
                upstream.faults.clear()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_error_event_raises(kind):
    """The SDK raises at the error event itself, with its code."""
    async with pair(Options(rounds=0)) as sides, sdk_pair(kind, sides, max_retries=0) as clients:
        for client in clients:
            sides.arm(Fault(at=after_events(2), actions=ENDS["an overload"], matches=asks))
            with pytest.raises(openai.APIError) as raised:
                await client.events([], **ASK)
            assert raised.value.code == "server_is_overloaded"


@pytest.mark.parametrize("kind", KINDS)
async def test_foreign_events_do_not_reach_the_client(kind):
    """Events of another response, and notices about the transport, are no part of the answer."""
    foreign = SendEvent(
        {"type": "response.completed", "response": {"id": "resp_of_somebody_else", "status": "completed"}}
    )
    notice = SendEvent({"type": "codex.rate_limits", "plan_type": "pro"})
    async with pair(Options(rounds=0)) as sides, sdk_pair(kind, sides, max_retries=0) as clients:
        sides.behind.faults.add(Fault(at=after_deltas(1), actions=(foreign, notice), transport="ws"))
        got = []
        for client in clients:
            seen = []
            await client.events(seen, **ASK)
            got.append([event.to_dict() for event in seen])
        assert plain(got[1]) == plain(got[0])
