"""What a client sees through the gateway is what the API itself would have shown it, turn by turn."""

from __future__ import annotations

import itertools

import pytest

from gateway.simulator import Options
from tests.faces.pairs import FUNCTION, TOOLS, USER, Dialogue, pair, same_face

ABSENT = object()


def fields(**given):
    return {name: value for name, value in given.items() if value is not ABSENT}


@pytest.mark.parametrize("stream", [True, False, None, ABSENT], ids=["true", "false", "null", "absent"])
@pytest.mark.parametrize("store", [True, False, None, ABSENT], ids=["true", "false", "null", "absent"])
@pytest.mark.parametrize(("tools", "thinks"), [(TOOLS, True), (TOOLS, False), ([], True)])
async def test_first_turns_and_deltas_show_the_same(stream, store, tools, thinks):
    """Status, content type, order and content of events, and JSON are equal for a full turn and for the deltas behind it."""
    async with pair(Options(reasoning=thinks, rounds=2 if tools else 0)) as sides:
        talk = Dialogue(sides, fields(stream=stream, store=store, tools=tools))
        modes = []
        for number in range(4):
            talk.answer_calls()
            items = () if tools and 0 < number < 3 else ({"role": "user", "content": f"part {number}"},)
            one, other = await talk.say(*items)
            same_face(one, other)
            modes.append(other.mode)
        assert modes == ["full", "delta", "delta", "delta"]
        assert bool(other.events) is (stream is True)
        assert len(sides.behind.journal.opened()) == 1
        assert not sides.behind.journal.creates("http")


