"""Writing and reading server-sent events."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.sse import EventTooLarge, SseEvent, SseReader, sse_event

ODD = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei"


def read(*chunks, max_event=1 << 20):
    """All events of the chunks and whether one was left unfinished."""
    reader = SseReader(max_event=max_event)
    return [event for chunk in chunks for event in reader.feed(chunk)], reader.unfinished


def cut(text, at):
    """The text in pieces at the given places."""
    places = sorted({place % (len(text) + 1) for place in at})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def test_one_event_is_two_lines_and_a_blank_one():
    """An event is written as an event line, one data line and the blank line."""
    assert sse_event("response.created", b'{"a":1}') == b'event: response.created\ndata: {"a":1}\n\n'


@pytest.mark.parametrize("space", ["\n", "\r", "\r\n", "\n\n  "])
def test_data_is_one_line_and_the_same_json(space):
    """Line ends between JSON tokens become spaces; the value stays the same."""
    value = {"type": "x", "text": ODD, "list": [1, {"b": None}]}
    data = json.dumps(value, ensure_ascii=False, indent=1).replace("\n", space).encode()
    written = sse_event("x", data)
    head, line, *end = written.split(b"\n")
    assert head == b"event: x" and end == [b"", b""] and b"\r" not in written
    assert json.loads(line.removeprefix(b"data: ")) == value


def test_unicode_separators_are_kept():
    """Characters that only Python takes for line ends travel as they came."""
    data = json.dumps({"t": ODD}, ensure_ascii=False).encode()
    assert sse_event("x", data) == b"event: x\ndata: " + data + b"\n\n"


@pytest.mark.parametrize("kind", ["a\nb", "a\r", "\n"])
def test_a_kind_cannot_forge_lines(kind):
    """A kind with a line end is refused, not written."""
    with pytest.raises(ValueError, match="span lines"):
        sse_event(kind, b"{}")


_LINES = st.sampled_from(
    [
        b"data: x",
        b"data:y",
        b"data:  z: w",
        b"data",
        b"event: one",
        b"event:two",
        b": comment",
        b":",
        b"id: 7",
        b"retry: 5",
        b"other: x",
        b"",
        b"",
        "data: \u2028\u2029\u0085".encode(),
        b"data: \x0b\x0c\x1c\x1d\x1e",
    ]
)
_STREAMS = st.lists(st.tuples(_LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=20).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@given(_STREAMS, st.binary(max_size=4), st.lists(st.integers(min_value=0), max_size=12))
def test_chunk_borders_change_nothing(stream, tail, places):
    """Any cutting of the same bytes gives the same events, byte by byte too."""
    stream += tail
    whole = read(stream)
    assert read(*cut(stream, places)) == whole
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == whole


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), st.text())
    )
)
def test_what_is_written_is_read_back(events):
    """Reading what sse_event wrote gives the same kinds and JSON values."""
    written = [
        (kind, json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) for kind, text in events
    ]
    got, unfinished = read(b"".join(sse_event(kind, data) for kind, data in written))
    # One leading space belongs to the format, as every reader has it.
    assert [(event.kind, event.data) for event in got] == written and not unfinished


def test_fields_and_defaults():
    """Data lines are joined, comments and unknown fields dropped, and an event without data is none."""
    got, unfinished = read(
        b"\xef\xbb\xbfdata: a\n: c\nid: 1\ndata\ndata:b\n\nevent: k\n\nevent: k\ndata: c\r\n\r\n"
    )
    assert got == [SseEvent("message", b"a\n\nb"), SseEvent("k", b"c")] and not unfinished


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r"])
def test_an_event_without_its_blank_line_is_unfinished(end):
    """The last event is told of but not given out when the blank line is missing."""
    got, unfinished = read(b"data: a\n\n", b"event: x\ndata: b" + end)
    assert got == [SseEvent("message", b"a")] and unfinished


def test_a_trailing_comment_is_no_unfinished_event():
    """A comment at the end of a stream hides nothing."""
    assert read(b"data: a\n\n: ping") == ([SseEvent("message", b"a")], False)


@pytest.mark.parametrize(
    "chunk", [b"data: xxxxxxxxxx", b"data: xxxx\n", b"event: xxxx\nevent: yyyyyyyy\ndata: z", b": xxxxxxxx"]
)
def test_one_event_is_bounded(chunk):
    """An event that outgrows its bound raises, in one line or in many."""
    with pytest.raises(EventTooLarge):
        read(*[chunk] * 50, max_event=40)


def test_the_bound_is_for_one_event_not_for_the_stream():
    """A long stream of small events passes a small bound, in whatever pieces it comes."""
    stream = b"event: kind\ndata: 0123456789\n\n" * 500
    assert len(read(stream, max_event=40)[0]) == 500
    assert len(read(*(stream[at : at + 7] for at in range(0, len(stream), 7)), max_event=40)[0]) == 500
