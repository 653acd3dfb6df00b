"""What one turn cost and how it ended, gathered while it runs: the source of its line in the log and of the statistics."""

from __future__ import annotations

from collections.abc import Callable

from gateway.conversation.reasons import Reason
from gateway.errors import GatewayError
from gateway.settings import MAIN
from gateway.stats import Mode, Outcome, TurnRecord


class Account:
    """Times are read from ``clock`` in seconds; ``received`` is when the request's body was complete."""

    def __init__(
        self,
        clock: Callable[[], float],
        received: float,
        client_in: int,
        model: str,
        trace: str | None = None,
    ) -> None:
        self._clock = clock
        self._received = received
        self._client_in = client_in
        self._model = model
        self._trace = trace
        self.label: str | None = None
        self.upstream = MAIN
        self._asked = False
        self._paused_at: float | None = None
        self._paused = 0.0
        self._sent_at: float | None = None
        self._event_at: float | None = None
        self._answered_at: float | None = None
        self._written_at: float | None = None
        self._collected = False
        self._upstream_out = 0
        self._recoveries: list[str] = []
        self._outcome: Outcome | None = None
        self.turn_mode: Mode = "full"
        self.reason: Reason | None = Reason.NEW_CONVERSATION
        self.status = 200
        self.begun = 0

    def mode(self, mode: Mode, reason: Reason | None) -> None:
        """How the turn goes upstream now; the last call counts."""
        self.turn_mode = mode
        self.reason = reason

    def pause(self) -> None:
        """The gateway waits for a socket: not its own time."""
        self._asked = True
        self._paused_at = self._clock()

    def resume(self) -> None:
        """The wait is over."""
        if self._paused_at is not None:
            self._paused += self._clock() - self._paused_at
            self._paused_at = None

    def sending(self, size: int) -> None:
        """A frame or body of ``size`` bytes goes upstream, which may begin to run it."""
        self._upstream_out += size
        self.begun += 1

    def not_begun(self) -> None:
        """What was sent last was refused, or did not get through: the upstream did not begin to run it."""
        self.begun -= 1

    def sent(self) -> None:
        """The frame is written."""
        self._sent_at = self._clock()

    def event(self) -> None:
        """Something of the answer arrived."""
        self._answered_at = self._clock()
        if self._event_at is None:
            self._event_at = self._answered_at

    def written(self) -> None:
        """The first piece of the answer is with the client's connection."""
        if self._written_at is None:
            self._written_at = self._clock()

    def collected(self) -> None:
        """The answer is given in one piece, so only what follows its last event is the gateway's own time."""
        self._collected = True

    def added_until_now(self) -> float | None:
        """The gateway's own time if the answer were written now, in seconds; None where that has no meaning."""
        return self._added(self._clock())

    def tried_again(self, recovery: str | None) -> None:
        """The try failed and another follows."""
        self._event_at = None
        if recovery is not None:
            self._recoveries.append(recovery)

    def finished(self, *, failed: bool, status: int | None = None) -> None:
        """The answer has come to its end."""
        self._outcome = "failed" if failed else "ok"
        if status is not None:
            self.status = status

    def record(self, *, left: bool, error: BaseException | None) -> TurnRecord:
        """The turn as it ended; ``left`` when the client went away first."""
        if isinstance(error, GatewayError):
            self.status = error.status
        outcome: Outcome = self._outcome or "failed"
        if left and self._outcome is None:
            outcome = "cancelled"
        return TurnRecord(
            mode=self.turn_mode,
            reason=self.reason.value if self.reason is not None else None,
            outcome=outcome,
            status=self.status,
            client_in=self._client_in,
            upstream_out=self._upstream_out,
            first_event=None if self._event_at is None else self._event_at - self._received,
            added=self._added(self._written_at),
            total=self._clock() - self._received,
            recoveries=tuple(self._recoveries),
            model=self._model,
            waited=self._paused if self._asked else None,
            trace=self._trace,
            label=self.label,
            upstream=self.upstream,
        )

    def _added(self, written_at: float | None) -> float | None:
        if self.turn_mode == "http" or self._recoveries:
            return None
        answered_at = self._answered_at if self._collected else self._event_at
        if self._sent_at is None or answered_at is None or written_at is None:
            return None
        return (self._sent_at - self._received - self._paused) + (written_at - answered_at)
