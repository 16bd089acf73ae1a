"""`python3 -m e2e.suite.soak`: what `make soak` runs."""

from __future__ import annotations

import argparse
import random
import sys

from .. import cli, runner
from ..registry import Scenario
from ..world import World
from .run import command, soak

# For coming to rest after the last action: the longest stillness, and what follows it.
_AFTERWARDS = 1800


def main() -> int:
    arguments = _parser().parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    seconds = arguments.minutes * 60
    print(f"seed {seed}, {arguments.minutes:g} min; the same again: {command(seed, seconds)}", flush=True)

    scenarios = [scenario(seed, seconds)]
    return cli.on_a_cluster(lambda cluster, tally: runner.run_all(cluster, scenarios, tally), keep=arguments.keep)


def scenario(seed: int, seconds: float) -> Scenario:
    """The soak as the only scenario of a run."""

    def body(world: World) -> None:
        soak(world, seed, seconds, lambda line: print(line, flush=True))

    return Scenario(f"soak with seed {seed}", body, "soak", frozenset(), 2 * seconds + _AFTERWARDS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m e2e.suite.soak", description="Random work and random crashes.")
    parser.add_argument("--seed", type=int, help="decides the sequence of actions; without one, any")
    parser.add_argument("--minutes", type=float, default=10, help="how long there is action (10)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    return parser


if __name__ == "__main__":
    sys.exit(main())
