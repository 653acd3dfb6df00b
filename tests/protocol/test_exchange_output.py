"""The final object: what the terminal event lacks or contradicts, and the failure event of a broken stream."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.exchange import Exchange, Relay
from gateway.protocol.phases import IllegalTransition

REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "AAA"}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "c1",
    "name": "f",
    "arguments": '{"a": 1}',
    "status": "completed",
}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hi\u2028", "annotations": [], "logprobs": []}],
}
UNFINISHED = {
    "id": "x_9",
    "type": "custom_tool_call",
    "call_id": "c1",
    "name": "f",
    "input": "",
    "status": "in_progress",
}
ABSENT = object()


def dumped(kind, **members):
    """An event as bytes."""
    return json.dumps({"type": kind, **members}).encode()


def streamed(items, output, *, added=0, kind="completed", **response):
    """An exchange that streamed the items as finished ones and then ended with the given output."""
    one = Exchange(ours=True)
    one.sent()
    one.feed(
        dumped("response.created", sequence_number=0, response={"id": "r1", "previous_response_id": "p"})
    )
    for index in range(added):
        one.feed(dumped("response.output_item.added", output_index=index, item={"type": "message"}))
    for index, item in items:
        one.feed(dumped("response.output_item.done", output_index=index, item=item))
    final = {"id": "r1", "status": kind, "previous_response_id": "p", **response}
    if output is not ABSENT:
        final["output"] = output
    outcome = one.feed(dumped(f"response.{kind}", response=final))
    assert isinstance(outcome, Relay)
    told = json.loads(outcome.data)["response"]
    assert told == json.loads(one.ending.response) and told["previous_response_id"] is None
    assert told["output"] == [json.loads(item) for item in one.ending.items]
    return one, told["output"]


BOTH = [(0, REASONING), (1, CALL)]


@pytest.mark.parametrize(
    ("output", "contradicts"),
    [
        (ABSENT, False),
        (None, False),
        ([], False),
        ([REASONING], False),
        ([CALL], False),
        ([REASONING, CALL], False),
        ([REASONING, UNFINISHED], True),
        ([UNFINISHED], True),
        ({}, True),
        ("x", True),
        ([CALL, REASONING], True),
        ([REASONING, {**CALL, "arguments": '{"a": 2}'}], True),
        ([REASONING, {**CALL, "status": "in_progress"}], True),
        ([REASONING, {**CALL, "call_id": "c2"}], True),
        ([REASONING, {**CALL, "id": "fc_2"}], False),
        ([{**REASONING, "encrypted_content": "BBB"}, CALL], False),
        ([{**REASONING, "encrypted_content": "BBB", "id": "rs_2"}, CALL], True),
        (
            [{"id": "rs_1", "type": "reasoning", "summary": [], "content": None}, {**CALL, "status": None}],
            False,
        ),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_closings_that_lack_or_contradict(output, contradicts, order):
    """The final object always holds both finished items once; a real contradiction never becomes a parent."""
    one, told = streamed(BOTH[::order], output)
    assert told == [REASONING, CALL]
    assert one.ending.contradicts is contradicts and one.may_commit is not contradicts


def test_the_kept_items_are_the_finished_ones():
    """Where the terminal copy is spelled otherwise, the bytes of the finished item are kept."""
    one, _ = streamed(
        [(0, MESSAGE)],
        [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "content": [{"text": "hi\u2028", "type": "output_text"}],
            }
        ],
    )
    assert one.ending.items == (json.dumps(MESSAGE).encode(),) and one.may_commit


@pytest.mark.parametrize("text", ["hi", "hi\u2029", "HI\u2028", "hi\u2028 "])
def test_another_text_is_a_contradiction(text):
    """Text is compared exactly, separators and all."""
    other = {**MESSAGE, "content": [{"type": "output_text", "text": text, "annotations": []}]}
    one, told = streamed([(0, MESSAGE)], [other])
    assert told == [MESSAGE] and one.ending.contradicts


def test_a_complete_and_equal_output_keeps_its_bytes():
    """Other spacing and key order in the terminal list are the upstream's own and stay."""
    listed = json.dumps([dict(reversed(REASONING.items())), CALL], indent=1)
    one = Exchange(ours=False)
    one.sent()
    one.feed(dumped("response.created", response={"id": "r1"}))
    for index, item in BOTH:
        one.feed(dumped("response.output_item.done", output_index=index, item=item))
    text = f'{{"type":"response.completed","response":{{"id":"r1","output" : {listed} }} }}'.encode()
    assert one.feed(text) == Relay("response.completed", text)
    assert one.may_commit and json.loads(one.ending.items[0]) == REASONING


def test_items_that_only_the_terminal_list_has_are_added():
    """An item that was not streamed stands where the list has it, or last where the list does not agree."""
    one, told = streamed(BOTH, [REASONING, MESSAGE, CALL])
    assert told == [REASONING, MESSAGE, CALL] and one.may_commit
    one, told = streamed(BOTH, [UNFINISHED, REASONING, MESSAGE])
    assert told == [REASONING, CALL, MESSAGE] and not one.may_commit
    one, told = streamed([], [REASONING, CALL])
    assert told == [REASONING, CALL] and one.may_commit


@pytest.mark.parametrize(
    ("added", "output", "commits"),
    [(2, [], False), (2, [MESSAGE, CALL], True), (1, [], True), (3, [MESSAGE, CALL], False)],
)
def test_an_item_that_was_begun_and_never_finished_is_no_ground_to_stand_on(added, output, commits):
    """If the client saw an item that neither stream nor list finished, what the upstream holds is not known."""
    one, _ = streamed([(0, MESSAGE)], output, added=added)
    assert one.may_commit is commits


