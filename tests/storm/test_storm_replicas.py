"""A short storm over two replicas that share one Redis; ``make chaos REPLICAS=2 SEED=n`` runs long ones."""

import pytest

from tests.storm.judge import judge
from tests.storm.report import table
from tests.storm.storm import run_storm


@pytest.mark.system
@pytest.mark.parametrize("seed", [1, 6])
async def test_a_storm_over_two_replicas_breaks_no_promise(seed):
    """What holds for one gateway holds for two, whichever gets a turn and whatever becomes of their index."""
    storm = await run_storm(seed, 350, match="equivalent", replicas=2)

    verdict = judge(storm)

    assert verdict.clean, table(storm, verdict)
    assert len(storm.asked) >= 350
    assert storm.stats["turns"]["delta"]
    if not storm.simulator.options.zero_retention:
        assert storm.stats["index"]["hits"]
