"""The frame that starts work."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.frames import create_frame
from gateway.protocol.raw import split_object

BODY = rb'{ "model" : "m", "stream":true, "n":1e0, "big":123456789012345678901234567890, "input":[ {"a" : "\u00e9"} ], "background":null, "x":{"z":1,"a":2} }'


def test_every_member_travels_byte_for_byte():
    """A full frame is the body with a type, without stream and background, values and order untouched."""
    want = (
        rb'{"type":"response.create","model":"m","n":1e0,"big":123456789012345678901234567890,'
        rb'"input":[ {"a" : "\u00e9"} ],"x":{"z":1,"a":2}}'
    )
    assert create_frame(split_object(BODY), previous_response_id=None, items=None) == want


def test_a_delta_replaces_the_input_in_its_place():
    """With items and a parent only the input changes and the parent is added."""
    frame = create_frame(split_object(BODY), previous_response_id='resp_"1', items=[b'{"i" : 1}', b"2"])
    assert b'"input":[{"i" : 1},2],"x":{"z":1,"a":2},"previous_response_id":"resp_\\"1"}' in frame
    assert json.loads(frame)["previous_response_id"] == 'resp_"1'


@pytest.mark.parametrize(
    ("body", "parent", "items", "want"),
    [
        (b'{"previous_response_id":null,"input":"x"}', "r", [], b'"previous_response_id":"r","input":[]'),
        (
            b'{"previous_response_id":null,"input":"x"}',
            None,
            None,
            b'"previous_response_id":null,"input":"x"',
        ),
        (
            b'{"previous_response_id":"own","input":"x"}',
            None,
            None,
            b'"previous_response_id":"own","input":"x"',
        ),
        (b'{"model":"m"}', None, [b"1"], b'"model":"m","input":[1]'),
        (b'{"stream":false,"background":false}', None, None, b""),
    ],
)
def test_parent_and_input_where_the_client_left_them_out_or_null(body, parent, items, want):
    """A null parent is replaced in place, the client's own is kept, and missing members are added."""
    frame = create_frame(split_object(body), previous_response_id=parent, items=items)
    assert frame == b'{"type":"response.create"' + (b"," + want if want else b"") + b"}"


@pytest.mark.parametrize("name", ["type", "stream_id", "generate"])
def test_members_that_mean_something_else_on_a_socket_are_refused(name):
    """Such bodies belong on plain HTTP; framing them is the caller's mistake."""
    with pytest.raises(ValueError, match="something else"):
        create_frame(split_object(json.dumps({name: 1}).encode()), previous_response_id=None, items=None)


@given(
    st.dictionaries(
        st.text().filter(lambda name: name not in {"type", "stream_id", "generate", "stream", "background"}),
        st.integers(),
    ),
    st.none() | st.text(),
    st.none() | st.lists(st.integers()),
)
def test_the_frame_is_the_body_with_the_given_changes(body, parent, items):
    """As a value the frame is the body plus type, parent and input."""
    raw = None if items is None else [json.dumps(item).encode() for item in items]
    frame = create_frame(split_object(json.dumps(body).encode()), previous_response_id=parent, items=raw)
    want = {"type": "response.create"} | body
    want |= {} if parent is None else {"previous_response_id": parent}
    want |= {} if items is None else {"input": items}
    assert json.loads(frame) == want
