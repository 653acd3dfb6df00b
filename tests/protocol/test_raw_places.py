"""Places of members, and edits that leave everything else alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.raw import NotSliceable, addition, places, removal, splice, split_object

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(), _VALUES, min_size=1, max_size=5)
_SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n ", "\t: ")])


@given(_OBJECTS, _SEPARATORS, st.booleans())
def test_each_place_holds_its_member(value, separators, ascii_only):
    """Every place cuts out exactly the key and the value of its member, whatever the spacing and escapes."""
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = places(text)
    assert list(found) == list(value)
    for name, place in found.items():
        assert json.loads(text[place.start : place.end]) == value[name]
        assert json.loads(text[place.key : place.start].rstrip(b": \t")) == name


@given(_OBJECTS, _SEPARATORS, st.data())
def test_removal_takes_one_member_and_keeps_the_others(value, separators, data):
    """Without one member the text is still JSON and holds the other members, byte for byte."""
    text = json.dumps(value, separators=separators).encode()
    name = data.draw(st.sampled_from(list(value)))
    found = places(text)
    rest = splice(text, [removal(found, name)])
    assert json.loads(rest) == {key: entry for key, entry in value.items() if key != name}
    left = places(rest)
    for key, place in left.items():
        assert rest[place.key : place.end] == text[found[key].key : found[key].end]


@given(_OBJECTS, _SEPARATORS, st.data())
def test_a_replacement_changes_nothing_else(value, separators, data):
    """Replacing one value keeps every byte before and behind it."""
    text = json.dumps(value, separators=separators).encode()
    place = places(text)[data.draw(st.sampled_from(list(value)))]
    assert (
        splice(text, [(place.start, place.end, b'"new"')])
        == text[: place.start] + b'"new"' + text[place.end :]
    )


def test_addition_to_empty_and_filled_objects():
    """A member is added behind the last one, with a comma only where one is needed, and with an escaped name."""
    for text, want in ((b"{}", {'q"': 1}), (b' { "a" : 2 } ', {"a": 2, 'q"': 1})):
        assert json.loads(splice(text, [addition(text, places(text), 'q"', b"1")])) == want


@pytest.mark.parametrize(
    "text",
    [
        rb'{"a":"\ud83d","b":[NaN, -Infinity],"c":{"d":"\udc00x"}}',
        rb' { "\u0061" : "\ud800" , "b":1e999 } ',
        '{"é\u2028":"\\ud800","b":"日本"}'.encode(),
    ],
)
def test_lone_surrogates_and_nan_are_sliced_too(text):
    """What lenient writers put inside a value does not hide where the value ends."""
    value = json.loads(text)
    found = places(text)
    assert list(found) == list(value)
    for name, place in found.items():
        assert repr(json.loads(text[place.start : place.end])) == repr(value[name])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b'{"a":1',
        b'{"a":1}x',
        b'{"a" 1}',
        b'{"a":}',
        b"{a:1}",
        b'{"a":1,}',
        b'{"a":1,"a":2}',
        b'{"a":1,"b":2,"a":"1,"}',
        rb'{"a":1,"\u0061":1}',
        rb'{"a":"\ud800","a":1}',
        rb'{"a":"\ud800",}',
        rb'{"a":"\ud800"}{',
        rb'{"a":"\ud800" "b":1}',
        b'{"a":"\xff"',
        b'{"\xff":1}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        rb'{"b":"\ud800","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_other_texts_are_refused(text):
    """Texts that are no object, or whose members cannot be told apart, raise the one documented error."""
    with pytest.raises(NotSliceable):
        places(text)


@given(st.binary() | st.binary().map(lambda rest: b'{"a":' + rest + b"}"))
def test_rubbish_raises_nothing_else(text):
    """Whatever the bytes, the slicers either slice or raise their own error."""
    for slicer in (places, split_object):
        try:
            slicer(text)
        except NotSliceable:
            continue