def test_indexes_that_are_missing_or_all_zero_lose_no_item():
    """Items without an index, or all with the same, are kept in order of arrival; the same item twice is kept once."""
    one, told = streamed([(0, REASONING), (0, CALL), (0, {**CALL, "status": None})], ABSENT)
    assert told == [REASONING, {**CALL, "status": None}] and one.may_commit
    one, told = streamed([(None, REASONING), ("1", CALL), (True, MESSAGE)], [])
    assert told == [REASONING, CALL, MESSAGE]


def test_a_call_and_its_output_share_a_call_id():
    """Two items of one call are told apart by their type."""
    output = {"type": "shell_call_output", "call_id": "c1", "output": []}
    call = {"type": "shell_call", "call_id": "c1", "action": {}}
    one, told = streamed([(0, call), (1, output)], [call, dict(reversed(output.items()))])
    assert told == [call, output] and one.may_commit


@pytest.mark.parametrize("kind", ["incomplete", "failed"])
def test_other_endings_are_filled_too(kind):
    """Incomplete and failed responses carry the finished items by the same rule."""
    one, told = streamed(BOTH, None, kind=kind, error={"code": "server_error", "message": "m"})
    assert told == [REASONING, CALL] and one.ending.kind == kind and not one.may_commit
    assert (one.ending.refusal is not None) is (kind == "failed")


def test_numbers_and_truths_are_not_mixed_up():
    """1, 1.0 and true are three values, as in JSON."""
    item = {"type": "x", "id": "a", "v": 1}
    for other in (True, 1.0):
        assert streamed([(0, item)], [{**item, "v": other}])[0].ending.contradicts


def test_items_nested_too_deeply_to_compare_are_kept():
    """Depth is no crash: the finished item is shown, and the response is no parent unless the copies are the same bytes."""
    deep = {"type": "x", "id": "a", "v": json.loads("[" * 400 + "]" * 400)}
    one, told = streamed([(0, deep)], [dict(reversed(deep.items()))])
    assert told == [deep]
    text = b"[" * 900 + b"]" * 900
    one = Exchange(ours=False)
    one.sent()
    one.feed(b'{"type":"response.created","response":{"id":"r1"}}')
    one.feed(b'{"type":"response.output_item.done","output_index":0,"item":{"id":"a","v":' + text + b"}}")
    one.feed(b'{"type":"response.completed","response":{"id":"r1","output":[{"v":' + text + b',"id":"a"}]}}')
    # Python from 3.12 on can compare at this depth, and then the copies are equal.
    assert one.may_commit is (sys.version_info >= (3, 12))
    assert one.ending.items == (b'{"id":"a","v":' + text + b"}",)


_ITEMS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["message", "function_call"]), "text": st.text(max_size=3)}
    ),
    max_size=4,
)


@given(_ITEMS, st.data())
def test_any_subset_of_the_items_in_the_list_gives_all_of_them(items, data):
    """A terminal list that holds some of the finished items never loses, doubles or reorders one."""
    named = [{**item, "id": f"i{at}"} for at, item in enumerate(items)]
    kept = [item for item in named if data.draw(st.booleans())]
    one, told = streamed(data.draw(st.permutations(list(enumerate(named)))), kept)
    assert told == named and one.may_commit


def broken(*events):
    """The failure event after some events and the loss of the socket."""
    one = Exchange(ours=True, client_parent=b'"mine"')
    one.sent()
    for each in events:
        one.feed(each)
    one.lost()
    return json.loads(one.failure_event(code="upstream_connection_lost", message="lost"))


START = dumped(
    "response.created",
    sequence_number=0,
    response={
        "id": "r1",
        "model": "m",
        "status": "in_progress",
        "error": None,
        "output": [],
        "previous_response_id": "p",
    },
)


def test_the_failure_event_continues_the_stream():
    """Same response, next number, finished items, and the client's own parent."""
    told = broken(
        START,
        dumped("response.output_item.done", sequence_number=7, output_index=0, item=MESSAGE),
        dumped("response.output_text.delta", sequence_number=8, output_index=1, delta="sequence_number"),
    )
    assert (told["type"], told["sequence_number"]) == ("response.failed", 9)
    assert told["response"] == {
        "id": "r1",
        "model": "m",
        "status": "failed",
        "error": {"code": "upstream_connection_lost", "message": "lost"},
        "output": [MESSAGE],
        "previous_response_id": "mine",
    }


def test_the_failure_event_where_little_is_known():
    """Without numbers the events are counted; without members they are added."""
    told = broken(
        dumped("response.created", response={"id": "r1"}),
        dumped("response.x"),
        dumped("response.y", sequence_number="9"),
    )
    assert told["sequence_number"] == 3
    assert (told["response"]["id"], told["response"]["status"], told["response"]["output"]) == (
        "r1",
        "failed",
        [],
    )
    told = broken(dumped("response.created"))
    assert told["response"]["object"] == "response" and told["response"]["status"] == "failed"


def test_a_stream_has_one_ending():
    """After a terminal event there is no failure event; after a lone error there may be."""
    one, _ = streamed([], [])
    with pytest.raises(IllegalTransition):
        one.failure_event(code="c", message="m")
    assert broken(START, dumped("error", sequence_number=4, error={"message": "m"}))["sequence_number"] == 5
