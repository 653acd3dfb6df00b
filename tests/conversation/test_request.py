"""Reading a request's body: what can go over a socket, and the raw items and facts of what can."""

from __future__ import annotations

import json

import pytest

from gateway.conversation.fields import allows_delta
from gateway.conversation.reading import read_request
from gateway.conversation.request import NotUpgradable, Request
from tests.conversation.histories import DIGESTER, request

HTTP_ONLY = {
    "not JSON": b"{",
    "no object": b"[]",
    "a string": b'"x"',
    "nothing": b"",
    "byte order mark": b'\xef\xbb\xbf{"model":"m","input":"x"}',
    "not UTF-8": b'{"model":"m","input":"\xff"}',
    "lone surrogate": b'{"model":"m","input":"\\ud800"}',
    "NaN": b'{"model":"m","input":"x","temperature":NaN}',
    "duplicate key": b'{"model":"m","input":"x","input":"y"}',
    "duplicate key, escaped": b'{"model":"m","input":"x","\\u0069nput":"y"}',
    "bytes behind": b'{"model":"m","input":"x"}{}',
    "nested too deeply": b'{"model":"m","input":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "background": b'{"model":"m","input":"x","background":true}',
    "background options": b'{"model":"m","input":"x","background_options":{}}',
    "conversation": b'{"model":"m","input":"x","conversation":"conv_1"}',
    "prompt": b'{"model":"m","input":"x","prompt":{"id":"p"}}',
    "type": b'{"model":"m","input":"x","type":"response.create"}',
    "stream_id": b'{"model":"m","input":"x","stream_id":"a"}',
    "generate": b'{"model":"m","input":"x","generate":false}',
    "stream no boolean": b'{"model":"m","input":"x","stream":1}',
    "background no boolean": b'{"model":"m","input":"x","background":"no"}',
    "input a number": b'{"model":"m","input":1}',
    "input an object": b'{"model":"m","input":{}}',
    "input null": b'{"model":"m","input":null}',
    "no input": b'{"model":"m"}',
    "stream_options without stream": b'{"model":"m","input":"x","stream_options":{}}',
    "parent a number": b'{"model":"m","input":"x","previous_response_id":5}',
    "parent empty": b'{"model":"m","input":"x","previous_response_id":""}',
    "more members than any request has": b'{"model":"m","input":"x",'
    + b",".join(b'"k%d":1' % n for n in range(5000))
    + b"}",
    "more new items than one turn may read": b'{"model":"m","input":[' + b",".join([b"1"] * 50_001) + b"]}",
    "store a string": b'{"model":"m","input":"x","store":"no"}',
}
SOCKET = {
    "text": b'{"model":"m","input":"x"}',
    "spaces": b' { "model" : "m" , "input" : [ ] } ',
    "nulls": b'{"model":"m","input":"x","background":null,"stream":null,"conversation":null,"prompt":null}',
    "stream options": b'{"model":"m","input":"x","stream":true,"stream_options":{"include_obfuscation":false}}',
    "unknown field": b'{"model":"m","input":"x","x_new":[1,{"a":1,"a":2}]}',
    "no model": b'{"input":"x"}',
    "huge number": b'{"model":"m","input":"x","seed":1e400}',
    "as many items as one turn may read": b'{"model":"m","input":[' + b",".join([b"1"] * 50_000) + b"]}",
    "elements of any kind": b'{"model":"m","input":[1,null,"x",[],{}]}',
}


@pytest.mark.parametrize("name", HTTP_ONLY)
def test_what_a_socket_cannot_carry_goes_over_plain_http(name):
    """Every body that means something else on a socket, or cannot be read strictly, is left as it is."""
    assert isinstance(read_request(HTTP_ONLY[name], DIGESTER), NotUpgradable)


@pytest.mark.parametrize("name", SOCKET)
def test_everything_else_can_go_over_a_socket(name):
    """Unknown fields and odd items are the upstream's to judge."""
    assert isinstance(read_request(SOCKET[name], DIGESTER), Request)


