"""``upwire tail``, and the live view of ``upwire stats``."""

import asyncio
import io
import json
import sys

import click
import pytest
from rich.console import Console

from gateway.cli import live, tail
from gateway.cli.live import show, view
from gateway.cli.tail import heading, line, turns
from gateway.stats import TURN_FIELDS
from tests.gateways import Api, running_gateway, running_simulator

BODY = {"model": "gpt-5", "input": [{"role": "user", "content": "a private prompt"}], "store": False}


def turn(number, **change):
    """A turn as the gateway tells of it, with changes."""
    values = {
        "n": number, "at": 0.0, "model": "gpt-5", "mode": "full", "reason": "new_conversation", "outcome": "ok",
        "status": 200, "bytes_in": 2000, "bytes_sent": 1500000, "first_event_ms": 12.34, "added_ms": None,
        "duration_ms": 61000.0, "recoveries": [],
    }  # fmt: skip
    return values | change


def test_one_line_says_what_happened():
    """Each column is under its name, sizes and times are for people, and failures and repeats stand out."""
    assert heading().split() == list(TURN_FIELDS)
    plain = click.unstyle(line(turn(1)))
    assert plain.split()[1:] == [
        "gpt-5", "full", "new_conversation", "ok", "200", "2.0", "KB", "1.5", "MB", "12.3", "ms", "61.0", "s",
    ]  # fmt: skip
    assert plain.index("full") == heading().index("mode ")
    delta = line(
        turn(2, mode="delta", reason=None, outcome="failed", recoveries=["replay"], first_event_ms=None)
    )
    assert "\x1b[31mfailed" in delta
    assert "\x1b[32mdelta" in delta
    assert delta.endswith("again: replay")


def feed(monkeypatch, *streams):
    """What the gateway says, connection by connection; then Ctrl-C."""
    said = iter(streams)

    def events(_base, _token):
        stream = next(said, None)
        if stream is None:
            raise KeyboardInterrupt
        if isinstance(stream, Exception):
            raise stream
        yield from stream

    monkeypatch.setattr(tail, "events", events)
    monkeypatch.setattr(tail.time, "sleep", lambda _seconds: None)


def taken(last):
    """The numbers of the turns shown until Ctrl-C."""
    numbers = []

    def follow():
        for each in turns("http://x", None, last):
            numbers.append(each["n"])  # noqa: PERF401 (what came before Ctrl-C counts)

    with pytest.raises(KeyboardInterrupt):
        follow()
    return numbers


def test_the_last_turns_come_first_and_none_comes_twice(monkeypatch):
    """Of what is kept the asked number is shown; after falling behind only what is new."""
    kept = [turn(number) for number in range(1, 6)]
    again = ("recent", {"turns": [turn(number) for number in range(3, 9)]})
    feed(
        monkeypatch, [("recent", {"turns": kept}), ("stats", {}), ("turn", turn(6)), again, ("turn", turn(9))]
    )
    assert taken(2) == [4, 5, 6, 7, 8, 9]
    feed(monkeypatch, [("recent", {"turns": kept}), ("turn", turn(6))])
    assert taken(0) == [6]


def test_a_restarted_gateway_is_waited_for(monkeypatch, capsys):
    """Its turns count anew and all are shown; one that never answered is an error at once."""
    gone = click.ClickException("cannot be reached")
    feed(
        monkeypatch, [("recent", {"turns": []}), ("turn", turn(40))], gone, [("recent", {"turns": [turn(1)]})]
    )
    assert taken(5) == [40, 1]
    assert "is gone; waiting for it" in capsys.readouterr().err
    feed(monkeypatch, gone)
    with pytest.raises(click.ClickException, match="cannot be reached"):
        list(turns("http://x", None, 5))


async def lines_of(child, count):
    """The next lines of a process."""
    async with asyncio.timeout(15):
        return [(await child.stdout.readline()).decode() for _ in range(count)]


async def test_it_follows_a_running_gateway():
    """Turns before and after the start of the command are shown, without anything of what was asked."""
    async with (
        running_simulator() as simulator,
        running_gateway(simulator.url) as gateway,
        Api(gateway.url) as api,
    ):
        first = await api.create(BODY)
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway",
            "tail",
            "--json",
            "--url",
            gateway.url,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            (before,) = await lines_of(child, 1)
            history = [*BODY["input"], *first.answer["output"], {"role": "user", "content": "more"}]
            await api.create(BODY | {"input": history})
            (after,) = await lines_of(child, 1)
        finally:
            child.terminate()
            await child.wait()
    assert [json.loads(each)["mode"] for each in (before, after)] == ["full", "delta"]
    assert json.loads(after)["bytes_sent"] < json.loads(after)["bytes_in"]
    assert "private" not in before + after


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "is no event stream"), ({"turns": {}}, "is no event stream")],
)
def test_something_else_on_that_port(upwire, answering, body, words):
    """A server without the stream is an error of one line."""
    code, _, err = upwire("tail", "--url", answering(200, body)[0])
    assert code == 1
    assert words in err


def test_a_missing_token_is_named(upwire, answering):
    """A gateway that asks for its token says so in one line."""
    code, _, err = upwire("tail", "--url", answering(401, {})[0])
    assert (code, "give --token-file" in err) == (1, True)


async def test_the_live_view_of_a_gateway():
    """Turns with what was added, bytes, sockets, percentiles, reasons with remedies, and a gateway that is gone."""
    async with (
        running_simulator() as simulator,
        running_gateway(simulator.url) as gateway,
        Api(gateway.url) as api,
    ):
        before = (await api.get("/../stats")).answer
        await api.create(BODY)
        seen = (await api.get("/../stats")).answer
    out = io.StringIO()
    Console(file=out, width=120).print(view(seen, before))
    text = " ".join(out.getvalue().split())
    for words in (
        "WebSocket works", "full 1 100% +1", "delta 0 0% +0", "sockets 1 open 0 busy, 1 idle", "new_conversation 1 Normal",
    ):  # fmt: skip
        assert words in text
    answers = iter([seen, seen, click.ClickException("it cannot be reached"), KeyboardInterrupt()])

    def fetch():
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        show(fetch, console=Console(file=out, width=120, force_terminal=True), every=0)
    assert "it cannot be reached" in out.getvalue()
    assert live.COLOURS == tail.COLOURS
