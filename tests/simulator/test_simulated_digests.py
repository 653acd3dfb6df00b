"""What counts in an item for the digests of the simulated upstream."""

import pytest

from gateway.simulator import digest_of

USER = {"role": "user", "content": "hi"}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": "Hello\n", "annotations": [], "logprobs": []}],
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "c",
    "name": "f",
    "arguments": '{"a": "\\u00e9",  "b":1}',
}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "done"}
SEALED = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "A"}],
    "encrypted_content": "E",
}


def both(one, other):
    """Whether two contexts have the same strict and the same modulo digest."""
    first, second = digest_of(one), digest_of(other)
    return first.strict == second.strict, first.modulo == second.modulo


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([USER], "hi"),
        ([USER], [{"type": "message", "content": [{"text": "hi", "type": "input_text"}], "role": "user"}]),
        ([MESSAGE], [{**MESSAGE, "id": "msg_2", "status": None}]),
        ([MESSAGE], [{"role": "assistant", "content": "Hello\n", "phase": "final_answer"}]),
        ([CALL], [{**CALL, "arguments": '{"b":1,"a":"é"}', "parsed_arguments": {"a": 1}, "async_": None}]),
        ([CALL], [{key: CALL[key] for key in ("name", "call_id", "type", "arguments")}]),
        ([SEALED], [{**SEALED, "id": None, "content": None, "status": None}]),
        (
            [OUTPUT],
            [{**OUTPUT, "created_by": "x", "internal_chat_message_metadata_passthrough": {"turn": 1}}],
        ),
    ],
)
def test_delivery_does_not_count(one, other):
    """Spelling, ids of items with another key, and delivery-only fields change neither digest."""
    assert both(one, other) == (True, True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([MESSAGE], [{key: value for key, value in MESSAGE.items() if key != "phase"}]),
        ([SEALED], [{**SEALED, "summary": []}]),
        ([USER, MESSAGE], [USER, {"role": "assistant", "content": ""}, MESSAGE]),
        ([USER, MESSAGE], [USER, {"role": "assistant", "content": [], "id": "m"}, MESSAGE]),
    ],
)
def test_what_a_client_may_drop_counts_strictly_only(one, other):
    """Phase, reasoning summaries and empty assistant messages change the strict digest and not the other."""
    assert both(one, other) == (False, True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([USER], [{"role": "developer", "content": "hi"}]),
        ([USER], [USER, USER]),
        ([USER, MESSAGE], [MESSAGE, USER]),
        ([MESSAGE], [{**MESSAGE, "content": "Hello"}]),
        ([MESSAGE], [{**MESSAGE, "x_future": 1}]),
        ([MESSAGE], [{**MESSAGE, "status": "incomplete"}]),
        ([CALL], [{**CALL, "call_id": "d"}]),
        ([CALL], [{**CALL, "arguments": '{"a":"é","b":1.0}'}]),
        ([CALL], [{**CALL, "arguments": '{"a":"é","b":1,"b":1}'}]),
        (
            [{**CALL, "arguments": '{"n":9007199254740993}'}],
            [{**CALL, "arguments": '{"n":9007199254740992}'}],
        ),
        ([{**CALL, "arguments": "{"}], [{**CALL, "arguments": "{ "}]),
        ([OUTPUT], [{**OUTPUT, "status": "completed"}]),
        ([SEALED], [{**SEALED, "encrypted_content": "F"}]),
        ([SEALED], [{**SEALED, "content": [{"type": "reasoning_text", "text": "x"}]}]),
        ([USER, SEALED], [USER]),
        (
            [{"type": "image_generation_call", "id": "ig_1"}],
            [{"type": "image_generation_call", "id": "ig_2"}],
        ),
    ],
)
def test_everything_else_counts(one, other):
    """Any other difference changes both digests."""
    assert both(one, other) == (False, False)


def test_reasoning_may_be_missing_only_in_the_loose_digest():
    """The loose digest leaves reasoning out, and nothing else that counts."""
    assert digest_of([USER, SEALED]).loose == digest_of([USER]).loose
    assert digest_of([USER, OUTPUT]).loose != digest_of([USER]).loose


def test_a_quoted_strict_digest_is_masked():
    """An earlier answer that quotes another strict digest is the same in the modulo form, as it must be for two runs to agree."""
    first = {"role": "assistant", "content": "ctx strict=0123456789abcdef modulo=1"}
    second = {"role": "assistant", "content": "ctx strict=fedcba9876543210 modulo=1"}
    assert both([first], [second]) == (False, True)
