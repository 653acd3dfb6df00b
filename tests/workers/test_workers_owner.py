"""Who has a conversation: the same worker for every spelling of its beginning, whatever follows."""

import json
import secrets
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conversation.digests import Digester
from gateway.conversation.reading import Reader
from gateway.workers.owner import Beginnings, Parent, owner

KEY = secrets.token_bytes(32)
PART = {"type": "input_text", "text": "hello"}
BEGUN = [{"role": "developer", "content": "be {brief}]"}, {"role": "user", "content": "hello"}]
ANSWER = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "hi"}],
    "id": "msg_1",
}


def fresh():
    """A worker that has read nothing yet."""
    digester = Digester(KEY)
    return Beginnings(Reader(digester), digester)


def body(items, separators=None, **more):
    """A request body."""
    return json.dumps({"model": "gpt-5", **more, "input": items}, separators=separators).encode()


SPELLINGS = [
    body(BEGUN),
    body(BEGUN, separators=(",", ":")),
    body(BEGUN, instructions="now others", temperature=0.5),
    body([*BEGUN, ANSWER, {"role": "user", "content": "go on"}]),
    body([*BEGUN, ANSWER, {"role": "user", "content": "go on"}], separators=(",", ":")),
    body([BEGUN[0], {"type": "message", "role": "user", "content": [PART], "status": "completed"}]),
    body([BEGUN[0], {"content": [PART ], "id": None, "role": "user"}, ANSWER, ANSWER]),
    body([BEGUN[0], {"role": "assistant", "content": ""}, BEGUN[1], ANSWER]),
    body(BEGUN, tools=[{"type": "function", "parameters": {"input": [{"role": "user", "content": "other"}]}}]),
    json.dumps({"input": BEGUN, "model": "gpt-5"}, indent=1).encode(),
]  # fmt: skip


@pytest.mark.parametrize("order", [1, -1])
def test_every_spelling_of_a_beginning_is_the_same(order):
    """For a worker that reads it for the first time, for one that knows it, and in any order of spellings."""
    expected = fresh().of(SPELLINGS[0])
    assert isinstance(expected, bytes)
    knows = fresh()
    for spelling in [*SPELLINGS, *SPELLINGS][::order]:
        assert knows.of(spelling) == expected
        assert fresh().of(spelling) == expected


def test_other_beginnings_are_others():
    """Another first message or other instructions among the items tell conversations apart."""
    others = [
        body([BEGUN[0], {"role": "user", "content": "Hello"}]),
        body([{"role": "developer", "content": "be long"}, BEGUN[1]]),
        body([BEGUN[1]]),
        body("hello?"),
        body([BEGUN[0]]),
    ]
    assert len({fresh().of(other) for other in [SPELLINGS[0], *others]}) == len(others) + 1


def test_a_text_alone_is_the_message_that_it_becomes():
    """The first turn may send a text and the second the message."""
    assert fresh().of(body("hello")) == fresh().of(body([BEGUN[1], ANSWER, BEGUN[1]]))


def test_what_the_model_made_is_no_part_of_the_beginning():
    """A conversation that began with instructions alone stays where it is."""
    assert fresh().of(body([BEGUN[0]])) == fresh().of(body([BEGUN[0], ANSWER, BEGUN[1]]))


@pytest.mark.parametrize("value", ["resp_1", "résp"])
def test_a_parent_of_the_clients_own_is_found(value):
    """Also beside a familiar beginning; one inside the items, or null, is none."""
    knows = fresh()
    knows.of(SPELLINGS[0])
    assert knows.of(body(BEGUN, previous_response_id=value)) == Parent(value)
    inside = [*BEGUN, {"type": "x", "previous_response_id": "resp_2"}]
    for harmless in (
        body(BEGUN, previous_response_id=None),
        body(inside),
        body([*BEGUN, {"role": "user", "content": '"previous_response_id"'}]),
    ):
        assert knows.of(harmless) == knows.of(SPELLINGS[0])


@given(
    st.binary(max_size=60)
    | st.text(max_size=40).map(lambda text: b'{"input":[{"role":"user"' + text.encode())
)
def test_whatever_comes_has_a_beginning_or_none(data):
    """No bytes make it fail."""
    found = fresh().of(data)
    assert found is None or isinstance(found, bytes | Parent)


def test_conversations_spread_over_workers_and_few_move_with_one_more():
    """Each of four gets about its part; a fifth takes from all of them and nothing moves between the others."""
    begins = [number.to_bytes(16, "big") for number in range(4000)]
    before = [owner(b"identity", each, range(4)) for each in begins]
    assert all(850 < count < 1150 for count in Counter(before).values())
    after = [owner(b"identity", each, range(5)) for each in begins]
    assert all(now in (then, 4) for then, now in zip(before, after, strict=True))
    assert 650 < after.count(4) < 950
