"""What the gateway says about its work: one line per turn, and nothing that a client or an upstream sent.

Bodies, headers and keys must not reach the log by any way, so nothing of what libraries would like to print is taken but the
constant part of their message and where an error happened. An error's own text is never printed: it may quote what it choked on.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import structlog

from gateway.settings import MAIN
from gateway.stats import OTHER, TurnRecord, model_label
from gateway.upstream.remedies import REFUSED_TEXTS

LIBRARIES = ("aiohttp", "asyncio", "websockets")

_CONSTANT = re.compile(r"[^\n<(\[{'\"]{0,120}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,39}")
_FRAMES = 3


def configure(level: str = "info", log_format: str = "auto", *, stream: TextIO | None = None) -> None:
    """Set up logging of this process, to ``stream`` or standard error; may be called again.

    ``log_format`` is ``json`` (one object a line), ``console`` (for people) or ``auto`` (console on a terminal only).
    """
    out = stream or sys.stderr
    sink = cast("TextIO", _Sink(out))
    people = log_format == "console" or (log_format == "auto" and out.isatty())
    renderer: Any
    if people:
        renderer = structlog.dev.ConsoleRenderer(
            colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    else:
        renderer = structlog.processors.JSONRenderer(sort_keys=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sink),
        cache_logger_on_first_use=False,
    )
    _take_in_libraries()


def logger() -> structlog.typing.FilteringBoundLogger:
    """The gateway's own logger; give it constant event names and values that no peer chose."""
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger())


def turn_line(record: TurnRecord) -> None:
    """Log one turn that has ended."""
    logger().info(
        "turn",
        mode=record.mode,
        reason=record.reason,
        outcome=record.outcome,
        status=record.status,
        model=bounded_name(record.model),
        bytes_in=record.client_in,
        bytes_sent=record.upstream_out,
        first_event_ms=_ms(record.first_event),
        added_ms=_ms(record.added),
        total_ms=_ms(record.total),
        recoveries=list(record.recoveries),
        **({} if record.upstream == MAIN else {"upstream": record.upstream}),
        **({} if record.label is None else {"identity": record.label}),
        **({} if record.trace is None else {"trace_id": record.trace.split("-")[1]}),
    )


class SocketLog:
    """Logs the life of upstream sockets.

    It is detail, but for a refusal of a kind that was not seen since a socket was last opened: that is a warning with a remedy.
    """

    def __init__(self) -> None:
        self._refused: set[tuple[Any, Any, Any]] = set()

    def line(self, what: str, fields: Mapping[str, Any]) -> None:
        """Log what became of a socket: ``opened``, ``closed`` or ``refused``."""
        level, more = logging.DEBUG, {}
        if what == "opened":
            self._refused = {kind for kind in self._refused if kind[0] != fields.get("upstream")}
        elif what == "refused":
            kind = (fields.get("upstream"), fields.get("status"), fields.get("reason"))
            if kind not in self._refused:
                self._refused.add(kind)
                text = REFUSED_TEXTS.get(str(fields.get("reason")))
                level, more = logging.WARNING, {} if text is None else {"remedy": text.remedy}
        logger().log(level, f"socket_{what}", **fields, **more)


def reloaded(changed: Sequence[str], need_restart: Sequence[str]) -> None:
    """Log that the settings were read again: the names of those that are new, and of those that take a restart."""
    logger().info("reloaded", changed=list(changed))
    if need_restart:
        logger().warning(
            "restart_needed", settings=list(need_restart), remedy="they keep their value until a restart"
        )


def not_reloaded(why: str) -> None:
    """Log that the settings could not be read again, with the text of a ConfigError, which quotes no value."""
    logger().error("not_reloaded", why=why, remedy="everything stays as it was")


def handed_over(process: int) -> None:
    """Log that a successor answers from now on; its number."""
    logger().info("handed_over", process=process)


def not_handed_over(why: str) -> None:
    """Log why no successor took over, in constant words."""
    logger().error("not_handed_over", why=why, remedy="everything stays as it was")


def worker_ended(number: int, how: str) -> None:
    """Log that a worker process has ended unasked, in constant words."""
    logger().error(
        "worker_ended",
        worker=number,
        how=how,
        remedy="another takes its place; its conversations are sent in full once",
    )


def failed(what: str, failure: BaseException) -> None:
    """Log a failure of the gateway's own, in a background task or a request."""
    logger().error("failed", what=what, **where(failure))


def where(failure: BaseException) -> dict[str, Any]:
    """The type of an error and the innermost places it came through, without its text."""
    frames = traceback.extract_tb(failure.__traceback__)[-_FRAMES:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(failure).__name__, "at": places}


def bounded_name(text: str) -> str:
    """``text`` if it looks like the name of a model of a known family and is no longer than one, else ``"other"``.

    A key looks like a name too, and may have been pasted where the model's belongs.
    """
    return text if _NAME.fullmatch(text) and model_label(text) != OTHER else OTHER


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


class _Sink:
    """Writes to a stream that may be gone: whoever reads the log may leave, and no turn may fail for it.

    A line is written in one piece, since other processes of this gateway may write to the same file.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = ""

    def write(self, text: str) -> None:
        line, self._line = self._line + text, ""
        if not line.endswith("\n"):
            self._line = line
            return
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class _FromLibraries(logging.Handler):
    """Passes on the constant part of the messages of libraries, dropping the values in them."""

    def emit(self, record: logging.LogRecord) -> None:
        constant = _CONSTANT.match(str(record.msg))
        fields: dict[str, Any] = {"logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            fields |= where(record.exc_info[1])
        logger().log(record.levelno, constant.group().strip() if constant else "message", **fields)


def _take_in_libraries() -> None:
    # Below WARNING, websockets logs frames and headers, and asyncio logs callbacks with their arguments.
    root = logging.getLogger()
    root.handlers = [_FromLibraries()]
    root.setLevel(logging.WARNING)
    for name in LIBRARIES:
        library = logging.getLogger(name)
        library.handlers = []
        library.propagate = True
        library.setLevel(logging.WARNING)
    # A handler that fails would otherwise print the record with its arguments.
    logging.raiseExceptions = False
