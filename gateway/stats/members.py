"""What is counted for each label of a team: never more labels than the operator named, and one for all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.stats.models import OTHER

if TYPE_CHECKING:
    from gateway.stats.turns import TurnRecord


class Now(NamedTuple):
    """What one label holds at this moment: turns, from the head of the request on, and upstream sockets."""

    in_flight: int
    sockets: int


@dataclass(slots=True)
class _Counted:
    modes: dict[str, int] = field(default_factory=lambda: {"delta": 0, "full": 0, "http": 0})
    failed: int = 0
    cancelled: int = 0
    client_in: int = 0
    upstream_out: int = 0


class Members:
    """Counts turns by label; counts nothing, and is false, until labels are named."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}

    def __bool__(self) -> bool:
        return bool(self._counted)

    def name(self, labels: Iterable[str]) -> None:
        """Count these labels and ``other``, from now on. What was counted stays for a label that stays, and for ``other``."""
        wanted = tuple(labels)
        before = self._counted
        self._counted = {label: before.get(label) or _Counted() for label in wanted}
        if wanted:
            self._counted[OTHER] = before.get(OTHER) or _Counted()

    def end(self, record: TurnRecord) -> None:
        """Count a turn that has ended."""
        counted = self._counted.get(record.label or OTHER) or self._counted[OTHER]
        counted.modes[record.mode] += 1
        counted.failed += record.outcome == "failed"
        counted.cancelled += record.outcome == "cancelled"
        counted.client_in += record.client_in
        counted.upstream_out += record.upstream_out

    def snapshot(self, now: Mapping[str, Now]) -> dict[str, Any]:
        """The ``identities`` part of the statistics; ``now`` is what each label holds."""
        nothing = Now(0, 0)
        return {
            label: {
                "turns": {
                    "total": sum(counted.modes.values()),
                    **counted.modes,
                    "failed": counted.failed,
                    "cancelled": counted.cancelled,
                    "in_flight": now.get(label, nothing).in_flight,
                },
                "bytes": {
                    "client_in": counted.client_in,
                    "upstream_out": counted.upstream_out,
                    "saved": counted.client_in - counted.upstream_out,
                },
                "sockets": now.get(label, nothing).sockets,
            }
            for label, counted in self._counted.items()
        }
