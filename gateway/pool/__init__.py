"""Which socket serves which turn: decisions and state, no I/O."""

from gateway.pool.age import AgeLimits
from gateway.pool.choice import Barred, Closed, Closing, Dial, Fate, Full, PoolLimits, Use, Want
from gateway.pool.line import MAIN, Line
from gateway.pool.party import Party
from gateway.pool.pool import Pool
from gateway.pool.upgrade import Bar, UpgradeMemory

__all__ = [
    "MAIN",
    "AgeLimits",
    "Bar",
    "Barred",
    "Closed",
    "Closing",
    "Dial",
    "Fate",
    "Full",
    "Line",
    "Party",
    "Pool",
    "PoolLimits",
    "UpgradeMemory",
    "Use",
    "Want",
]
