"""The upstream's key where the gateway holds it, so that its clients need not: from a file or from the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from gateway.settings import MAIN, UpstreamEntry

_LONGEST = 16 * 1024

Stamp = tuple[int, int, int]


class KeyUnusable(Exception):
    """There is no usable key where the settings say; the text says where and why, and quotes nothing of it."""


class UpstreamKey:
    """A key that is always the newest: a file is read again when its time, size or number changes.

    While the file cannot be used, the last key that could be is kept, and the log says so once per change. ``on_change`` is called
    with each other key that is found.
    """

    def __init__(self, key: str, *, file: Path | None = None, setting: str = "upstream_key_file") -> None:
        """``key`` is used as it is; with ``file``, which ``setting`` names, the key is the file's instead. Raises KeyUnusable."""
        self._file = file
        self._setting = setting
        self._stamp: Stamp | None = None
        self._key = key
        self.on_change: Callable[[], None] = lambda: None
        if file is not None:
            try:
                self._stamp, self._key = _stamp(file), _read(file, setting)
            except OSError as error:
                raise KeyUnusable(f"{setting} {file} cannot be read ({type(error).__name__})") from None

    @property
    def latest(self) -> str:
        """The key that ``current`` gave last."""
        return self._key

    def current(self) -> str:
        """The key to use for a request that begins now; asks the file system for the file's stamp."""
        if self._file is None:
            return self._key
        try:
            stamp: Stamp | None = _stamp(self._file)
        except OSError:
            stamp = None
        if stamp != self._stamp:
            self._stamp = stamp
            before = self._key
            try:
                self._key = _read(self._file, self._setting)
            except (OSError, KeyUnusable):
                structlog.get_logger("upwire").warning(
                    "upstream_key_unusable",
                    setting=self._setting,
                    remedy="the last usable key stays in use; the file must hold one word of printable ASCII",
                )
            if self._key != before:
                self.on_change()
        return self._key


def upstream_key(
    file: str,
    variable: str,
    environment: Mapping[str, str],
    *,
    names: tuple[str, str] = ("upstream_key_file", "upstream_key_env"),
) -> UpstreamKey | None:
    """The key that the settings called ``names`` say is in a ``file`` or a ``variable``; None if both are empty.

    Raises KeyUnusable, also where both are given.
    """
    by_file, by_variable = names
    if file and variable:
        raise KeyUnusable(f"{by_file} and {by_variable} are both set; which of them holds the key?")
    if file:
        return UpstreamKey("", file=Path(file), setting=by_file)
    if not variable:
        return None
    # The value of the setting is not shown: it may be the key, by mistake.
    key = environment.get(variable, "").strip()
    if not key:
        raise KeyUnusable(f"{by_variable} must be the name of an environment variable that holds the key")
    if not _sound(key):
        raise KeyUnusable(
            f"the environment variable that {by_variable} names must hold one word of printable ASCII"
        )
    return UpstreamKey(key)


def held_key(entry: UpstreamEntry, environment: Mapping[str, str]) -> UpstreamKey | None:
    """The key that the gateway holds for an upstream, None if clients send their own. Raises KeyUnusable."""
    file, variable = (
        f"upstream_key_{kind}" if entry.name == MAIN else f"key_{kind} of upstreams.{entry.name}"
        for kind in ("file", "env")
    )
    return upstream_key(entry.key_file, entry.key_env, environment, names=(file, variable))


def _stamp(file: Path) -> Stamp:
    found = file.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(file: Path, setting: str) -> str:
    with file.open("rb") as opened:
        key = opened.read(_LONGEST).decode("latin-1").strip()
    if not _sound(key):
        raise KeyUnusable(f"{setting} {file} must hold one word of printable ASCII, the key")
    return key


def _sound(key: str) -> bool:
    """Whether it can stand in a header as one word."""
    return bool(key) and key.isascii() and key.isprintable() and " " not in key
