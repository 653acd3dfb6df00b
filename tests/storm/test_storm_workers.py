"""A short storm over two workers; ``make chaos WORKERS=2 SEED=n`` runs long ones."""

import pytest

from tests.storm.judge import judge
from tests.storm.report import table
from tests.storm.storm import run_storm


@pytest.mark.parametrize(("seed", "match"), [(1, "equivalent"), (2, "exact")])
async def test_a_storm_over_two_workers_breaks_no_promise(seed, match):
    """What holds for one process holds for two, whichever gets a turn."""
    storm = await run_storm(seed, 350, match=match, workers=2)

    verdict = judge(storm)

    assert verdict.clean, table(storm, verdict)
    assert len(storm.asked) >= 350
    assert storm.stats["turns"]["delta"]
    assert storm.stats["workers"] == {"count": 2, "silent": []}
