"""Reading along with plain HTTP answers."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.ending import ending_of_json
from gateway.protocol.observer import StreamObserver
from gateway.protocol.sse import sse_event

ODD = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei"
ITEM = {"id": "m1", "type": "message", "content": [{"type": "output_text", "text": ODD}]}
RESPONSE = {"id": "r1", "object": "response", "status": "completed", "output": [ITEM], "usage": {"n": 1}}
SSE = "text/event-stream; charset=utf-8"


def written(kind, **members):
    """One event of a stream, with raw Unicode as real upstreams send it."""
    return sse_event(kind, json.dumps({"type": kind, **members}, ensure_ascii=False).encode())


START = written("response.created", response={"id": "r1", "previous_response_id": "own", "output": []})
DONE = written("response.output_item.done", output_index=0, item=ITEM)
END = written("response.completed", response={**RESPONSE, "output": []})
STREAM = (
    START + written("response.output_text.delta", output_index=0, content_index=0, delta=ODD) + DONE + END
)


def observe(*chunks, content_type=SSE, max_bytes=1 << 20):
    """The ending that an observer of these chunks tells."""
    observer = StreamObserver(content_type, max_bytes=max_bytes)
    for chunk in chunks:
        observer.feed(chunk)
    return observer.end()


@given(st.lists(st.integers(0, len(STREAM))))
def test_a_stream_in_any_pieces(places):
    """However the body is cut, also within the odd separators, the ending is the same and holds the finished items."""
    at = [0, *sorted(places), len(STREAM)]
    ending = observe(*(STREAM[a:b] for a, b in pairwise(at)))
    assert (ending.kind, ending.response_id, ending.contradicts) == ("completed", "r1", False)
    assert [json.loads(item) for item in ending.items] == [ITEM]
    assert json.loads(ending.response)["output"] == [ITEM]


@pytest.mark.parametrize("tail", [b"data: [DONE]\n\n", b": bye\n\n", b""])
def test_trailing_markers_are_no_events(tail):
    """What some upstreams send behind the end does not spoil it."""
    assert observe(STREAM, tail).kind == "completed"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        START,
        START + DONE,
        STREAM[:-1],
        STREAM[:-2],
        STREAM[:-20],
        written("error", error={"message": "m"}),
        START + b"data: rubbish\n\n" + END,
        STREAM + written("response.completed", response={**RESPONSE, "id": "r2"}),
        START.replace(b"r1", b"r0") + END,
    ],
)
def test_streams_that_tell_no_ending(body):
    """Cut, refused, mixed or unreadable streams teach nothing."""
    assert observe(body) is None


@pytest.mark.parametrize("kind", ["failed", "incomplete"])
def test_other_endings(kind):
    """Streams that failed or are incomplete are told apart from completed ones."""
    assert observe(START, written(f"response.{kind}", response={**RESPONSE, "status": kind})).kind == kind


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_a_json_body(content_type):
    """One JSON object is read in whole, whatever the pieces."""
    body = json.dumps(RESPONSE).encode()
    ending = observe(body[:9], body[9:], content_type=content_type)
    assert (ending.kind, ending.response_id, ending.response, ending.usage) == (
        "completed",
        "r1",
        body,
        b'{"n": 1}',
    )
    assert [json.loads(item) for item in ending.items] == [ITEM]


@pytest.mark.parametrize(
    "change",
    [
        {"status": "in_progress"},
        {"status": "queued"},
        {"status": None},
        {"status": []},
        {"id": None},
        {"id": 7},
        {"output": None},
        {"output": {}},
    ],
)
def test_json_that_is_no_finished_response(change):
    """An object that is not a finished response teaches nothing."""
    assert ending_of_json(json.dumps({**RESPONSE, **change}).encode()) is None


@pytest.mark.parametrize("body", [b"", b"[]", b'{"id":"r1"', b"null", b'{"error":{}}', b"\x1f\x8b\x00"])
def test_json_that_is_none(body):
    """Cut, compressed and other bodies teach nothing."""
    assert observe(body, content_type="application/json") is None


@pytest.mark.parametrize("content_type", ["", "text/html", "application/octet-stream"])
def test_other_content_is_not_looked_at(content_type):
    """Only event streams and JSON are read."""
    assert observe(STREAM, content_type=content_type) is None


def test_too_large_answers_are_given_up_on():
    """More than the bound, in one event, in items or in one object, costs the knowledge and nothing else."""
    large = {**ITEM, "content": [{"type": "output_text", "text": "x" * 600}]}
    items = [
        written("response.output_item.done", output_index=at, item={**large, "id": f"m{at}"})
        for at in range(3)
    ]
    assert observe(START, *items, END, max_bytes=1500) is None
    assert observe(START, *items, END, max_bytes=4000).kind == "completed"
    assert observe(START, written("response.x", pad="x" * 1600), END, max_bytes=1500) is None
    assert (
        observe(
            json.dumps({**RESPONSE, "pad": "x" * 1600}).encode(),
            content_type="application/json",
            max_bytes=1500,
        )
        is None
    )


@given(
    st.lists(st.binary(max_size=30) | st.sampled_from([START, DONE, END, b"data: {}\n\n"]), max_size=8),
    st.sampled_from([SSE, "application/json"]),
)
def test_observing_never_raises(chunks, content_type):
    """Whatever is relayed, the observer only ever gives an ending or none."""
    ending = observe(*chunks, content_type=content_type)
    assert ending is None or ending.kind in {"completed", "incomplete", "failed", "error"}
