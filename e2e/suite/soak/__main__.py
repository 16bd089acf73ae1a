"""`python3 -m e2e.suite.soak`: what `make soak` runs."""

from __future__ import annotations

import argparse
import random
import sys

from .. import cli, runner
from ..registry import Scenario
from ..world import World
from . import volumes
from .run import command, soak

# For coming to rest after the last action: the longest stillness, and what follows it.
_AFTERWARDS = 1800
# Longest time for each volume, of which many live at a time.
_EACH = 4


def main() -> int:
    arguments = _parser().parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    seconds = arguments.minutes * 60
    scenarios: list[Scenario] = []
    commands: list[str] = []
    if seconds:
        scenarios.append(scenario(seed, seconds))
        commands.append(command(seed, seconds))
    if arguments.volumes:
        scenarios.append(scenario_of_volumes(seed, arguments.volumes))
        commands.append(volumes.command(seed, arguments.volumes))
    print(f"seed {seed}; the same again: {'; '.join(commands)}", flush=True)
    return cli.on_a_cluster(lambda cluster, tally: runner.run_all(cluster, scenarios, tally), keep=arguments.keep)


def scenario(seed: int, seconds: float) -> Scenario:
    """The soak of claims as a scenario of a run."""

    def body(world: World) -> None:
        soak(world, seed, seconds, _tell)

    return Scenario(f"soak with seed {seed}", body, "soak", frozenset(), 2 * seconds + _AFTERWARDS)


def scenario_of_volumes(seed: int, count: int) -> Scenario:
    """The soak of so many volumes, likewise."""

    def body(world: World) -> None:
        volumes.soak(world, seed, count, _tell)

    title = f"soak of {count} volumes with seed {seed}"
    return Scenario(title, body, "soak-volumes", volumes.TOLERATED, count * _EACH + _AFTERWARDS)


def _tell(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m e2e.suite.soak", description="Random work and random crashes.")
    parser.add_argument("--seed", type=int, help="decides the sequence of actions; without one, any")
    parser.add_argument("--minutes", type=float, default=10, help="how long there is action about claims (10); 0: none")
    parser.add_argument("--volumes", type=int, default=0, help="how many volumes live and end after that (0)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up afterwards")
    return parser


if __name__ == "__main__":
    sys.exit(main())
