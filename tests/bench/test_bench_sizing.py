"""The sizing page says what its command prints."""

import contextlib
import io
import re

import pytest

from tests.bench.sizing import BEGIN, END, PAGE, Found, show, show_million


def found(**change):
    """Round numbers."""
    values = {
        "base": 50 * 2**20, "base_files": 7, "socket": 16 * 1024, "item": 300.0, "running": 200 * 1024, "running_files": 2.0,
        "fixed": 0.001, "byte": 1e-9, "event": 1e-4, "new": 0.003, "ping": 2e-4,
    }  # fmt: skip
    return Found(**(values | change))


def printed(numbers):
    """What the command prints for these numbers."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        show(numbers)
        show_million(numbers)
    return out.getvalue()


def test_the_arithmetic():
    """A turn is its fixed part, its bytes and its events; a conversation its socket and its items."""
    assert found().turn() == pytest.approx(0.001 + 100_000e-9 + 100e-4)
    assert found().conversation() == 16 * 1024 + 100 * 300
    text = printed(found())
    # 1,000 turns a minute of 11.1 ms each.
    assert "18.5 % of one" in text
    # A million conversations of 100 items and a socket each; 50,000 pings a second.
    assert "30 GB + 16.4 GB" in text
    assert "| processors: pings, one each 20 s | 0.1 | 10.0 |" in text
    # 40,000 turns a minute are 7.4 processors; pings and new sockets come on top.
    assert "| processes, each half busy | 16 | 37 |" in text


def test_the_page_holds_these_tables():
    """Its measured part has the lines that the command prints, with other numbers, and names machine and date."""
    measured = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]

    def shape(text):
        return [re.sub(r"[0-9.,]+", "0", line) for line in text.splitlines() if line.startswith("|")]

    assert shape(measured) == shape(printed(found()))
    assert re.match(r"\nupwire \S+, 20[0-9]{2}-[0-9]{2}-[0-9]{2}, .* processors, ", measured)
    assert "make bench-sizing" in PAGE.read_text()
