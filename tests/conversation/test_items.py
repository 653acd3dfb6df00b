"""Equality of items, level by level: the closed list of what is ignored, and everything else compared."""

from __future__ import annotations

import json

import pytest

from gateway.conversation.digests import Digester
from gateway.conversation.items import Kind, Level, equal, facts_of, refers_to

DIGESTER = Digester(b"k" * 32)

MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hi\n", "annotations": [{"type": "x"}], "logprobs": []}],
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "f",
    "arguments": '{"a":"h\\u00e9", "b":1}',
}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "A"}],
    "encrypted_content": "e",
}
PLAIN_REASONING = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "A"}]}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}


def facts(item):
    return facts_of(item if isinstance(item, bytes) else json.dumps(item).encode(), DIGESTER)


def without(item, *keys):
    return {k: v for k, v in item.items() if k not in keys}


def lowest(client, held):
    """The lowest level at which the client's item stands for the held one, or None."""
    return next((level for level in Level if equal(facts(client), facts(held), level)), None)


IGNORED = {
    "key order": (dict(reversed(CALL.items())), CALL),
    "null for absent": ({**REASONING, "content": None, "status": None}, REASONING),
    "null for absent in a part": (
        {"role": "user", "content": [{"type": "input_image", "image_url": "u", "file_id": None}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
    ),
    "created_by": ({**CALL, "created_by": "x"}, CALL),
    "type of a message": (without(MESSAGE, "type"), MESSAGE),
    "parsed_arguments": ({**CALL, "parsed_arguments": {"a": 1}}, CALL),
    "async_": ({**CALL, "async_": None}, CALL),
    "metadata passthrough": ({**CALL, "internal_chat_message_metadata_passthrough": {"t": 1.5}}, CALL),
    "status completed": (without(MESSAGE, "status"), MESSAGE),
    "annotations, logprobs, parsed": (
        {**MESSAGE, "content": [{"type": "output_text", "text": "Hi\n", "parsed": {"a": 1}}]},
        MESSAGE,
    ),
    "detail auto": (
        {"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "auto"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
    ),
    "user text for a part": (
        {"role": "user", "content": "a"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
    ),
    "assistant text for a part": ({"role": "assistant", "content": "Hi\n"}, MESSAGE),
    "id beside a role": ({**MESSAGE, "id": "msg_0000"}, MESSAGE),
    "id beside a call_id": (without(CALL, "id"), CALL),
    "id beside encrypted_content": (without(REASONING, "id"), REASONING),
    "arguments spaced otherwise": ({**CALL, "arguments": '{"b": 1, "a": "hé"}'}, CALL),
}
DIFFERENT = {
    "a letter": ({**MESSAGE, "content": [{"type": "output_text", "text": "Hi"}]}, MESSAGE),
    "role": ({"role": "user", "content": "a"}, {"role": "developer", "content": "a"}),
    "part kind": (
        {"role": "user", "content": [{"type": "output_text", "text": "a"}]},
        {"role": "user", "content": "a"},
    ),
    "an unknown key": ({**CALL, "x_new": 1}, CALL),
    "an unknown key that is false": ({**CALL, "x_new": False}, CALL),
    "arguments with another number spelling": (
        {**CALL, "arguments": '{"a":1.0}'},
        {**CALL, "arguments": '{"a":1}'},
    ),
    "arguments with 1e0": ({**CALL, "arguments": '{"a":1e0}'}, {**CALL, "arguments": '{"a":1.0}'}),
    "arguments with close big integers": (
        {**CALL, "arguments": '{"a":9007199254740993}'},
        {**CALL, "arguments": '{"a":9007199254740992}'},
    ),
    "arguments with huge integers": (
        {**CALL, "arguments": '{"a":118059162071741130342400}'},
        {**CALL, "arguments": '{"a":118059162071741130342401}'},
    ),
    "arguments with a duplicate key": (
        {**CALL, "arguments": '{"a":1,"a":2}'},
        {**CALL, "arguments": '{"a":2}'},
    ),
    "arguments with null": ({**CALL, "arguments": '{"a":null}'}, {**CALL, "arguments": "{}"}),
    "broken arguments spaced otherwise": ({**CALL, "arguments": '{"a": '}, {**CALL, "arguments": '{"a":'}),
    "arguments NaN": ({**CALL, "arguments": '{"a":NaN}'}, {**CALL, "arguments": '{"a": NaN}'}),
    "arguments that are an object, not its text": (
        {"type": "tool_search_call", "call_id": "c", "arguments": {"a": 1}},
        {"type": "tool_search_call", "call_id": "c", "arguments": '{"a":1}'},
    ),
    "arguments that look like our own form of a text": (
        {"type": "tool_search_call", "call_id": "c", "arguments": {"json": {"a": 1}}},
        {"type": "tool_search_call", "call_id": "c", "arguments": '{"a":1}'},
    ),
    "arguments that look like our own form of a broken text": (
        {"type": "tool_search_call", "call_id": "c", "arguments": {"raw": "{"}},
        {"type": "tool_search_call", "call_id": "c", "arguments": "{"},
    ),
    "status of an output": ({**OUTPUT, "status": "incomplete"}, OUTPUT),
    "completed status of an output": ({**OUTPUT, "status": "completed"}, OUTPUT),
    "status incomplete": ({**MESSAGE, "status": "incomplete"}, MESSAGE),
    "call_id": ({**CALL, "call_id": "call_2"}, CALL),
    "name": ({**CALL, "name": "g"}, CALL),
    "encrypted content": ({**REASONING, "encrypted_content": "f"}, REASONING),
    "encrypted content left out": (without(REASONING, "encrypted_content"), REASONING),
    "encrypted content put in": (REASONING, PLAIN_REASONING),
    "id of reasoning without encrypted content": ({**PLAIN_REASONING, "id": "rs_2"}, PLAIN_REASONING),
    "plaintext reasoning content": (
        {**REASONING, "content": [{"type": "reasoning_text", "text": "x"}]},
        {**REASONING, "content": [{"type": "reasoning_text", "text": "y"}]},
    ),
    "plaintext reasoning content left out": (
        REASONING,
        {**REASONING, "content": [{"type": "reasoning_text", "text": "y"}]},
    ),
    "id of an id-only image": (
        {"type": "image_generation_call", "id": "ig_1", "result": None},
        {"type": "image_generation_call", "id": "ig_2", "result": None},
    ),
    "id left out where it counts": (
        {"type": "image_generation_call", "status": "completed"},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed"},
    ),
    "null in an unknown type": (
        {"type": "x_new", "call_id": "c", "a": None},
        {"type": "x_new", "call_id": "c"},
    ),
    "null in tool data": ({**OUTPUT, "output": [{"a": None}]}, {**OUTPUT, "output": [{}]}),
    "annotations in an unknown part": (
        {"role": "user", "content": [{"type": "x_part", "annotations": []}]},
        {"role": "user", "content": [{"type": "x_part"}]},
    ),
    "cache breakpoint": (
        {"role": "user", "content": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": True}]},
        {"role": "user", "content": "a"},
    ),
    "detail high": (
        {"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "high"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
    ),
    "phase added by the client": ({**MESSAGE, "phase": "commentary"}, MESSAGE),
    "another phase": ({**MESSAGE, "phase": "final_answer"}, {**MESSAGE, "phase": "commentary"}),
}
EQUIVALENT = {
    "phase left out": (MESSAGE, {**MESSAGE, "phase": "commentary"}),
    "phase null": ({**MESSAGE, "phase": None}, {**MESSAGE, "phase": "commentary"}),
    "another summary": ({**REASONING, "summary": []}, REASONING),
    "no summary": (without(REASONING, "summary"), REASONING),
    "another summary with an id only": (
        {**PLAIN_REASONING, "summary": [{"type": "summary_text", "text": ""}]},
        PLAIN_REASONING,
    ),
    "empty content for none": ({**REASONING, "content": []}, REASONING),
}


@pytest.mark.parametrize("name", IGNORED)
def test_an_alteration_that_means_nothing_is_ignored_at_every_level(name):
    """What the closed list names makes no difference, in both directions."""
    client, held = IGNORED[name]

    assert lowest(client, held) == Level.EXACT
    assert lowest(held, client) == Level.EXACT


@pytest.mark.parametrize("name", DIFFERENT)
def test_any_other_difference_counts_at_every_level(name):
    """What the list does not name is a difference, in the direction a client could make it."""
    client, held = DIFFERENT[name]

    assert lowest(client, held) is None


@pytest.mark.parametrize("name", EQUIVALENT)
def test_what_the_client_may_lack_is_equal_from_equivalent_on(name):
    """The relations of equivalent hold from that level on and not at exact."""
    client, held = EQUIVALENT[name]

    assert lowest(client, held) == Level.EQUIVALENT


def test_an_item_with_a_duplicate_key_equals_only_its_own_bytes():
    """Readers disagree about duplicate keys, so such an item is compared byte for byte."""
    twice = b'{"role":"user","role":"assistant","content":"a"}'

    assert facts(twice) == facts(twice)
    assert lowest(twice, b'{"role":"assistant","content":"a"}') is None
    assert lowest(twice, b'{"role":"user", "role":"assistant","content":"a"}') is None


@pytest.mark.parametrize(
    "item",
    [
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": ""}],
        },
    ],
)
def test_an_assistant_message_without_text_may_be_skipped(item):
    """All spellings of an assistant message that says nothing are recognised."""
    assert facts(item).kind is Kind.EMPTY


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": " "},
        {"role": "assistant", "content": "", "x_new": 1},
        {"role": "assistant", "content": 5},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": ""}]},
        {"role": "assistant", "content": "", "status": "incomplete"},
    ],
)
def test_anything_that_says_something_is_not_skipped(item):
    """Only an assistant message with no content or only empty text is skippable."""
    assert facts(item).kind is Kind.ITEM


def test_a_reference_stands_for_the_item_of_its_id_only():
    """An item_reference equals the held item with that id, typed or not, and no other."""
    held = facts(MESSAGE)

    assert refers_to(facts({"type": "item_reference", "id": "msg_1"}), held)
    assert refers_to(facts({"id": "msg_1"}), held)
    assert not refers_to(facts({"type": "item_reference", "id": "msg_2"}), held)
    assert not refers_to(facts({"type": "item_reference", "id": "msg_1", "x": 1}), held)
    assert not refers_to(facts(MESSAGE), held)


@pytest.mark.parametrize(
    "item", [b"1", b'"a"', b"null", b"[]", b'{"type":5}', b'{"id":7}', b'{"content":3,"role":[]}', b"{}"]
)
def test_rubbish_has_facts_too(item):
    """No element of an input list makes the comparison fail."""
    assert equal(facts(item), facts(item), Level.EXACT)
