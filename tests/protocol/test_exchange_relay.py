"""What of an event is changed on its way to the client, and what never is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upstream_events import ADDED, CREATED, DELTA, DONE, NOTICE, PART, event, exchange, lifecycle

from gateway.protocol.exchange import Relay, Violation
from gateway.protocol.phases import Phase


@pytest.mark.parametrize("kind", ["created", "queued", "in_progress", "completed", "incomplete", "failed"])
@pytest.mark.parametrize("parent", [b"null", b'"resp_of_the_client"'])
def test_only_the_parent_changes_in_lifecycle_events(kind, parent):
    """Of a lifecycle event every byte stays but the value of response.previous_response_id, at that place only."""
    start, end = (
        b'{ "response" : {"id":"r1","metadata":{"previous_response_id":"resp_ours"},"previous_response_id" :',
        (
            b',"error":{"message":"resp_ours"},"output":[ ],\n"x":1e0,"big":123456789012345678901 } , "previous_response_id":"resp_ours",'
            b'"type":"response.' + kind.encode() + b'","n":1.0}'
        ),
    )
    one = exchange(*[] if kind in {"created", "queued", "in_progress"} else [CREATED], client_parent=parent)
    outcome = one.feed(start + b' "resp_ours"' + end)
    assert outcome == Relay(f"response.{kind}", start + b" " + parent + end)


@given(
    st.dictionaries(
        st.text().filter(lambda name: name not in {"id", "previous_response_id"}), st.text() | st.integers()
    ),
    st.sampled_from([(",", ":"), (", ", ": "), (",\n", " :\t")]),
    st.booleans(),
)
def test_lifecycle_events_keep_all_other_bytes(members, separators, ours):
    """Whatever the members and spacing, nothing but the one value differs, and nothing at all without a parent of ours."""
    mark = "resp_mark_0123456789"
    value = {"type": "response.created", "response": {**members, "previous_response_id": mark, "id": "r1"}}
    text = json.dumps(value, separators=separators).encode()
    got = exchange(ours=ours).feed(text)
    assert isinstance(got, Relay)
    assert got.data == (text.replace(json.dumps(mark).encode(), b"null") if ours else text)


def test_a_response_that_does_not_tell_its_parent_is_not_made_to():
    """An upstream that leaves the member out is relayed as it is."""
    text = b'{"type":"response.created","response":{"id":"r1"}}'
    assert exchange().feed(text) == Relay("response.created", text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b'{"type":"response.x.delta","stream_id":"l1","a":1}', b'{"type":"response.x.delta","a":1}'),
        (b'{"stream_id":null, "type":"response.x.delta"}', b'{"type":"response.x.delta"}'),
        (b'{"type":"response.x.delta" , "stream_id":"l1"}', b'{"type":"response.x.delta"}'),
        (
            b'{"type":"response.in_progress","stream_id":"l1","response":{"id":"r1"}}',
            b'{"type":"response.in_progress","response":{"id":"r1"}}',
        ),
        (
            b'{"type":"response.x.delta","item":{"stream_id":"l1"}}',
            b'{"type":"response.x.delta","item":{"stream_id":"l1"}}',
        ),
    ],
)
def test_stream_ids_are_taken_out(text, want):
    """Lanes are a matter of the socket: clients of plain HTTP never see them."""
    assert exchange(CREATED).feed(text).data == want


@pytest.mark.parametrize(
    "text",
    [
        event("keepalive", sequence_number=4),
        event("response.future.thing", x=[1]),
        event("vendor.x"),
        lifecycle("created"),
    ],
)
def test_unknown_events_and_keepalives_are_relayed_unchanged(text):
    """Once the response runs, what we do not know goes through as it came."""
    one = exchange(CREATED, ours=False)
    assert one.feed(text).data == text


@pytest.mark.parametrize("kind", ["codex.response.metadata", "responsesapi.x", "response.metadata"])
def test_notices_are_never_relayed(kind):
    """Notices about the transport stay on the socket."""
    assert exchange(CREATED).feed(event(kind)) == NOTICE


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"response.completed"}',
        b'{"type":"response.completed","response":null}',
        b'{"type":"response.completed","response":{"id":"r1","id":"r1"}}',
        b'{"type":"response.completed","response":{"id":"r1"},"response":{"id":"r2"}}',
    ],
)
def test_a_terminal_event_that_cannot_be_opened(text):
    """A terminal event whose response is missing or ambiguous is no ending."""
    one = exchange(CREATED)
    assert isinstance(one.feed(text), Violation) and one.ending is None and one.phase is Phase.STREAMING


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("completed", "completed"),
        ("failed", "failed"),
        ("incomplete", "incomplete"),
        ("cancelled", "failed"),
        (None, "completed"),
    ],
)
def test_the_alias_of_the_terminal_event(status, kind):
    """response.done becomes the terminal event it stands for, which is the only one that clients of HTTP know."""
    one = exchange(CREATED)
    outcome = one.feed(event("response.done", response={"id": "r1", "status": status, "output": []}))
    assert outcome.kind == json.loads(outcome.data)["type"] == f"response.{kind}"
    assert one.ending.kind == kind


@pytest.mark.parametrize(
    ("events", "missing"),
    [
        ([ADDED, PART, DELTA], False),
        ([ADDED, DELTA], True),
        ([PART, DELTA], True),
        ([DELTA], True),
        (
            [
                event(
                    "response.output_item.added", output_index=0, item={"content": [{"type": "output_text"}]}
                ),
                DELTA,
            ],
            False,
        ),
        ([ADDED, event("response.function_call_arguments.delta", output_index=0, delta="{")], False),
        ([ADDED, event("response.function_call_arguments.delta", output_index=1, delta="{")], True),
        ([ADDED, event("response.function_call_arguments.delta", delta="{")], True),
        ([event("response.audio.delta", delta="x")], False),
        ([DONE], False),
    ],
)
def test_deltas_without_their_setup_are_noticed(events, missing):
    """A delta for an item or part that was never announced is relayed, but remembered."""
    one = exchange(CREATED, *events)
    assert one.missing_setup is missing and one.relayed == 1 + len(events)
