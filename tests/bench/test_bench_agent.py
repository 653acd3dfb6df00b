"""The agent benchmark's two links carry a recorded session, and what it counts is what went over them."""

from __future__ import annotations

import pytest

from tests.bench import link
from tests.bench.agent import Conditions, over_bytes, over_packets

QUICK = Conditions(round_trip=0.004, rate=1e9, per_request=0.0, per_kb=0.0, pace=0.0)


def compared(one):
    return [one("pi-1.6.0", QUICK, through_gateway=way) for way in (False, True)]


@pytest.mark.system
def test_a_session_over_a_relay():
    """Where packets cannot be held back bytes are; through the gateway fewer of them go up, and all turns but one are deltas."""
    direct, through = compared(over_bytes)
    assert (direct["turns"], direct["modes"]) == (6, {"direct": 6})
    assert through["modes"] == {"full": 1, "delta": 5}
    assert through["sent"] < direct["sent"] / 1.5


@pytest.mark.system
def test_a_session_over_held_back_packets():
    """Where the machine has network namespaces and TUN devices, real TCP runs over the link, and it is late by what was asked."""
    if not link.possible():
        pytest.skip("needs root, network namespaces and /dev/net/tun")
    with link.packets(0.02, 20e6 / 8):
        direct, through = compared(over_packets)
    assert through["sent"] < direct["sent"] / 1.5
    assert direct["waited"] > direct["turns"] * 0.04
