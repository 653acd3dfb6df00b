"""What the upstream refuses before its first event is the API's own answer: status, body and the headers that steer retries."""

from __future__ import annotations

import pytest

from gateway.simulator import Fault, Options
from gateway.simulator.faults import RECEIPT, Fail, SendError
from tests.faces.pairs import USER, Dialogue, pair, plain, same_face

STEERING = {
    "retry-after": "7",
    "retry-after-ms": "7000",
    "x-should-retry": "true",
    "x-ratelimit-remaining-tokens": "0",
}
ERRORS = {
    "400": SendError(status=400, kind="invalid_request_error", code="context_length_exceeded", message="Too long.", param="input"),
    "400 without code": SendError(status=400, kind="invalid_request_error", message="No."),
    "401": SendError(status=401, kind="invalid_request_error", code="invalid_api_key", message="Incorrect API key provided."),
    "403": SendError(status=403, kind="invalid_request_error", code="unsupported_country_region_territory", message="Not here."),
    "404": SendError(status=404, kind="invalid_request_error", code="model_not_found", message="No such model."),
    "409": SendError(status=409, kind="invalid_request_error", code="conflict", message="Conflict."),
    "422": SendError(status=422, kind="invalid_request_error", message="Unprocessable."),
    "429": SendError(status=429, kind="requests", code="rate_limit_exceeded", message="Slow down.", headers=STEERING),
    "429 quota": SendError(status=429, kind="insufficient_quota", code="insufficient_quota", message="Pay.", headers={"x-should-retry": "false"}),
    "500": SendError(status=500, headers={"retry-after": "1"}),
    "503": SendError(status=503, kind="service_unavailable_error", code="server_is_overloaded", message="Busy.", headers=STEERING),
    "429 without status": SendError(status=429, kind="tokens", code="rate_limit_exceeded", message="Slow.", headers=STEERING, shape="stream"),
    "500 without status": SendError(status=500, kind="server_error", message="Oops.", shape="stream"),
    "503 without status": SendError(status=503, kind="service_unavailable_error", code="server_is_overloaded", shape="stream"),
    "400 without status": SendError(status=400, kind="invalid_request_error", code="invalid_prompt", shape="stream"),
    "429 by status_code": SendError(status=429, kind="requests", message="Slow.", headers=STEERING, shape="status_code"),
}  # fmt: skip
FINAL = (401, 403, 429)


def asks(arrival):
    return arrival.body is not None


@pytest.mark.parametrize("survives", [True, False], ids=["", "closing"])
@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", ERRORS)
async def test_a_refusal_is_the_one_that_plain_http_gives(name, stream, store, survives):
    """As first turn and as a delta: the same status, body and retry headers; the client's next try then goes through."""
    error = ERRORS[name]
    async with pair(Options(rounds=0, survives_errors=survives), survives_errors=survives) as sides:
        talk = Dialogue(sides, {"stream": stream, "store": store})
        for place in ("first", "delta"):
            sides.arm(Fault(at=RECEIPT, actions=error, matches=asks, times=None))
            before = len(sides.behind.journal.creates())
            one, other = await talk.say(USER)
            assert one.status == error.status
            same_face(one, other)
            for header in error.headers:
                assert other.headers[header] == error.headers[header]
            tries = [create.parent is not None for create in sides.behind.journal.creates("ws")[before:]]
            again = place == "delta" and error.status < 500 and error.status not in FINAL
            assert tries == ([True, False] if again else [place == "delta"])
            assert not sides.behind.journal.creates("http")

            for upstream in (sides.direct, sides.behind):
                upstream.faults.clear()
            same_face(*await talk.say())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("code", "status"), [("server_error", 500), ("rate_limit_exceeded", 429), ("invalid_prompt", 400)]
)
async def test_a_response_that_fails_at_once_is_a_refusal(code, status, stream):
    """`response.failed` as first event has the status that its code stands for, and its message in the API's error shape."""
    async with pair() as sides:
        sides.behind.faults.add(Fault(at=RECEIPT, actions=Fail(code=code, message="It failed.")))
        other = await sides.other.create({"model": "gpt-5", "input": "x", "stream": stream})
        assert other.status == status
        assert other.headers["content-type"] == "application/json"
        assert (other.answer["error"]["code"], other.answer["error"]["message"]) == (code, "It failed.")


async def test_a_wrong_key_is_refused_by_the_upstream_itself():
    """A key that the upstream does not know is refused at the upgrade, and the client reads the answer of plain HTTP."""
    async with pair(Options(keys=frozenset({"sk-right"})), key="sk-wrong") as sides:
        for stream in (True, False):
            one, other = await sides.both({"model": "gpt-5", "input": "x", "stream": stream})
            assert one.status == 401
            same_face(one, other)
            one, other = await sides.both(
                {"model": "gpt-5", "input": "x"}, headers={"authorization": "Bearer sk-right"}
            )
            assert one.status == 200
            same_face(one, other)
            assert other.mode == "full"


async def test_a_refused_turn_changes_nothing_that_the_client_can_see():
    """After a refused delta the conversation goes on with the answers that a direct run gives, refusal by refusal."""
    async with pair(Options(rounds=0)) as sides:
        talk = Dialogue(sides, {"store": False, "stream": True})
        await talk.say(USER)
        for error in ERRORS.values():
            sides.arm(Fault(at=RECEIPT, actions=error, matches=asks, times=None))
            await talk.say(USER)
            for upstream in (sides.direct, sides.behind):
                upstream.faults.clear()
            one, other = await talk.say()
            same_face(one, other)
        assert plain(talk.histories[0]) == plain(talk.histories[1])
