"""What becomes of the volumes of a soak, one after the other, and what goes wrong meanwhile. Pure: a seed alone decides it.

As with the actions of the other soak the plan knows what it has asked for and never what came of it: a life may be that of a
copy whose source has gone, and then nothing comes of it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from .. import calls
from ..content import BLOCK, EXT4, XFS, Kind
from ..driver import AFTER, BEFORE
from ..pods import AGENT, CONTROLLER, DRIVER
from .actions import NODES

T = TypeVar("T")

# Snapshots that are there at a time. Each is as large as its volume was.
MOST_SNAPSHOTS = 30
# Copies are made of so many volumes, or snapshots, that were begun last: of earlier ones most have gone.
_RECENT = 4
# By how much volumes grow.
_MEBIBYTES = 32
# A copy of a copy of a volume that has grown each time is not copied again.
_LARGEST = 512

EXPAND, MODIFY, SNAPSHOT, CLAIM, RELEASE, DELETE = "expand", "modify", "snapshot", "claim", "release", "delete"
STEPS = (EXPAND, MODIFY, SNAPSHOT, CLAIM, RELEASE, DELETE)

# A volume is mostly small: it is made, copied and taken away many times.
_KINDS = {EXT4: 5, BLOCK: 4, XFS: 1}

# A driver that has done nothing yet may answer with any of these.
BEFORE_CODES = ("Internal", "Unknown", "ResourceExhausted", "Aborted", "DeadlineExceeded", "Unavailable")
# One that has done all may answer with these, which leave the outcome open. By the others its caller knows that nothing is there
# or under way: a driver that answers so, and has made something, is wrong, and nobody cleans up behind it.
AFTER_CODES = ("Aborted", "DeadlineExceeded", "Unavailable")
EXPANDS, MODIFIES = "ControllerExpandVolume", "ControllerModifyVolume"
# The calls of a volume's own, which this is about, most of the time.
_FAULTY = {
    calls.CREATE: 4,
    calls.DELETE: 4,
    calls.TAKE: 3,
    calls.DROP: 3,
    EXPANDS: 3,
    MODIFIES: 3,
    calls.ATTACH: 1,
    calls.DETACH: 1,
    calls.STAGE: 1,
    calls.PUBLISH: 1,
    calls.UNPUBLISH: 1,
    calls.UNSTAGE: 1,
}


@dataclass(frozen=True)
class Step:
    """What is asked for next. A hasty one does not wait for what was asked for before."""

    kind: str
    hasty: bool = False
    node: str = ""
    mebibytes: int = 0
    label: str = ""
    snapshot: str = ""


@dataclass(frozen=True)
class Life:
    """A volume, what it is made of, and what is done with it, until it is deleted."""

    name: str
    kind: Kind
    mebibytes: int
    of_volume: str = ""
    of_snapshot: str = ""
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        made = f" of {self.of_volume or self.of_snapshot}" if self.of_volume or self.of_snapshot else ""
        steps = ", ".join(f"{'at once ' if step.hasty else ''}{step.kind}" for step in self.steps)
        return f"{self.name}{made} ({self.kind.name}, {self.mebibytes}Mi): {steps}"


@dataclass(frozen=True)
class Forget:
    """A snapshot that is deleted."""

    snapshot: str


@dataclass(frozen=True)
class Trouble:
    """The next calls of an RPC fail or hang, at a moment of theirs."""

    rpc: str
    when: str
    code: str = ""  # without one it hangs
    times: int = 1
    seconds: float = 0

    def __str__(self) -> str:
        what = f"answers {self.code} {self.times}x" if self.code else f"hangs for {self.seconds} s"
        return f"{self.rpc} {what}, {self.when} it does what it does"


@dataclass(frozen=True)
class Death:
    """kill -9 of a process; without a node, of whichever controller leads."""

    role: str
    node: str = ""


Event = Life | Forget | Trouble | Death


class Plan:
    """The sequence of one seed, in which there are so many lives."""

    def __init__(self, seed: int, volumes: int) -> None:
        self._random = random.Random(seed)
        self._count = volumes
        self._snapshots: deque[tuple[str, Kind, int]] = deque()
        self._volumes: deque[tuple[str, Kind, int]] = deque(maxlen=_RECENT)

    def __iter__(self) -> Iterator[Event]:
        for number in range(1, self._count + 1):
            if self._chance(0.6):
                yield self._trouble()
            if self._chance(0.06):
                yield self._death()
            yield self._life(number)
            while len(self._snapshots) > MOST_SNAPSHOTS:
                yield Forget(self._snapshots.popleft()[0])

    def _life(self, number: int) -> Life:
        name = f"data-{number}"
        kind = self._random.choices(list(_KINDS), list(_KINDS.values()))[0]
        mebibytes, of_volume, of_snapshot = kind.mebibytes, "", ""
        chosen = self._random.random()
        if chosen < 0.25 and self._volumes:
            of_volume, kind, mebibytes = self._pick(self._volumes)
        elif chosen < 0.5 and self._snapshots:
            of_snapshot, kind, mebibytes = self._pick(list(self._snapshots)[-2 * _RECENT :])
        steps, grown = self._steps(name, kind, mebibytes)
        if grown < _LARGEST:
            self._volumes.append((name, kind, grown))
        return Life(name, kind, mebibytes, of_volume, of_snapshot, steps)

    def _steps(self, name: str, kind: Kind, mebibytes: int) -> tuple[tuple[Step, ...], int]:
        """What is done with a volume, and how large it is in the end."""
        if self._chance(0.08):
            # Somebody has thought better of it at once.
            return (Step(DELETE, hasty=True),), mebibytes
        more = self._random.randint(0, 3)
        wanted = [EXPAND, SNAPSHOT, *self._random.choices((MODIFY, EXPAND, SNAPSHOT, CLAIM), (3, 1, 1, 4), k=more)]
        self._random.shuffle(wanted)
        steps: list[Step] = []
        for number, what in enumerate(wanted):
            hasty = self._chance(0.3)
            if what == CLAIM:
                is_last = sum(step.kind in (CLAIM, RELEASE) for step in steps) % 2
                steps.append(Step(RELEASE if is_last else CLAIM, hasty, node=self._pick(NODES)))
            elif what == EXPAND:
                mebibytes += _MEBIBYTES
                steps.append(Step(what, hasty, mebibytes=mebibytes))
            elif what == MODIFY:
                steps.append(Step(what, hasty, label=f"label-{number}"))
            else:
                snapshot = f"{name}-{number}"
                steps.append(Step(what, hasty, snapshot=snapshot))
                self._snapshots.append((snapshot, kind, mebibytes))
        return (*steps, Step(DELETE, self._chance(0.2))), mebibytes

    def _trouble(self) -> Trouble:
        rpc = self._random.choices(list(_FAULTY), list(_FAULTY.values()))[0]
        when = self._pick((BEFORE, AFTER))
        if self._chance(0.25):
            return Trouble(rpc, when, seconds=round(self._random.uniform(0.2, 3), 1))
        code = self._pick(AFTER_CODES if when == AFTER else BEFORE_CODES)
        return Trouble(rpc, when, code, self._random.randint(1, 3))

    def _death(self) -> Death:
        role = self._pick((CONTROLLER, AGENT, AGENT, DRIVER))
        return Death(role, "" if role == CONTROLLER else self._pick(NODES))

    def _pick(self, among: Iterable[T]) -> T:
        return self._random.choice(list(among))

    def _chance(self, of: float) -> bool:
        return self._random.random() < of
