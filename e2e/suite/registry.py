"""The scenarios, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .world import World

Body = Callable[[World], None]


@dataclass(frozen=True)
class Scenario:
    """One promise, and how it is put to the test."""

    title: str
    body: Body
    namespace: str
    # Codes of refusals that it provokes.
    tolerated: frozenset[str]
    # Longest time that it may take, in seconds.
    limit: float
    # What it runs beside the cluster's own programs. They are built before, since that takes longer than any limit.
    programs: tuple[str, ...] = ()


SCENARIOS: list[Scenario] = []


def scenario(
    title: str,
    *,
    namespace: str | None = None,
    tolerated: tuple[str, ...] = (),
    limit: float = 120,
    programs: tuple[str, ...] = (),
) -> Callable[[Body], Body]:
    """Adds a function to the suite. Its name becomes its namespace, unless it has to use a given one."""

    def add(body: Body) -> Body:
        home = namespace or body.__name__.replace("_", "-")
        SCENARIOS.append(Scenario(title, body, home, frozenset(tolerated), limit, programs))
        return body

    return add
