"""Short storms, one at each level of equality; ``make chaos SEED=n`` runs long ones."""

import pytest

from tests.storm.hazards import FAMILIES
from tests.storm.judge import judge
from tests.storm.report import table
from tests.storm.storm import run_storm


@pytest.mark.parametrize(("seed", "match"), [(1, "equivalent"), (2, "exact"), (3, "lenient")])
async def test_a_storm_breaks_no_promise(seed, match):
    """Right contexts, own answers, whole or visibly broken, tries counted, and no failure but those that the rules allow."""
    storm = await run_storm(seed, 350, match=match)

    verdict = judge(storm)

    assert verdict.clean, table(storm, verdict)
    assert len(storm.asked) >= 350
    assert {label.partition(":")[0] for label in verdict.ends} >= {*FAMILIES, "calm"}
    assert storm.stats["turns"]["delta"]
    assert {outage.kind for outage in storm.outages} == {"restart", "reset all", "close all"}
