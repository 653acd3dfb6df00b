"""Which local path leads to which upstream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from gateway.upstream.entries import MAIN_PATH
from gateway.upstream.urls import api_path

Led = TypeVar("Led")
Other = TypeVar("Other")


class LocalPaths(Generic[Led]):
    """Leads request targets to whatever stands for an upstream: ``main``, or one of ``further`` by its path.

    No path of ``further`` may hold another one, nor begin as those of the main upstream do.
    """

    def __init__(self, main: Led, further: Mapping[str, Led] | None = None) -> None:
        self.main = main
        self._further = dict(further or {})

    def __iter__(self) -> Iterator[Led]:
        yield self.main
        yield from self._further.values()

    @property
    def further(self) -> tuple[str, ...]:
        """The paths beside those of the main upstream."""
        return tuple(self._further)

    def map(self, change: Callable[[Led], Other]) -> LocalPaths[Other]:
        """The same paths, leading to what ``change`` makes of each."""
        return LocalPaths(change(self.main), {path: change(led) for path, led in self._further.items()})

    def find(self, target: str) -> tuple[Led, str] | None:
        """Whose request it is, and its target as it would be under ``/v1``; None if it is no upstream's.

        ``target`` is the request's path and query as received. Paths end at borders of segments, and escapes in them are not decoded:
        ``/a`` leads neither ``/ab`` nor ``/%61``.
        """
        path = "/" + target.partition("?")[0].lstrip("/")
        for local, led in self._further.items():
            if path == local or path.startswith(local + "/"):
                below = ("/" + target.lstrip("/"))[len(local) :]
                # A client may have the API's root in its base URL, or not.
                return led, below if api_path(below) is not None else MAIN_PATH + below
        return (self.main, target) if api_path(target) is not None else None
