"""Each of several processes keeps its part of what limits all of them."""

from dataclasses import fields

import pytest

from gateway.server.fellows import DIVIDED, part_of, team_part
from gateway.settings import Settings
from gateway.upstream.team import Member, Team


@pytest.mark.parametrize("count", [2, 3, 7])
def test_limits_are_divided_and_rounded_up_and_nothing_else_changes(count):
    """The parts make up the whole, no part is nothing, and no limit stays none."""
    whole = Settings(workers=count, max_in_flight=5)
    part = part_of(whole, count)
    for setting in fields(Settings):
        before, after = getattr(whole, setting.name), getattr(part, setting.name)
        if setting.name in DIVIDED:
            assert before <= after * count < before + count
            assert bool(after) == bool(before)
        else:
            assert after == before


def test_limits_of_labels_are_divided_too():
    """A label without limits of its own has none afterwards."""
    team = Team({"sha256:a": Member("alice", in_flight=5, sockets=1), "sha256:b": Member("bob")})
    parts = team_part(team, 2).members
    assert (parts["sha256:a"].in_flight, parts["sha256:a"].sockets) == (3, 1)
    assert (parts["sha256:b"].in_flight, parts["sha256:b"].sockets) == (None, None)
    assert team_part(team, 2).labels == team.labels
