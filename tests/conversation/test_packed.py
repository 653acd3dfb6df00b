"""Facts in columns: the same facts come out as went in, and they are compared the same way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.conversation.items import ItemFacts, Kind, Level, equal
from gateway.conversation.packed import PackedFacts

digests = st.sampled_from([bytes([n]) * 16 for n in range(3)])
maybe = st.one_of(st.none(), digests)
facts = st.builds(ItemFacts, st.sampled_from(Kind), digests, maybe, maybe, maybe, maybe)
many = st.lists(facts, max_size=12)
long = st.lists(facts, min_size=60, max_size=200)


@given(st.one_of(many, long), st.data())
def test_what_is_packed_comes_out_again(items, data):
    """Each item, its kind and its core can be read at its place, also after the end was cut off."""
    packed = PackedFacts(items)
    assert list(packed) == items
    assert [packed.core(at) for at in range(len(packed))] == [item.core for item in items]
    assert [packed.kind(at) for at in range(len(packed))] == [item.kind for item in items]
    cut = data.draw(st.integers(0, len(items)))
    assert list(packed.first(cut)) == items[:cut]


@given(many, facts, st.sampled_from(Level))
def test_packed_items_are_compared_as_items_are(items, client, level):
    """The short way of comparing with an item in columns gives what comparing with the item gives."""
    packed = PackedFacts(items)
    assert [packed.answers_to(at, client, level) for at in range(len(items))] == [
        equal(client, item, level) for item in items
    ]
