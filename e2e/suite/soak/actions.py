"""What a soak does, one action after the other. Pure: a seed alone decides it.

The plan knows what it has asked for and never what came of it. So the sequence is the same in every run, whatever the
timing, and an action may find nothing to do.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from ..pods import AGENT, CONTROLLER, DRIVER

T = TypeVar("T")

NODES = ("node-1", "node-2")
SLOTS = 8  # places of a volume that are written, each on its own
MOST_CLAIMS = 14
MOST_ON_A_VOLUME = 5
MOST_SNAPSHOTS = 4

MAKE, REPLACE = "make volume", "replace volume"
CLAIM, DELETE, MOVE, FORCE = "claim", "delete", "move", "delete by force"
WRITE = "write"
SNAPSHOT, RESTORE, FORGET = "snapshot", "replace by what is in", "delete snapshot"
KILL, KUBELET = "kill -9", "kill -9 kubelet"
CRASH, BLACKOUT, START = "crash", "blackout", "start"
LOSE, UNTAINT = "declare lost", "untaint"

# How likely each is, where it is possible. Enough happens at once when each change is followed by the next at once.
WEIGHTS: Mapping[str, int] = {
    CLAIM: 90,
    DELETE: 24,
    MOVE: 40,
    FORCE: 8,
    WRITE: 40,
    REPLACE: 4,
    SNAPSHOT: 8,
    RESTORE: 5,
    FORGET: 4,
    KILL: 14,
    KUBELET: 3,
    CRASH: 4,
    BLACKOUT: 1,
    START: 60,
    # A node that is down is given up: claims on it are Lost, and the volumes go elsewhere (rule R4).
    LOSE: 10,
    UNTAINT: 30,
}

FILE_SYSTEM, BLOCK = "FileSystem", "BlockDevice"
# The loop driver mounts no file system for several nodes that write.
_MODES_OF_MOUNT = (
    "SingleNodeReader",
    "SingleNodeWriter",
    "SingleNodeSingleWriter",
    "SingleNodeMultiWriter",
    "MultiNodeReader",
)
_MODES = {FILE_SYSTEM: _MODES_OF_MOUNT, BLOCK: (*_MODES_OF_MOUNT, "MultiNodeSingleWriter", "MultiNodeMultiWriter")}
_READERS = ("SingleNodeReader", "MultiNodeReader")


@dataclass(frozen=True)
class Disk:
    """A kind of volume."""

    attachment_mode: str
    file_system: str = ""
    capacity: str = "64Mi"

    @property
    def modes(self) -> tuple[str, ...]:
        return _MODES[self.attachment_mode]


_DISKS = (
    Disk(FILE_SYSTEM, "ext4"),
    Disk(BLOCK),
    Disk(FILE_SYSTEM),
    Disk(FILE_SYSTEM, "xfs", "320Mi"),
    Disk(BLOCK),
)


@dataclass(frozen=True)
class Claim:
    """A claim that was asked for. An empty node leaves the choice to moor."""

    name: str
    volume: str
    node: str
    mode: str
    attachment_mode: str
    read_only: bool

    def __str__(self) -> str:
        where = f"on {self.node}" if self.node else "anywhere"
        return f"{self.name} of {self.volume} {where}, {self.mode}{', read-only' if self.read_only else ''}"


@dataclass(frozen=True)
class Action:
    """One thing to do, and how long to do nothing after it."""

    kind: str
    pause: float
    volume: str = ""
    disk: Disk | None = None
    snapshot: str = ""
    claim: Claim | None = None  # a new one
    old: tuple[str, ...] = ()  # claims that go
    node: str = ""
    role: str = ""
    slot: int = 0
    synced: bool = True

    def __str__(self) -> str:
        words = [self.kind]
        if self.role:
            words.append(self.role)
        if self.node:
            words.append(self.node)
        if self.old:
            words.append(", ".join(self.old))
        if self.claim is not None:
            words.append(f"to {self.claim}" if self.old else str(self.claim))
        if self.volume:
            words.append(f"{self.volume} slot {self.slot}" if self.kind == WRITE else self.volume)
        if self.snapshot:
            words.append(f"from {self.snapshot}" if self.kind == MAKE else self.snapshot)
        if not self.synced:
            words.append("(not synced)")
        return " ".join(words)


@dataclass
class Plan:
    """The sequence of one seed, and the picture of the cluster that it draws on."""

    seed: int
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    volumes: dict[str, Disk] = field(default_factory=dict)
    snapshots: dict[str, Disk] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    tainted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._numbers = count(1)
        self._due: deque[Action] = deque(self._make(disk) for disk in _DISKS)

    def __iter__(self) -> Iterator[Action]:
        """Without end."""
        while True:
            yield self._due.popleft() if self._due else self._next()

    def _next(self) -> Action:
        possible = {kind: weight for kind, weight in self.weights.items() if weight and self._can(kind)}
        kind = self._random.choices(list(possible), list(possible.values()))[0]
        return _STEPS[kind](self)

    def _can(self, kind: str) -> bool:
        if kind in (CLAIM, MOVE):
            return kind == CLAIM or bool(self.claims)
        if kind in (DELETE, FORCE):
            return bool(self.claims)
        if kind in (RESTORE, FORGET):
            return bool(self.snapshots)
        if kind == CRASH:
            return not self.down
        if kind in (BLACKOUT, KILL, KUBELET):
            return len(self.down) < len(NODES)
        if kind == START:
            return bool(self.down)
        if kind == LOSE:
            # The other one has to be there to take over.
            return len(self.down) == 1 and not self.tainted
        if kind == UNTAINT:
            return bool(self.tainted - self.down)
        return True

    # Volumes.

    def _make(self, disk: Disk, snapshot: str = "") -> Action:
        name = f"data-{next(self._numbers)}"
        self.volumes[name] = disk
        return Action(MAKE, 0, volume=name, disk=disk, snapshot=snapshot)

    def _replace(self) -> Action:
        name = self._pick(self.volumes)
        return Action(REPLACE, self._pause(), volume=name, old=self._replaced(name))

    def _replaced(self, name: str, snapshot: str = "") -> tuple[str, ...]:
        """Lets another one be made in place of a volume. The claims that go with it."""
        old = tuple(claim.name for claim in self.claims.values() if claim.volume == name)
        for claim in old:
            del self.claims[claim]
        self._due.append(self._make(self.volumes.pop(name), snapshot))
        return old

    def _write(self) -> Action:
        name = self._pick(self.volumes)
        synced = self._random.random() < 0.7
        return Action(WRITE, self._pause(), volume=name, slot=self._random.randrange(SLOTS), synced=synced)

    # Snapshots.

    def _snapshot(self) -> Action:
        if len(self.snapshots) >= MOST_SNAPSHOTS:
            return self._forget()
        volume, name = self._pick(self.volumes), f"snap-{next(self._numbers)}"
        self.snapshots[name] = self.volumes[volume]
        return Action(SNAPSHOT, self._pause(), volume=volume, snapshot=name)

    def _restore(self) -> Action:
        """The volume that goes may be the one that the snapshot is of: both happen at once."""
        snapshot = self._pick(self.snapshots)
        disk = self.snapshots[snapshot]
        name = self._pick([name for name, other in self.volumes.items() if other == disk])
        return Action(RESTORE, self._pause(), volume=name, snapshot=snapshot, old=self._replaced(name, snapshot))

    def _forget(self) -> Action:
        name = self._pick(self.snapshots)
        del self.snapshots[name]
        return Action(FORGET, self._pause(), snapshot=name)

    # Claims.

    def _claim(self) -> Action:
        crowded = {name for name in self.volumes if self._users(name) >= MOST_ON_A_VOLUME}
        free = [name for name in self.volumes if name not in crowded]
        if len(self.claims) >= MOST_CLAIMS or not free:
            return self._delete()
        volume = self._pick(free)
        disk = self.volumes[volume]
        # Mostly what others use it for, so that several hold it together.
        alike = [claim.mode for claim in self.claims.values() if claim.volume == volume]
        mode = self._pick(alike) if alike and self._random.random() < 0.75 else self._mode(disk)
        return Action(CLAIM, self._pause(), claim=self._new(volume, self._node(), mode))

    def _mode(self, disk: Disk) -> str:
        """Mostly one that writes: the readers need something to read."""
        weights = [1 if mode in _READERS else 3 for mode in disk.modes]
        return self._random.choices(disk.modes, weights)[0]

    def _users(self, volume: str) -> int:
        return sum(claim.volume == volume for claim in self.claims.values())

    def _new(self, volume: str, node: str, mode: str) -> Claim:
        read_only = mode in _READERS or self._random.random() < 0.2
        name = f"claim-{next(self._numbers)}"
        claim = Claim(name, volume, node, mode, self.volumes[volume].attachment_mode, read_only)
        self.claims[name] = claim
        return claim

    def _node(self) -> str:
        return "" if self._random.random() < 0.1 else self._pick(NODES)

    def _delete(self) -> Action:
        return Action(DELETE, self._pause(), old=(self._taken_out().name,))

    def _force(self) -> Action:
        return Action(FORCE, self._pause(), old=(self._taken_out().name,))

    def _move(self) -> Action:
        return self._moved(self._taken_out(), self._pause())

    def _moved(self, old: Claim, pause: float) -> Action:
        to = next(node for node in NODES if node != old.node)
        return Action(MOVE, pause, old=(old.name,), claim=self._new(old.volume, to, old.mode))

    def _taken_out(self) -> Claim:
        return self.claims.pop(self._pick(self.claims))

    # Crashes.

    def _kill(self) -> Action:
        role = self._pick((CONTROLLER, AGENT, AGENT, DRIVER, DRIVER))
        node = "" if role == CONTROLLER else self._pick([name for name in NODES if name not in self.down])
        return Action(KILL, self._pause(), role=role, node=node)

    def _kubelet(self) -> Action:
        return Action(KUBELET, self._pause(), node=self._pick([name for name in NODES if name not in self.down]))

    def _crash(self) -> Action:
        node = self._pick(NODES)
        self.down.add(node)
        return Action(CRASH, self._pause(), node=node)

    def _blackout(self) -> Action:
        self.down.update(NODES)
        return Action(BLACKOUT, self._pause())

    def _start(self) -> Action:
        node = self._pick(sorted(self.down))
        self.down.remove(node)
        return Action(START, self._pause(), node=node)

    def _lose(self) -> Action:
        node = next(iter(self.down))
        self.tainted.add(node)
        for claim in [claim for claim in self.claims.values() if claim.node == node]:
            del self.claims[claim.name]
            self._due.append(self._moved(claim, 0))
        return Action(LOSE, self._pause(), node=node)

    def _untaint(self) -> Action:
        node = self._pick(sorted(self.tainted - self.down))
        self.tainted.remove(node)
        return Action(UNTAINT, self._pause(), node=node)

    # Chance.

    def _pick(self, among: Iterable[T]) -> T:
        return self._random.choice(list(among))

    def _pause(self) -> float:
        """Often none: what was begun is still under way when the next thing happens."""
        kind = self._random.random()
        if kind < 0.45:
            return 0.0
        return round(self._random.uniform(0.1, 1.0) if kind < 0.9 else self._random.uniform(1.0, 5.0), 2)


_STEPS: dict[str, Callable[[Plan], Action]] = {
    CLAIM: Plan._claim,
    DELETE: Plan._delete,
    MOVE: Plan._move,
    FORCE: Plan._force,
    WRITE: Plan._write,
    REPLACE: Plan._replace,
    SNAPSHOT: Plan._snapshot,
    RESTORE: Plan._restore,
    FORGET: Plan._forget,
    KILL: Plan._kill,
    KUBELET: Plan._kubelet,
    CRASH: Plan._crash,
    BLACKOUT: Plan._blackout,
    START: Plan._start,
    LOSE: Plan._lose,
    UNTAINT: Plan._untaint,
}
