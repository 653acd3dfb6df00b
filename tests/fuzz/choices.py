"""Bytes as a series of choices: what a fuzzer changes in its input is what a target does differently."""

from __future__ import annotations

from hypothesis import strategies as st


class Choices:
    """Reads choices from the front of ``data``; when it is used up every choice is the first."""

    def __init__(self, data):
        self._data = data
        self._at = 0

    def __bool__(self):
        return self._at < len(self._data)

    def below(self, limit):
        """A number from 0 to ``limit`` - 1, for limits up to 256."""
        found = self._data[self._at] % limit if self else 0
        self._at += 1
        return found

    def pick(self, options):
        """One of ``options``."""
        return options[self.below(len(options))]

    def some(self, most):
        """Up to ``most`` bytes as they are."""
        size = self.below(most + 1)
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def rest(self):
        """All that was not read."""
        found = self._data[self._at :]
        self._at = len(self._data)
        return found


def mangle(data, choices):
    """``data`` with up to three changes: bytes cut out, put in, doubled or flipped."""
    for _ in range(choices.below(4)):
        at = (choices.below(256) * 256 + choices.below(256)) % (len(data) + 1)
        match choices.below(4):
            case 0:
                data = data[:at] + data[at + 1 + choices.below(16) :]
            case 1:
                data = data[:at] + choices.some(8) + data[at:]
            case 2:
                data = data[:at] + data[max(0, at - 1 - choices.below(32)) :]
            case _:
                data = data[:at] + bytes([choices.below(256)]) + data[at + 1 :]
    return data


@st.composite
def inputs(draw, seeds, size=300):
    """Inputs for a target: any bytes, or one of its ``seeds`` with some of them changed."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=size))
    seed = draw(st.sampled_from(seeds))
    return mangle(seed, Choices(draw(st.binary(max_size=24))))
