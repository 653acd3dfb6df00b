"""The receiving side of one response: the order of events, foreign events, refusals and phases."""

import json

import pytest
from upstream_events import (
    ADDED,
    COMPLETED,
    CREATED,
    DELTA,
    DONE,
    ERROR,
    FAILED,
    FOREIGN,
    ITEM,
    KEEPALIVE,
    NOTICE,
    PART,
    event,
    exchange,
    lifecycle,
)

from gateway.protocol.exchange import Exchange, Refused, Relay, Violation
from gateway.protocol.phases import IllegalTransition, Phase
from gateway.protocol.refusals import Cause


def test_an_ordinary_response():
    """Everything from the first to the terminal event is relayed; the ending holds object, items and usage."""
    one = exchange()
    for each in (CREATED, ADDED, PART, DELTA, DONE):
        outcome = one.feed(each)
        assert isinstance(outcome, Relay) and outcome.kind == json.loads(each)["type"]
        assert one.phase is Phase.STREAMING and not one.permit.may_repeat
    assert isinstance(one.feed(COMPLETED), Relay)
    assert one.phase is Phase.COMPLETED and one.may_commit and one.socket_reusable(survives_errors=False)
    ending = one.ending
    assert (ending.kind, ending.response_id, json.loads(ending.usage)) == (
        "completed",
        "r1",
        {"total_tokens": 3},
    )
    assert [json.loads(item) for item in ending.items] == [ITEM]
    assert json.loads(ending.response)["previous_response_id"] is None
    assert (one.relayed, one.missing_setup, one.foreign) == (6, False, False)


@pytest.mark.parametrize("first", ["response.created", "response.queued", "response.in_progress"])
def test_any_starting_event_starts(first):
    """A response may make itself known by created, queued or in_progress."""
    one = exchange()
    assert isinstance(one.feed(event(first, response={"id": "r1"})), Relay)
    assert (one.phase, one.response_id) == (Phase.STREAMING, "r1")


@pytest.mark.parametrize(
    "text",
    [
        ERROR,
        FAILED,
        event("response.error", error={"message": "m"}),
        event("error", status=429, error={"message": "m"}),
        event("error"),
        event("error", error=None, detail=None),
        event("response.failed"),
    ],
)
def test_an_error_first_is_a_refusal(text):
    """Nothing is relayed, whatever fields the error lacks, and the turn may be repeated."""
    one = exchange()
    outcome = one.feed(text)
    assert isinstance(outcome, Refused) and 400 <= outcome.refusal.status < 600
    assert (
        one.phase is Phase.REFUSED
        and one.permit.may_repeat
        and not one.relayed_anything
        and not one.may_commit
    )


def test_what_comes_before_the_first_event_does_not_count():
    """Keepalives and notices before the response neither start it nor hide that the first event is an error."""
    one = exchange()
    assert one.feed(event("keepalive", sequence_number=0)) == KEEPALIVE
    assert one.feed(event("codex.rate_limits")) == NOTICE
    assert one.feed(event("responsesapi.websocket_timing")) == NOTICE
    assert one.feed(event("vendor.hello")) == NOTICE
    outcome = one.feed(event("error", status=400, error={"code": "previous_response_not_found"}))
    assert outcome.refusal.cause is Cause.NOT_FOUND and not one.foreign


def test_a_refused_socket_lives_on_only_where_the_upstream_says_so():
    """After a refusal the socket is kept only if the error had a status and the upstream is known to survive errors.

    The failure of a response that never began may be an earlier one's, so there it never is.
    """
    stated, bare = event("error", status=400, error={"message": "m"}), ERROR
    for text, survives, want in (
        (stated, True, True),
        (stated, False, False),
        (bare, True, False),
        (FAILED, True, False),
    ):
        assert exchange(text).socket_reusable(survives_errors=survives) is want


@pytest.mark.parametrize(
    "text", [ADDED, DELTA, DONE, COMPLETED, lifecycle("incomplete"), event("response.done", response={})]
)
def test_leftovers_of_an_earlier_response_are_dropped(text):
    """Events before the response's own first one belong to another: the client never sees them and the socket is retired."""
    one = exchange(text)
    assert one.feed(CREATED).kind == "response.created"
    assert one.relayed == 1 and one.foreign
    one.feed(lifecycle("completed", output=[]))
    assert one.may_commit and not one.socket_reusable(survives_errors=True)


@pytest.mark.parametrize(
    "text",
    [
        lifecycle("completed", "r2"),
        lifecycle("failed", "r2"),
        event("response.output_text.delta", response_id="r2", delta="x"),
    ],
)
def test_events_of_another_response_are_dropped(text):
    """An event that names another response is not this client's."""
    one = exchange(CREATED)
    assert one.feed(text) == FOREIGN and one.foreign and one.phase is Phase.STREAMING and one.ending is None


