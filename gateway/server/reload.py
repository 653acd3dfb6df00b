"""Taking new settings without a restart, and what a hangup of the terminal asks for."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from gateway import log
from gateway.config import ConfigError
from gateway.settings import Settings
from gateway.upstream.team import TeamUnusable


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Settings to go on with, the names of those that are new, and of those that differ but take a restart."""

    settings: Settings
    changed: tuple[str, ...]
    need_restart: tuple[str, ...]


def reloaded(running: Settings, wanted: Settings) -> Reloaded:
    """What of ``wanted`` a running gateway takes."""
    differ = [f for f in fields(Settings) if getattr(running, f.name) != getattr(wanted, f.name)]
    taken = {f.name: getattr(wanted, f.name) for f in differ if f.metadata["reload"]}
    refused = tuple(f.name for f in differ if not f.metadata["reload"])
    return Reloaded(replace(running, **taken), tuple(taken), refused)


class Terminal:
    """The terminal that this process was started from, if any: when it goes away, SIGHUP means to end, as it does by default.

    A process started to survive it (``nohup``), or by a service manager, has none that counts.
    """

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._counts = not ignored and self._there()

    @property
    def gone(self) -> bool:
        """Whether there was one that counts, and is none any more."""
        return self._counts and not self._there()

    @staticmethod
    def _there() -> bool:
        with contextlib.suppress(OSError):
            os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
            return True
        return False


class Hangup:
    """What SIGHUP does: the settings are read again, or, if the terminal is gone, the gateway ends.

    ``again`` reads them and may raise ConfigError; ``reconfigure`` goes on with them and may raise TeamUnusable; ``end`` is called
    with the signal's number.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        again: Callable[[], Settings],
        reconfigure: Callable[[Settings], None],
        end: Callable[[int], object],
    ) -> None:
        self._settings = settings
        self._again = again
        self._reconfigure = reconfigure
        self._end = end
        self._terminal = Terminal()

    def take(self) -> None:
        """The signal has come."""
        if self._terminal.gone:
            self._end(signal.SIGHUP)
            return
        try:
            found = reloaded(self._settings, self._again())
            self._reconfigure(found.settings)
        except (ConfigError, TeamUnusable) as error:
            log.not_reloaded(str(error))
            return
        self._settings = found.settings
        log.configure(found.settings.log_level, found.settings.log_format)
        log.reloaded(found.changed, found.need_restart)