VARIANTS = {
    "cut off by a limit": {"max_output_tokens": 3},
    "a schema": {
        "text": {
            "format": {
                "type": "json_schema",
                "name": "one",
                "schema": {"type": "object", "properties": {"said": {"type": "string"}}},
            }
        }
    },
    "a json object": {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
    "encrypted reasoning": {"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "high"}},
    "metadata and tier": {
        "metadata": {"a": "b"},
        "service_tier": "flex",
        "user": "u1",
        "safety_identifier": "s",
    },
    "one call at a time": {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    "one named tool": {"tools": TOOLS, "tool_choice": {"type": "function", "name": "look_up"}},
    "no tool": {"tools": [FUNCTION], "tool_choice": "none"},
    "truncation": {"truncation": "auto"},
    "nulls": {
        "instructions": None,
        "previous_response_id": None,
        "temperature": None,
        "tools": None,
        "background": None,
    },
    "numbers": {"temperature": 0.10, "top_p": 1.0, "x_big": 12345678901234567890, "x_small": 1e-7},
    "background false": {"background": False},
    "instructions": {"instructions": 'Zürich \u2028 "quoted" \\ \u0000 😀'},
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", VARIANTS)
async def test_parameters_mean_the_same(name, stream):
    """Every field reaches the upstream as it was sent, on a first turn and on the next one, and its answer comes back."""
    async with pair(Options(reasoning=True)) as sides:
        talk = Dialogue(sides, {**VARIANTS[name], "stream": stream})
        for text in ("first", "second", "third"):
            same_face(*await talk.say({"role": "user", "content": text}))
            talk.answer_calls()
        assert len(sides.behind.journal.creates("ws")) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"keepalives": True},
        {"obfuscation": True},
        {"survives_errors": False},
        {"lanes": True},
        {"words": 3000},
    ],
    ids=str,
)
async def test_kinds_of_upstream_show_the_same(options):
    """Keepalives in a stream, padding of deltas and long answers come through as they are, and in their order."""
    async with pair(Options(**options)) as sides:
        talk = Dialogue(sides, {"stream": True, "stream_options": {"include_obfuscation": True}})
        for text in ("first", "second"):
            one, other = await talk.say({"role": "user", "content": text})
            same_face(one, other)
        assert other.mode == "delta"


async def test_padding_can_be_switched_off():
    """The option that switches padding off reaches the upstream over a socket too."""
    async with pair(Options(obfuscation=True)) as sides:
        talk = Dialogue(sides, {"stream": True, "stream_options": {"include_obfuscation": False}})
        one, other = await talk.say(USER)
        same_face(one, other)
        assert not any("obfuscation" in event for event in other.events)


REFUSED = {
    "an unknown model": {"model": "no-such-model"},
    "no model": {"model": None},
    "a model that is no text": {"model": 5},
    "a limit too low": {"max_output_tokens": 0},
    "a wrong type": {"temperature": "hot"},
    "a wrong truncation": {"truncation": "sometimes"},
    "a tool without type": {"tools": [{"name": "x"}]},
    "a tool without name": {"tools": [{"type": "function"}]},
    "metadata of numbers": {"metadata": {"a": 1}},
    "an unknown parent": {"previous_response_id": "resp_unknown"},
    "a parent and a conversation": {"previous_response_id": "resp_unknown", "conversation": "conv_1"},
    "stream options without stream": {"stream": False, "stream_options": {}},
    "a stream that is no boolean": {"stream": "yes"},
    "a background that is no boolean": {"background": "yes"},
    "a store that is no boolean": {"store": 1},
    "a field of the socket": {"generate": True},
    "a lane": {"stream_id": "a"},
    "a type": {"type": "response.create"},
}
REFUSED_ITEMS = {
    "no role": {"content": "x"},
    "an unknown role": {"role": "nobody", "content": "x"},
    "no content": {"role": "user"},
    "an item that is no object": "text",
    "an orphaned output": {"type": "function_call_output", "call_id": "call_none", "output": "x"},
    "an output without call": {"type": "function_call_output", "output": "x"},
    "an unknown reference": {"type": "item_reference", "id": "msg_0000000000000000000000"},
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_refused_parameters_are_refused_alike(stream):
    """A request that the API refuses gets the same status and the same error, first and in mid-conversation, stream or not."""
    async with pair(Options(rounds=0)) as sides:
        talk = Dialogue(sides, {"stream": stream})
        for _round in range(2):
            for name, change in REFUSED.items():
                one, other = await talk.say(USER, **change)
                assert one.status >= 400, name
                same_face(one, other)
                for history in talk.histories:
                    history.pop()
            for name, item in REFUSED_ITEMS.items():
                one, other = await talk.say(item)
                assert one.status >= 400, name
                same_face(one, other)
                for history in talk.histories:
                    history.pop()
            same_face(*await talk.say(USER))


async def test_bodies_that_are_no_requests_are_refused_alike():
    """Whatever is no request at all gets the API's own answer."""
    bodies = [
        b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"model":"gpt-5"}', b'{"model":"gpt-5","input":5}', b"{}",
        b'{"model":"gpt-5","input":"\xed\xa0\x80"}', b'{"model":"gpt-5","input":"a"} trailing', b'{"input":null,"model":"gpt-5"}',
    ]  # fmt: skip
    async with pair() as sides:
        for data in bodies:
            one, other = await sides.both(None, data=data)
            assert one.status == 400, data
            same_face(one, other)


async def test_twice_the_same_key_is_the_apis_to_judge():
    """A body with a repeated key goes over plain HTTP byte for byte, so that nobody else decides which one counts."""
    async with pair() as sides:
        data = b'{"model":"gpt-5","input":"a","input":"b"}'
        one, other = await sides.both(None, data=data)
        same_face(one, other)
        assert other.reason == "not_upgradable"
        assert sides.behind.journal.creates("http")[0].raw == data


@pytest.mark.parametrize("stream", [True, False])
async def test_the_clients_own_parent_is_shown_as_it_sent_it(stream):
    """A client that chains by itself sees its own parent in every event, and no other client sees one of ours."""
    async with pair() as sides:
        for api in (sides.one, sides.other):
            first = await api.create({"model": "gpt-5", "input": "hello", "stream": stream})
            chained = {
                "model": "gpt-5",
                "input": "more",
                "stream": stream,
                "previous_response_id": first.answer["id"],
            }
            seen = await api.create(chained)
            shown = {
                event["response"]["previous_response_id"] for event in seen.events if "response" in event
            } | {seen.answer["previous_response_id"]}
            assert shown == {first.answer["id"]}
        assert seen.reason == "client_parent"
        talk = Dialogue(sides, {"stream": stream})
        await talk.say(USER)
        _, other = await talk.say(USER)
        assert other.mode == "delta"
        assert other.answer["previous_response_id"] is None
        assert b"resp_" in other.raw and first.answer["id"].encode() not in other.raw


async def test_switched_off_the_own_headers_are_gone():
    """Without them nothing of the gateway's own is left in the head of an answer."""
    async with pair(expose_mode=False) as sides:
        for one, other in itertools.repeat(await sides.both({"model": "gpt-5", "input": "x"}), 1):
            same_face(one, other)
            assert not [name for name in other.headers if name.startswith("x-upwire")]
