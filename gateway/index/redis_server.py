"""Redis or Valkey, as far as the shared index needs it: a few commands, each within a bound, and why one failed.

The package ``redis`` is imported with this module, which only a gateway with an index imports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.index.health import Cause

PREFIX = b"upwire:"
CONNECTIONS = 16
DIAL = 1.0
"""Seconds for connecting, TLS and signing in, where no turn waits for it."""

Command = tuple[bytes | int, ...]


class Unanswered(Exception):
    """The server did not do what it was asked to; ``cause`` says why. Nothing of what it said is kept, it may quote a password."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause: Cause = cause


class RedisServer:
    """One server by its URL: redis, rediss or unix. Raises ValueError for a URL that is none of these."""

    def __init__(self, url: str) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=DIAL,
            socket_timeout=DIAL,
            socket_connect_timeout=DIAL,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._redis = Redis.from_pool(pool)

    async def ping(self, seconds: float) -> None:
        """See that it answers within ``seconds``; connecting has DIAL seconds beside that. Raises Unanswered."""
        await self._ask((b"PING",), DIAL)
        await self._ask((b"PING",), seconds)

    async def values(self, names: Sequence[bytes]) -> list[bytes | None]:
        """What stands under each name. Raises Unanswered; the caller bounds the time."""
        found = await self._ask((b"MGET", *(PREFIX + name for name in names)), None)
        return _listed(found, len(names))

    async def values_and_lives(
        self, names: Sequence[bytes], lasting: Sequence[bytes]
    ) -> tuple[list[bytes | None], list[float]]:
        """What stands under each of ``names``, and for how many seconds ``lasting`` are kept; negative for ever. Raises Unanswered."""
        commands: list[Command] = [(b"PTTL", PREFIX + name) for name in lasting]
        if names:
            commands.append((b"MGET", *(PREFIX + name for name in names)))
        found = await self.do(commands)
        lives = [each / 1000 if isinstance(each, int) else -1.0 for each in found[: len(lasting)]]
        return _listed(found[-1], len(names)) if names else [], lives

    async def do(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to several commands at once; Unanswered stands for one that was refused. Raises Unanswered."""
        try:
            pipeline = self._redis.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            found = await pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 (whatever is at that address may answer anything, and the library chokes in many ways)
            raise Unanswered(_cause(error)) from None
        if len(found) != len(commands):
            raise Unanswered("error")
        return [Unanswered(_cause(each)) if isinstance(each, Exception) else each for each in found]

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def _ask(self, command: Command, seconds: float | None) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 (as above)
            raise Unanswered(_cause(error)) from None


def put(name: bytes, value: bytes, seconds: float, *, over: bool) -> Command:
    """Keep ``value`` for so long; without ``over`` only where nothing stands."""
    kept = (b"SET", PREFIX + name, value, b"PX", max(1, int(seconds * 1000)))
    return kept if over else (*kept, b"NX")


def count(names: Sequence[bytes]) -> Command:
    """How many of these there are."""
    return (b"EXISTS", *(PREFIX + name for name in names))


def drop(name: bytes) -> Command:
    """Keep nothing there."""
    return (b"DEL", PREFIX + name)


def append(name: bytes, value: bytes, most: int) -> Command:
    """Add an entry to the log there, which drops its oldest where it has many more than ``most``."""
    return (b"XADD", PREFIX + name, b"MAXLEN", b"~", most, b"*", b"v", value)


def listed(name: bytes, first: bytes | None, most: int) -> Command:
    """The entries of the log there, from the one with the number ``first``, ``most`` at a time."""
    return (b"XRANGE", PREFIX + name, first or b"-", b"+", b"COUNT", most)


def length(name: bytes, seconds: float) -> tuple[Command, ...]:
    """How many entries the log there has; it is kept for so long from now on."""
    return (b"XLEN", PREFIX + name), (b"PEXPIRE", PREFIX + name, max(1, int(seconds * 1000)))


def _listed(found: Any, length: int) -> list[bytes | None]:
    if not isinstance(found, list) or len(found) != length:
        raise found if isinstance(found, Unanswered) else Unanswered("error")
    return [each if isinstance(each, bytes) else None for each in found]


def _cause(error: BaseException) -> Cause:
    match error:
        case TimeoutError() | exceptions.TimeoutError():
            return "timeout"
        case (
            exceptions.AuthenticationError()
            | exceptions.AuthorizationError()
            | exceptions.AuthenticationWrongNumberOfArgsError()
            | exceptions.NoPermissionError()
        ):
            return "refused"
        case exceptions.OutOfMemoryError():
            return "full"
        case exceptions.ConnectionError() | OSError():
            return "unreachable"
        case exceptions.RedisError() if str(error).startswith(("NOAUTH", "WRONGPASS")):
            return "refused"
        case _:
            return "error"
