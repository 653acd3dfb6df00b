"""Whatever an upstream sends, in whatever order: no exception, and the rules of the phases hold."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.events import LIFECYCLE
from gateway.protocol.exchange import Exchange, Ignored, Refused, Relay, Violation
from gateway.protocol.phases import Phase
from gateway.protocol.sse import sse_event

_KINDS = st.sampled_from(
    [
        *(
            f"response.{state}"
            for state in ("created", "queued", "in_progress", "completed", "failed", "incomplete", "done")
        ),
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.error",
        "response.metadata",
        "error",
        "keepalive",
        "codex.rate_limits",
        "future.event",
    ]
)
_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_ITEMS = _JUNK | st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b"]) | _JUNK,
        "type": st.sampled_from(["message", "function_call"]) | _JUNK,
        "call_id": st.sampled_from(["c", "d"]) | _JUNK,
        "content": st.lists(_JUNK, max_size=2) | _JUNK,
        "status": st.sampled_from(["completed", "in_progress"]) | _JUNK,
        "encrypted_content": _JUNK,
    },
)
_RESPONSES = _JUNK | st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["r1", "r2"]) | _JUNK,
        "status": _JUNK | st.just("completed"),
        "output": st.lists(_ITEMS, max_size=3) | _JUNK,
        "previous_response_id": st.just("resp_ours") | _JUNK,
        "error": _JUNK,
        "usage": _JUNK,
    },
)
_EVENTS = st.fixed_dictionaries(
    {"type": _KINDS},
    optional={
        "response": _RESPONSES,
        "response_id": st.sampled_from(["r1", "r2"]) | _JUNK,
        "item": _ITEMS,
        "output_index": st.integers(0, 2) | _JUNK,
        "content_index": st.integers(0, 1) | _JUNK,
        "sequence_number": st.integers() | _JUNK,
        "stream_id": _JUNK,
        "error": _ITEMS,
        "status": st.integers(300, 600) | _JUNK,
    },
).map(lambda value: json.dumps(value).encode())
_FRAMES = _EVENTS | st.binary(max_size=20) | _JUNK.map(lambda value: json.dumps(value).encode())


@given(st.lists(_FRAMES, max_size=12), st.booleans())
def test_feed_never_raises_and_keeps_the_rules(frames, ours):
    """Arbitrary frames: one ending, no repeat after a relay, one response id, every relayed event fit for SSE."""
    one = Exchange(ours=ours)
    one.sent()
    named = set()
    for frame in frames:
        before, ending = one.phase, one.ending
        outcome = one.feed(frame)
        assert isinstance(outcome, Ignored | Relay | Refused | Violation)
        if isinstance(outcome, Relay):
            assert before in (Phase.SENT, Phase.STREAMING, Phase.ERRORED) and not one.permit.may_repeat
            told = json.loads(outcome.data)
            assert told["type"] == outcome.kind and "stream_id" not in told
            assert sse_event(outcome.kind, outcome.data).count(b"\n") == 3
            if outcome.kind in LIFECYCLE:
                response = told.get("response") or {}
                assert not ours or response.get("previous_response_id") != "resp_ours"
                named |= {response["id"]} if isinstance(response.get("id"), str) else set()
        elif not isinstance(outcome, Refused):
            assert one.phase is before
        if before in (Phase.COMPLETED, Phase.INCOMPLETE, Phase.FAILED, Phase.REFUSED):
            assert one.phase is before and one.ending is ending
    assert len(named) <= 1
    if one.ending is None or one.ending.kind == "error":
        if one.phase in (Phase.SENT, Phase.STREAMING, Phase.ERRORED):
            one.lost()
        failure = json.loads(one.failure_event(code="c", message="m"))
        assert failure["response"]["status"] == "failed" and isinstance(failure["sequence_number"], int)
    else:
        assert isinstance(json.loads(one.ending.response)["output"], list)
