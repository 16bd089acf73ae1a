"""A short soak of one seed. `make soak` runs longer ones of any."""

from __future__ import annotations

from ..registry import scenario
from ..soak.run import soak
from ..world import Failed, World

# Has every kind of kill, and a crash of each node.
SEED = 102
SECONDS = 75


@scenario("a short soak: random work and crashes leave no byte wrong, and nothing behind", limit=1500)
def short_soak(world: World) -> None:
    lines: list[str] = []
    try:
        soak(world, SEED, SECONDS, lines.append)
    except Failed as failed:
        raise Failed("\n".join([*lines, str(failed)])) from failed
