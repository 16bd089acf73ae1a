"""One soak: the plan's actions for a time, then everything has to come to rest, be right, and go."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from e2e.cluster import ApiError, Problem

from .. import leaks, objects
from ..objects import Object
from ..world import Failed, World, expect
from .actions import Plan
from .hands import Hands
from .invariants import broken, unsettled

# More claims than this, with those that are still leaving, and the plan pauses until there are fewer.
MOST_OBJECTS = 40
# Longest time in which nothing moves. A step that has failed often is tried every five minutes.
STILLNESS = 600
# What stands for something of the driver's.
_STORAGE = ("Volume", "Snapshot")

Tell = Callable[[str], None]


def command(seed: int, seconds: float) -> str:
    """What reproduces a run."""
    return f"make soak SEED={seed} MINUTES={seconds / 60:g} VOLUMES=0"


def soak(world: World, seed: int, seconds: float, tell: Tell) -> None:
    """Fails with the first violation, and with the command that does the same again."""
    hands, before = Hands(world, seed), leaks.leftovers(world.cluster)
    try:
        try:
            _act(hands, seed, seconds, tell)
            tell("now all of it has to come to rest")
            hands.restore()
            _drain(hands, tell)
            until_nothing_moves(hands, lambda: sorted(leaks.leftovers(world.cluster) - before))
            expect(hands.compared, "nothing that was written was ever compared: too short a run?")
        except (Failed, Problem, ApiError) as problem:
            raise Failed(f"{problem}\nthe same actions again: {command(seed, seconds)}") from problem
    except BaseException:
        # What comes next finds a whole cluster.
        with suppress(Problem, ApiError):
            hands.restore()
        raise
    world.note(f"seed {seed}: {', '.join(f'{count}x {what}' for what, count in sorted(hands.counts.items()))}")
    world.note(f"{hands.ledger.writes} writes, {hands.compared} comparisons, {len(world.calls())} CSI calls")


def _act(hands: Hands, seed: int, seconds: float, tell: Tell) -> None:
    start = time.monotonic()
    for number, action in enumerate(Plan(seed), start=1):
        if time.monotonic() - start > seconds:
            return
        at = time.monotonic() - start
        said = hands.do(action)
        tell(f"{at:6.1f} s  {number:4} {action}{f': {said}' if said else ''}")
        # Things go on at their own pace; this is how they are looked at meanwhile.
        until = time.monotonic() + action.pause
        while True:
            crowd = _look(hands)
            left = until - time.monotonic()
            if left <= 0 and crowd <= MOST_OBJECTS:
                break
            expect(left > -STILLNESS, f"{crowd} claims are there, and none goes")
            time.sleep(min(max(left, 0.05), 0.3))


def _look(hands: Hands) -> int:
    """Everything that can be seen has to be right at any moment. Returns how many claims there are."""
    hands.renew_pods()
    hands.see_snapshots()
    claims = hands.claims()
    wrong = broken(claims)
    expect(not wrong, "\n".join(wrong))
    hands.expect_losses(claims)
    hands.compare_new(claims)
    return len(claims)


def _drain(hands: Hands, tell: Tell) -> None:
    """Lets those who hold volumes go, and then those who waited for them, until nobody is left."""
    world, turn = hands.world, 0
    while True:
        claims = _rest(hands)
        if not claims:
            break
        for claim in hands.usable(claims):
            hands.compare(claim)
        leaving = [claim for claim in claims if objects.state(claim) in ("Ready", "Lost")]
        turn += 1
        tell(f"round {turn}: {len(claims)} claims, {len(leaving)} of them have been served and go")
        for claim in leaving:
            world.delete("VolumeClaim", str(claim["metadata"]["name"]))
    for kind in _STORAGE:
        for item in world.every(kind):
            if "deletionTimestamp" not in item["metadata"]:
                world.delete(kind, str(item["metadata"]["name"]))
    until_nothing_moves(hands, lambda: [objects.told(item) for kind in _STORAGE for item in world.every(kind)])


def _rest(hands: Hands) -> list[Object]:
    """All claims, when nothing is to happen to any of them any more."""

    def busy() -> list[str]:
        _look(hands)
        return unsettled(hands.claims())

    until_nothing_moves(hands, busy)
    return hands.claims()


def until_nothing_moves(hands: Hands, busy: Callable[[], list[str]]) -> None:
    """Waits until nothing is busy. Fails when that which is busy stays the same for too long."""
    last: list[str] = []
    since = time.monotonic()
    while found := busy():
        if found != last:
            last, since = found, time.monotonic()
        expect(time.monotonic() - since < STILLNESS, "\n".join(["this stays:", *found]))
        hands.renew_pods()
        time.sleep(0.2)