def test_items_are_the_clients_own_bytes():
    """Raw items keep spacing, escapes, numbers and unknown keys."""
    items = [b'{"role": "user","content":"\\u00e9"}', b'{"type":"x","n":1.0,"big":18446744073709551617}']
    found = read_request(b'{"model":"m","input":[' + b" , ".join(items) + b"]}", DIGESTER)

    assert isinstance(found, Request)
    assert list(found.items) == items


def test_a_string_input_is_one_user_message():
    """The same text as a string, as a message and as a part has the same facts."""
    message = request([{"role": "user", "content": "hé"}])
    part = request([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hé"}]}])
    text = read_request(json.dumps({"model": "m", "input": "hé"}).encode(), DIGESTER)

    assert isinstance(text, Request)
    assert text.facts == message.facts == part.facts


ALLOWED = {
    "nothing": ({}, {}),
    "instructions": ({"instructions": "a"}, {"instructions": "b"}),
    "tools": ({"tools": [{"type": "x"}]}, {"tools": [{"type": "y"}]}),
    "a new field": ({}, {"temperature": 0.2}),
    "sampling": ({"temperature": 0.1}, {"temperature": 0.2}),
    "text": ({"text": {"format": {"type": "text"}}}, {"text": {"format": {"type": "json_object"}}}),
    "effort": ({"reasoning": {"effort": "low"}}, {"reasoning": {"effort": "high"}}),
    "metadata": ({"metadata": {"a": "1"}}, {"metadata": {"a": "2"}}),
    "null for absent": ({"user": None}, {}),
    "default for absent": (
        {"store": True, "truncation": "disabled", "tool_choice": "auto", "temperature": 1.0},
        {},
    ),
    "absent for default": ({}, {"store": True, "parallel_tool_calls": True, "top_p": 1}),
    "stream": ({"stream": True}, {"stream": False}),
    "bookkeeping": ({"client_metadata": {"a": 1}}, {"client_metadata": {"a": 2}}),
    "key order": (
        {"reasoning": {"context": "auto", "effort": "low"}},
        {"reasoning": {"effort": "low", "context": "auto"}},
    ),
}
FORBIDDEN = {
    "model": ({}, {"model": "n"}),
    "store": ({}, {"store": False}),
    "context_management": ({}, {"context_management": [{"type": "compaction"}]}),
    "safety_identifier": ({"safety_identifier": "a"}, {"safety_identifier": "b"}),
    "user": ({"user": "a"}, {"user": "b"}),
    "reasoning context": ({"reasoning": {"context": "auto"}}, {"reasoning": {"context": "all_turns"}}),
    "truncation": ({"truncation": "auto"}, {"truncation": "auto"}),
    "a field left out": ({"instructions": "a"}, {}),
    "tools left out": ({"tools": [{"type": "x"}]}, {"tools": []}),
    "an unknown field left out": ({"x_new": 0}, {}),
}


def fields(overrides):
    return request([], **overrides).fields


@pytest.mark.parametrize("name", ALLOWED)
def test_a_change_that_is_sent_along_allows_a_delta(name):
    """Fields are per request, so a new value in the frame is enough."""
    before, after = ALLOWED[name]

    assert allows_delta(fields(before), fields(after), any_change=False)


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_change_of_what_the_items_mean_does_not(name):
    """What decides about held items, or could be inherited when left out, makes a full turn."""
    before, after = FORBIDDEN[name]

    assert not allows_delta(fields(before), fields(after), any_change=False)


@pytest.mark.parametrize("name", ALLOWED)
def test_any_change_can_be_made_a_full_turn(name):
    """With settings = full only equal fields allow a delta; the client's own bookkeeping and the transport do not count."""
    before, after = ALLOWED[name]
    same = {
        "nothing",
        "null for absent",
        "default for absent",
        "absent for default",
        "stream",
        "bookkeeping",
        "key order",
    }

    assert allows_delta(fields(before), fields(after), any_change=True) == (name in same)
