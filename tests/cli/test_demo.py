"""``upwire demo``: the comparison it draws, and the whole of it once."""

import builtins
import subprocess
import sys
import time

import pytest

from gateway.demo import TURNS, Loop, comparison, file_text
from gateway.stats import REASONS


def loop(sent=3000, wait=0.5, **change):
    """A whole run; ``change`` replaces the output of a turn."""
    outputs = [change.get(f"turn_{n}", f"answer {n}") for n in range(TURNS)]
    return Loop(outputs=outputs, waits=[wait] * TURNS, sent=sent)


def stats(delta=TURNS - 1, full=1, http=0, **reasons):
    """The statistics after the second run."""
    return {
        "turns": {"delta": delta, "full": full, "http": http},
        "bytes": {"upstream_out": 1000},
        "reasons": dict.fromkeys(REASONS, 0) | {"new_conversation": 1} | reasons,
    }


def test_the_table_compares_what_counts():
    """Turns by mode, bytes and waiting time stand side by side with their ratio, and the conditions below."""
    lines, good = comparison(loop(), loop(wait=0.25), stats())
    rows = [" ".join(line.split()) for line in lines]
    assert good
    assert rows[2:7] == [
        f"turns {TURNS} {TURNS}",
        f"delta / full / http - {TURNS - 1} / 1 / 0",
        "bytes sent upstream 3,000 1,000 3.0 x less",
        "waiting per turn 0.50 s 0.25 s 2.0 x less",
        "waiting, last turn 0.50 s 0.25 s 2.0 x less",
    ]
    assert "Answers are equal, turn by turn." in rows
    assert "The upstream is simulated, and so are its costs: 100 ms per request" in " ".join(rows)


@pytest.mark.parametrize(
    ("through", "counted", "words"),
    [
        (loop(turn_7="another"), stats(), "Answers are NOT EQUAL."),
        (Loop(outputs=["answer 0"], waits=[1.0], sent=1), stats(), "Answers are NOT EQUAL."),
        (
            loop(),
            stats(TURNS - 2, 2, 0, not_found=1),
            "reasons of the others: new_conversation 1, not_found 1",
        ),
        (loop(), stats(TURNS - 1, 0, 1), "NOT every turn but the first was a delta"),
    ],
)
def test_what_was_promised_and_not_kept_is_said(through, counted, words):
    """An unequal answer or a turn that was no delta makes the demo fail, and the table says which."""
    lines, good = comparison(loop(), through, counted)
    assert not good
    assert any(words in line for line in lines)


def test_nothing_is_called_less_that_is_not():
    """No ratio is shown where the gateway was not better."""
    lines, _ = comparison(loop(sent=10), loop(), stats())
    assert "less" not in "".join(lines[:8])


def test_the_tool_gives_back_what_depends_on_its_arguments():
    """Two calls read different texts of a few kilobytes."""
    assert file_text('{"path":"a"}') != file_text('{"path":"b"}')
    assert 1000 < len(file_text("{}")) < 10_000


def test_without_the_sdk_it_says_how_to_get_it(upwire, monkeypatch):
    """The demo needs the SDK, which the gateway itself does not."""
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.partition(".")[0] == "openai":
            raise ModuleNotFoundError(name="openai")
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "gateway.demo")
    monkeypatch.setattr(builtins, "__import__", without)
    code, _, err = upwire("demo")
    assert code == 1
    assert 'pip install "upwire[demo]"' in err


@pytest.mark.slow
def test_the_whole_demo():
    """It ends by itself in under a minute, and keeps its promises."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "demo"], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 60
    assert f"{TURNS - 1} / 1 / 0" in done.stdout
    assert "Answers are equal, turn by turn." in done.stdout
    assert done.stderr == ""
