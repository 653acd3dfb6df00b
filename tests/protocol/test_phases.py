"""The transition table: complete, and the only way."""

from itertools import product

import pytest

from gateway.protocol.phases import PERMITS, TRANSITIONS, IllegalTransition, Phase, Signal, step


@pytest.mark.parametrize(("phase", "signal"), list(product(Phase, Signal)))
def test_every_pair_is_listed_or_illegal(phase, signal):
    """A pair that the table lacks raises; a pair that it has leads where it says."""
    if (phase, signal) in TRANSITIONS:
        assert step(phase, signal) is TRANSITIONS[phase, signal]
    else:
        with pytest.raises(IllegalTransition):
            step(phase, signal)


def test_every_phase_has_a_permit_and_can_be_reached():
    """No phase is without rules, and none but the first is out of reach."""
    assert set(PERMITS) == set(Phase)
    assert set(TRANSITIONS.values()) | {Phase.PLANNED} == set(Phase)


def test_ended_phases_have_no_way_out():
    """A phase has ended exactly if nothing leads out of it."""
    leads_on = {phase for phase, _ in TRANSITIONS}
    assert {phase for phase in Phase if PERMITS[phase].ended} == set(Phase) - leads_on


def test_nothing_is_repeated_once_something_was_relayed():
    """No phase that can follow a relayed event allows a repeat."""
    behind, seen = [Phase.STREAMING], set()
    while behind:
        phase = behind.pop()
        assert not PERMITS[phase].may_repeat
        seen.add(phase)
        behind += {to for (at, _), to in TRANSITIONS.items() if at is phase} - seen
    assert Phase.BROKEN in seen and Phase.LOST not in seen


def test_only_completed_commits():
    """No other ending makes a parent."""
    assert [phase for phase in Phase if PERMITS[phase].may_commit] == [Phase.COMPLETED]
