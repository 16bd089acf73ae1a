"""Short soaks of one seed each. `make soak` runs longer ones of any."""

from __future__ import annotations

from collections.abc import Callable

from ..registry import scenario
from ..soak import run, volumes
from ..world import Failed, World

# Has every kind of kill, and a crash of each node.
SEED = 102
SECONDS = 75


@scenario("a short soak: random work and crashes leave no byte wrong, and nothing behind", limit=1500)
def short_soak(world: World) -> None:
    _told(lambda tell: run.soak(world, SEED, SECONDS, tell))


@scenario(
    "a short soak of volumes: random faults and kills leave no volume, no snapshot and no object behind",
    tolerated=tuple(volumes.TOLERATED),
    limit=900,
)
def short_soak_of_volumes(world: World) -> None:
    _told(lambda tell: volumes.soak(world, volumes.SHORT_SEED, volumes.SHORT, tell))


def _told(soak: Callable[[run.Tell], None]) -> None:
    """What was done is said when it fails."""
    lines: list[str] = []
    try:
        soak(lines.append)
    except Failed as failed:
        raise Failed("\n".join([*lines, str(failed)])) from failed
