"""Ending a relayed stream whose sender is gone: wherever it broke, what went out are whole events, and the ending continues them."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import so_far
from gateway.protocol.exchange import Exchange
from gateway.protocol.so_far import StreamSoFar
from gateway.protocol.sse import SseReader, sse_event

ODD = "a\u2028b\u0085c" * 20


def written(number, kind, **members):
    """One event of a stream."""
    event = {"type": kind, "sequence_number": number, **members}
    return sse_event(kind, json.dumps(event, ensure_ascii=False).encode())


def item(number):
    """A finished message."""
    content = [{"type": "output_text", "text": f"{number} {ODD}"}]
    return {"id": f"m{number}", "type": "message", "status": "completed", "content": content}


def stream(items):
    """The events of a response with so many items, up to its end."""
    response = {"id": "r1", "object": "response", "status": "in_progress", "model": "m", "output": []}
    kinds = [("response.created", {"response": response}), ("response.in_progress", {"response": response})]
    for at in range(items):
        kinds.append(
            ("response.output_item.added", {"output_index": at, "item": {**item(at), "content": []}})
        )
        kinds += [("response.output_text.delta", {"output_index": at, "content_index": 0, "delta": ODD})] * 3
        kinds.append(("response.output_item.done", {"output_index": at, "item": item(at)}))
    whole = {**response, "status": "completed", "output": [item(at) for at in range(items)]}
    kinds.append(("response.completed", {"response": whole}))
    return [written(number, kind, **members) for number, (kind, members) in enumerate(kinds)]


def expected(passed):
    """What an exchange that saw these bytes says, or None after an end."""
    exchange = Exchange(ours=False)
    exchange.sent()
    for event in SseReader(max_event=1 << 20).feed(passed):
        exchange.feed(event.data)
    if exchange.ending is not None:
        return None
    return sse_event("response.failed", exchange.failure_event(code="c", message="m"))


@given(st.integers(0, 3), st.lists(st.integers(0, 20_000), max_size=12), st.integers(0, 20_000))
def test_wherever_it_breaks(items, places, end):
    """Cut into any pieces and ended anywhere: whole events went out, and the ending is that of who has seen all of them."""
    text = b"".join(stream(items))[:end]
    at = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    told = StreamSoFar()
    passed = b"".join(told.feed(text[a:b]) for a, b in pairwise(at))
    assert text.startswith(passed)
    assert passed == b"" or passed.endswith(b"\n\n")
    assert b"\n\n" not in text[len(passed) :]
    assert told.failure(code="c", message="m") == expected(passed)
    assert passed + told.rest() == text


def test_the_ending_continues_the_stream():
    """The next number, the same response, and the items that were finished."""
    events = stream(2)
    told = StreamSoFar()
    for event in events[:10]:
        told.feed(event)
    [ending] = SseReader(max_event=1 << 20).feed(told.failure(code="worker_lost", message="gone"))
    value = json.loads(ending.data)
    assert (ending.kind, value["type"], value["sequence_number"]) == ("response.failed",) * 2 + (10,)
    response = value["response"]
    assert (response["id"], response["status"]) == ("r1", "failed")
    assert response["error"] == {"code": "worker_lost", "message": "gone"}
    assert [each["id"] for each in response["output"]] == ["m0"]


@pytest.mark.parametrize("pieces", [1, 3])
def test_an_event_too_large_to_be_held_back(pieces, monkeypatch):
    """Its beginning goes out; then nothing can be said before its end, and after that everything."""
    monkeypatch.setattr(so_far, "_MOST_HELD", 100)
    events = stream(1)
    large = events[-2]
    told = StreamSoFar()
    for event in events[:-2]:
        told.feed(event)
    cut = [120 + len(large) * number // 10 for number in range(pieces)]
    for a, b in pairwise([0, *cut]):
        told.feed(large[a:b])
    assert told.failure(code="c", message="m") is None
    told.feed(large[cut[-1] :])
    assert told.failure(code="c", message="m") == expected(b"".join(events[:-1]))


def test_more_than_is_kept(monkeypatch):
    """A stream with more items than are kept still gets its ending, without the later ones."""
    monkeypatch.setattr(so_far, "_MOST", 100)
    told = StreamSoFar()
    events = stream(3)
    for event in events[:-1]:
        told.feed(event)
    [ending] = SseReader(max_event=1 << 20).feed(told.failure(code="c", message="m"))
    value = json.loads(ending.data)
    assert (value["response"]["id"], value["sequence_number"]) == ("r1", len(events) - 1)