@pytest.mark.parametrize("state", ["created", "queued", "in_progress"])
@pytest.mark.parametrize("before", [[CREATED], [CREATED, ADDED, DELTA]])
def test_two_responses_at_once_break_the_protocol(before, state):
    """Most events name no response, so with a second one under way nothing can be given to the client any more."""
    one = exchange(*before)
    assert isinstance(one.feed(lifecycle(state, "r2")), Violation) and one.relayed == len(before)


def test_the_failure_that_ended_the_response_before_is_not_this_ones():
    """A repeated failure on a socket that served on is dropped; a failure of any other response is this request's refusal."""
    one = Exchange(ours=False, before="r1")
    one.sent()
    assert one.feed(FAILED) == FOREIGN and one.foreign and one.phase is Phase.SENT
    assert isinstance(one.feed(lifecycle("failed", "r2")), Refused)


@pytest.mark.parametrize("last", [COMPLETED, lifecycle("incomplete"), FAILED])
def test_nothing_follows_a_terminal_event(last):
    """After the end everything is dropped and marks the socket, but for keepalives and notices."""
    one = exchange(CREATED, last)
    assert one.feed(event("codex.rate_limits")) == NOTICE and one.feed(event("keepalive")) == KEEPALIVE
    assert not one.foreign and one.socket_reusable(survives_errors=False)
    for text in (DELTA, COMPLETED, lifecycle("created", "r2"), b"rubbish", ERROR):
        assert one.feed(text) == FOREIGN
    assert one.foreign and not one.socket_reusable(survives_errors=True)


def test_nothing_is_taken_before_the_frame_went_out():
    """An event on a socket that has not been asked anything is foreign."""
    one = Exchange(ours=False)
    assert (
        one.feed(CREATED) == FOREIGN
        and one.phase is Phase.PLANNED
        and not one.socket_reusable(survives_errors=True)
    )


def test_an_error_in_the_middle_and_its_failed_response():
    """The error is relayed as it came; one failed response of the same id may follow, nothing else."""
    one = exchange(CREATED, ADDED, DONE)
    assert one.feed(ERROR) == Relay("error", ERROR)
    assert one.phase is Phase.ERRORED and one.ending.kind == "error" and one.ending.refusal.status == 500
    told = json.loads(one.ending.response)
    assert (told["status"], told["error"]["message"], told["output"]) == ("failed", "m", [ITEM])
    assert one.feed(event("keepalive")) == KEEPALIVE and not one.foreign
    assert (
        one.feed(DELTA) == FOREIGN
        and one.feed(COMPLETED) == FOREIGN
        and one.feed(lifecycle("failed", "r2")) == FOREIGN
    )
    assert isinstance(one.feed(FAILED), Relay)
    assert one.phase is Phase.FAILED and one.ending.kind == "failed" and not one.may_commit


def test_an_error_in_the_middle_alone():
    """Without a failed response behind it the error is the ending, and the socket is not used again."""
    one = exchange(CREATED)
    relayed = one.feed(event("response.error", error={"code": "rate_limit_exceeded"}))
    assert relayed == Relay("error", event("error", error={"code": "rate_limit_exceeded"}))
    assert one.ending.kind == "error" and one.ending.refusal.status == 429
    assert not one.socket_reusable(survives_errors=True)


@pytest.mark.parametrize(
    "text", [b"", b"hello", b"[]", b"{}", b'{"type":1}', b'{"type":"response.created"', b"\xff"]
)
@pytest.mark.parametrize("before", [[], [CREATED]])
def test_a_frame_that_is_no_event_breaks_the_protocol(text, before):
    """The caller is told to end the turn as lost; nothing is relayed."""
    one = exchange(*before)
    assert isinstance(one.feed(text), Violation) and one.relayed == len(before)
    one.lost()
    assert one.permit.may_repeat is not bool(before)


def test_a_response_that_changes_its_status_is_no_parent():
    """A completed event about a response that says it is something else cannot be trusted."""
    one = exchange(CREATED, lifecycle("completed", status="in_progress"))
    assert one.phase is Phase.COMPLETED and not one.may_commit


def test_ways_that_are_defects_of_the_caller_raise():
    """Sending twice, losing or cancelling what has ended: illegal."""
    one = exchange(CREATED, COMPLETED)
    for wrong in (one.sent, one.lost, one.cancelled):
        with pytest.raises(IllegalTransition):
            wrong()


def test_leaving_in_the_middle_closes_the_socket():
    """A cancelled or broken response leaves no socket to be used and nothing to be repeated."""
    for leave in (Exchange.cancelled, Exchange.lost):
        one = exchange(CREATED, DELTA)
        leave(one)
        assert (
            not one.socket_reusable(survives_errors=True) and not one.permit.may_repeat and one.permit.ended
        )
        assert one.feed(COMPLETED) == FOREIGN and not one.may_commit
