"""Which answers an upstream that rebuilds the history will not have in the next turn."""

import base64
import json

import pytest

from gateway.protocol.rebuilt import is_incomplete, same_response

TEXT = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "hi", "annotations": []}],
}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


def rebuilt(provider="hosted_vllm"):
    """An id as that upstream makes it."""
    told = f"litellm:custom_llm_provider:{provider};model_id:m;response_id:resp_1"
    return "resp_" + base64.b64encode(told.encode()).decode()


def lost(response_id, *items):
    return is_incomplete(response_id, [json.dumps(item).encode() for item in items])


@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""},
        {"type": "web_search_call", "id": "ws_1"},
        {**TEXT, "phase": "commentary"},
        {**TEXT, "content": []},
        {**TEXT, "content": [{"type": "output_text", "text": ""}]},
        {**TEXT, "content": [{"type": "refusal", "refusal": "no"}]},
        {**TEXT, "content": TEXT["content"] * 2},
    ],
)
def test_what_is_lost(item):
    """Everything but a function call and a message of one text; other upstreams keep all of it."""
    assert lost(rebuilt(), TEXT, item)
    assert not lost("resp_0123456789abcdef", TEXT, item)
    assert not lost(rebuilt("openai"), TEXT, item)


def test_what_is_kept():
    """Text and function calls come back whole."""
    assert not lost(rebuilt(), TEXT, CALL, CALL)
    assert not lost(rebuilt())


def test_an_id_that_only_begins_so():
    """What cannot be read is taken for an id of such an upstream."""
    reasoning = {"type": "reasoning"}
    assert lost("resp_bGl0ZWxsbT!!!", reasoning)
    assert lost("resp_" + base64.b64encode(b"litellm:other").decode(), reasoning)


def test_the_providers_own_id_is_the_same_response():
    """What is named in the proxy's spelling may be told in the provider's; any other id is another response."""
    assert same_response("resp_a", "resp_a")
    assert same_response(rebuilt("openai"), "resp_1")
    assert not same_response(rebuilt("openai"), "resp_2")
    assert not same_response(rebuilt("openai"), None)
    assert not same_response("resp_a", "resp_1")
    assert not same_response("resp_bGl0ZWxsbT!!!", "")
