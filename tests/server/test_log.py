"""What is logged, and above all what is not."""

import asyncio
import io
import json
import logging

import pytest

from gateway import log
from gateway.stats import TurnRecord

SECRET = "sk-very-secret"


@pytest.fixture
def out():
    """Logs at debug level as JSON into a buffer, and puts the standard library's loggers back afterwards."""
    names = ["", *log.LIBRARIES]
    before = [(n, logging.getLogger(n).level, logging.getLogger(n).handlers) for n in names]
    raising = logging.raiseExceptions
    stream = io.StringIO()
    log.configure("debug", "json", stream=stream)
    yield stream
    logging.raiseExceptions = raising
    for name, level, handlers in before:
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).handlers = handlers


def lines(stream):
    """The logged objects."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def record(**change):
    """A turn, with changes."""
    values = {
        "mode": "full",
        "reason": "new_conversation",
        "outcome": "ok",
        "status": 200,
        "client_in": 10,
        "upstream_out": 12,
        "first_event": 0.25,
        "added": None,
        "total": 0.5,
        "recoveries": ("reconnect",),
        "model": "gpt-5",
    }
    return TurnRecord(**(values | change))


def test_one_line_per_turn(out):
    """A turn is one JSON object with what happened and how long it took."""
    log.turn_line(record())
    (line,) = lines(out)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "turn",
        "level": "info",
        "mode": "full",
        "reason": "new_conversation",
        "outcome": "ok",
        "status": 200,
        "model": "gpt-5",
        "bytes_in": 10,
        "bytes_sent": 12,
        "first_event_ms": 250.0,
        "added_ms": None,
        "total_ms": 500.0,
        "recoveries": ["reconnect"],
    }


@pytest.mark.parametrize(
    "key", ["sk-proj-canary0123456789", "sess-canary", "AKIAcanary0123456789", "team/sk-canary"]
)
def test_a_key_in_place_of_a_model_is_not_logged(out, key):
    """A key that was pasted where the model belongs looks like a name; only families that are known are written out."""
    log.turn_line(record(model=key))
    log.turn_line(record(model="openai/gpt-5.1-2026-01-01"))
    assert [line["model"] for line in lines(out)] == ["other", "openai/gpt-5.1-2026-01-01"]
    assert "canary" not in out.getvalue()


def test_a_text_in_place_of_a_model_is_not_logged(out):
    """The model is the client's text: what does not look like a name could be a prompt."""
    for model in ("a prompt with spaces", "x" * 41, "", "line\nbreak"):
        log.turn_line(record(model=model, first_event=None))
    assert [(line["model"], line["first_event_ms"]) for line in lines(out)] == [("other", None)] * 4


def test_levels_below_the_chosen_one_are_dropped(out):
    """A turn is information: at warning it is not logged."""
    log.configure("warning", "json", stream=out)
    log.turn_line(record())
    assert out.getvalue() == ""


def test_console_format_is_for_people(out):
    """The console format is one line that is no JSON."""
    log.configure("info", "console", stream=out)
    log.turn_line(record())
    assert "turn" in out.getvalue()
    assert not out.getvalue().startswith("{")


@pytest.mark.parametrize(
    "name", ["aiohttp.server", "aiohttp.access", "websockets.client", "asyncio", "other"]
)
def test_values_from_libraries_do_not_reach_the_log(out, name):
    """Arguments, exception texts and tails of library messages are dropped; debug and info lines wholly."""
    library = logging.getLogger(name)
    library.debug("> Authorization: %s", SECRET)
    library.info("frame %s", SECRET)
    library.warning("failed: %s", SECRET)
    library.error("Exception in callback f(b'%s')", SECRET)
    try:
        raise ValueError(SECRET)  # noqa: TRY301
    except ValueError:
        library.exception("Error handling request from %s", SECRET)
    library.error("future: <Task exception=ValueError('" + SECRET + "')>\n" + SECRET)
    assert SECRET not in out.getvalue()
    seen = lines(out)
    assert [line["level"] for line in seen] == ["warning", "error", "error", "error"]
    assert {line["logger"] for line in seen} == {name}
    assert seen[1]["event"] == "Exception in callback f"
    assert seen[2]["error"] == "ValueError"
    assert seen[2]["at"][-1].startswith("test_log.py:")


async def test_a_lost_task_is_logged_without_its_text(out):
    """What asyncio reports about a failed callback comes without the callback's arguments."""

    def fails(_secret):
        raise RuntimeError(SECRET)

    asyncio.get_running_loop().call_soon(fails, SECRET)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert SECRET not in out.getvalue()
    (line,) = lines(out)
    assert (line["logger"], line["error"]) == ("asyncio", "RuntimeError")


def test_a_failed_task_is_named_with_its_place(out):
    """Background failures are logged with the task's name, the error's type and where it was."""
    try:
        raise KeyError(SECRET)  # noqa: TRY301
    except KeyError as error:
        log.failed("sweeper", error)
    (line,) = lines(out)
    assert (line["event"], line["what"], line["error"]) == ("failed", "sweeper", "KeyError")
    assert SECRET not in out.getvalue()


def test_a_refusal_is_a_warning_with_a_remedy_once(out):
    """Opening and closing is detail; so is a refusal, but for the first of its kind since a socket was opened."""
    sockets = log.SocketLog()
    sockets.line("opened", {"socket": 1})
    for status in (403, 403, 426):
        sockets.line("refused", {"status": status, "reason": "status"})
    sockets.line("closed", {"socket": 1, "reason": "age", "code": 1000})
    sockets.line("opened", {"socket": 2})
    sockets.line("refused", {"status": 403, "reason": "status"})
    seen = lines(out)
    assert [(line["event"], line["level"]) for line in seen] == [
        ("socket_opened", "debug"),
        ("socket_refused", "warning"),
        ("socket_refused", "debug"),
        ("socket_refused", "warning"),
        ("socket_closed", "debug"),
        ("socket_opened", "debug"),
        ("socket_refused", "warning"),
    ]
    assert [line["status"] for line in seen if line["event"] == "socket_refused"] == [403, 403, 426, 403]
    for line in seen:
        assert ("remedy" in line) is (line["level"] == "warning")


def test_the_trace_of_a_turn_is_in_its_line(out):
    """The id under which a client traces the turn, where it gave one."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    log.turn_line(record(trace=trace))
    log.turn_line(record())
    first, second = lines(out)
    assert first["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert "trace_id" not in second


@pytest.mark.parametrize("failure", [BrokenPipeError, ValueError])
def test_a_reader_that_left_breaks_nothing(out, failure):
    """When standard error is a pipe that nobody reads any more, logging is lost and turns are not."""

    class Gone(io.StringIO):
        def write(self, _text):
            raise failure

        def flush(self):
            raise failure

    log.configure("info", "json", stream=Gone())
    log.turn_line(record())
    log.configure("info", "json", stream=out)
    log.turn_line(record())
    assert len(lines(out)) == 1


def test_a_record_that_cannot_be_formatted_prints_nothing_else(out, capsys):
    """A library's wrong format string neither raises nor prints its arguments."""
    logging.getLogger("aiohttp.server").error("%d", SECRET)
    assert SECRET not in out.getvalue() + capsys.readouterr().err
