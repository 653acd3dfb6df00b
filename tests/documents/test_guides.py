"""What the guides of gateway/README.md ask for: a step that is forgotten is noticed."""

from dataclasses import fields

from gateway.settings import Settings
from gateway.simulator import PLAYED
from gateway.upstream.profile import AUTO, PROFILES


def test_a_profile_can_be_chosen_and_is_played():
    """Every profile is a choice of the setting, and an upstream of its kind is simulated."""
    (setting,) = (one for one in fields(Settings) if one.name == "profile")
    assert set(setting.metadata["choices"]) == {AUTO, *PROFILES}
    assert set(PLAYED) == set(PROFILES)
