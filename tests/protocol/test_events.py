"""Reading what kind of event a frame is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.events import LIFECYCLE, STARTS, TERMINALS, is_notice, kind_of, open_json


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b'{"type":"response.output_text.delta","delta":"x"}', "response.output_text.delta"),
        (b'{"type": "response.created", "response": {}}', "response.created"),
        (
            b'{"sequence_number":4,"item":{"type":"message"},"type":"response.output_item.done"}',
            "response.output_item.done",
        ),
        (rb'{"type":"\u0065rror"}', "error"),
        (rb'{"type":"response.output_text.delta","delta":"\ud83d"}', "response.output_text.delta"),
        (b'{"type":"x","logprob":-Infinity}', "x"),
        (b' {"type":"x"}\n', "x"),
        (
            b'{"type":"response.output_text.delta","output_index":"odd","stream_id":5}',
            "response.output_text.delta",
        ),
        (b'{"type":""}', ""),
    ],
)
def test_kind(event, kind):
    """The top-level type is found wherever it stands and however it is written."""
    assert kind_of(event) == kind


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"hello",
        b"[]",
        b'"type"',
        b"{}",
        b'{"type":null}',
        b'{"type":7}',
        b'{"item":{"type":"x"}}',
        b'{"type":"response.output_text.delta","delta":"cut',
        b'{"type":"x"}{"type":"x"}',
        rb'{"type":"two\nlines"}',
        rb'{"type":7,"a":"\ud800"}',
        b'{"type":"\xff"}',
        b'{"type":"x","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xef\xbb\xbf" + b'{"type":"x"}',
    ],
)
def test_no_kind(event):
    """Frames that are no JSON object with a usable type have no kind."""
    assert kind_of(event) is None


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")), st.booleans())
def test_any_type_is_given_back(name, ascii_only):
    """A type of any characters but line ends is read as it was written."""
    assert kind_of(json.dumps({"a": [1], "type": name}, ensure_ascii=ascii_only).encode()) == name


@given(st.binary())
def test_rubbish_never_raises(event):
    """Reading the kind of arbitrary bytes gives a string or None."""
    assert kind_of(event) is None or isinstance(kind_of(event), str)


def test_notices():
    """Only what is about the transport counts as a notice; unknown events of a response do not."""
    assert all(map(is_notice, ("codex.rate_limits", "responsesapi.websocket_timing", "response.metadata")))
    assert not any(
        map(is_notice, ("keepalive", "error", "response.created", "response.future.delta", "codexish"))
    )


def test_sets_of_lifecycle_events():
    """Every lifecycle event either can start a response or ends it."""
    assert STARTS | TERMINALS == LIFECYCLE and not STARTS & TERMINALS and len(LIFECYCLE) == 6


def test_open_json_raises_only_value_errors():
    """Deep nesting is an ordinary error, not a crash."""
    for text in (b"[" * 100_000, b"nope", b"\xff", rb'"\ud800' + b"[" * 100_000):
        with pytest.raises(ValueError):  # noqa: PT011
            open_json(text)
