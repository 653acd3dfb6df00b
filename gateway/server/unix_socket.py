"""A listening unix socket: its file, who may connect, and what an earlier process left behind.

It is reached by those who can open the file, on this machine only: containers that share a folder, say, but no network.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from gateway.server.listen import BACKLOG, CannotListen


class UnixListener(socket.socket):
    """A listening unix socket that takes its file away when it is closed.

    With ``number`` it is one that another process opened and handed over, of which the file is now ours.
    """

    def __init__(self, path: Path, number: int | None = None) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM, fileno=number)
        self.path = path
        self._file: tuple[int, int] | None = None
        if number is not None:
            self.setblocking(False)
            with contextlib.suppress(OSError):
                self._file = _file_of(path)

    def open(self) -> None:
        """Bind and listen. Only owner and group may connect."""
        # Other users are kept out from the first moment on, not after a chmod.
        before = os.umask(0o117)
        try:
            self.bind(str(self.path))
        finally:
            os.umask(before)
        self._file = _file_of(self.path)
        self.listen(BACKLOG)
        self.setblocking(False)

    def keep(self) -> None:
        """Leave the file to another process that listens on this very socket."""
        self._file = None

    def close(self) -> None:
        """Close, and remove the file unless another process has put its own there."""
        file, self._file = self._file, None
        with contextlib.suppress(OSError):
            if file is not None and _file_of(self.path) == file:
                self.path.unlink()
        super().close()


def bind_unix(path: str) -> socket.socket:
    """A listening unix socket at ``path``; the file that a killed process left there is replaced. Raises CannotListen."""
    where = Path(path)
    try:
        listener = UnixListener(where)
    except AttributeError:
        raise CannotListen(f"cannot listen on unix:{path}: this system has no unix sockets") from None
    try:
        with _alone(where.parent):
            _remove_stale(where)
            listener.open()
    except OSError as error:
        listener.close()
        raise CannotListen(f"cannot listen on unix:{path}: {_why_no_file(error)}") from None
    except CannotListen:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second instance from taking the socket of a first one for a stale file, while that one is about to listen."""
    import fcntl  # noqa: PLC0415 (not on systems without unix sockets)

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise CannotListen(
                f"cannot listen on unix:{path}: there is a file of that name that is no socket"
            )
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            # Its queue is full: somebody listens.
            pass
    raise CannotListen(f"unix:{path} is in use; stop the other process, or choose another path with --listen")


def _file_of(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _why_no_file(error: OSError) -> str:
    if error.errno is None:
        # The socket module refuses long paths by itself.
        return "the path is too long for a socket (about 100 bytes at most)"
    if error.errno == errno.ENOENT:
        return "its folder does not exist"
    return os.strerror(error.errno)
