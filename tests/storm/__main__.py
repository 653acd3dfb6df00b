"""``python -m tests.storm --seed 1 --turns 2000``: one storm, its table, and exit code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys

import structlog

from tests.storm.judge import judge
from tests.storm.report import table
from tests.storm.storm import run_storm


def main():
    """Run one storm and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--seed", type=int, help="the storm is drawn from it; default: a new one")
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument(
        "--match", choices=("exact", "equivalent", "lenient"), help="default: drawn from the seed"
    )
    parser.add_argument("--replicas", type=int, default=1, help="gateways that share a Redis (redis-server)")
    parser.add_argument("--workers", type=int, default=1, help="processes of one gateway")
    chosen = parser.parse_args()
    for name in [
        name for name in os.environ if name.lower().endswith("_proxy") or name.startswith("UPWIRE_")
    ]:
        del os.environ[name]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    seed = random.randrange(10**6) if chosen.seed is None else chosen.seed
    print(f"seed {seed}, {chosen.turns} turns", flush=True)  # noqa: T201
    storm = asyncio.run(
        run_storm(seed, chosen.turns, match=chosen.match, replicas=chosen.replicas, workers=chosen.workers)
    )
    verdict = judge(storm)
    print(table(storm, verdict))  # noqa: T201
    sys.exit(0 if verdict.clean else 1)


main()
