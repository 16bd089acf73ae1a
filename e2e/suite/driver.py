"""The loop driver from outside: its call record, and the faults that it is asked to show."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster
from e2e.cluster.node_config import SHARED_SOURCE

from .calls import Call, parse
from .objects import PLUGIN

ANY = "any"
BEFORE, AFTER = "before", "after"


# What the driver keeps of a volume or a snapshot.
Record = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """A fault that was asked for: one file of the driver's per place where it may happen."""

    rpc: str
    when: str
    paths: tuple[Path, ...]

    @property
    def met(self) -> bool:
        """Whether a call has come to that moment. Only for one that was asked for once."""
        return any(_times(path) == 0 for path in self.paths)

    def release(self) -> None:
        """Lets a call that hangs there go on."""
        for path in self.paths:
            path.unlink(missing_ok=True)

    def withdraw_elsewhere(self) -> None:
        """Once it was met at one place, it must not happen at another."""
        for path in self.paths:
            if _times(path) != 0:
                path.unlink(missing_ok=True)

    def __str__(self) -> str:
        return f"at {self.when!r} of {self.rpc}"


def _times(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_text())["times"])
    except FileNotFoundError:
        return None


def _records(folder: Path, name: str) -> dict[str, Record]:
    found = {}
    for path in sorted(folder.glob(f"*/{name}")):
        # It may be deleted meanwhile.
        with contextlib.suppress(FileNotFoundError):
            found[path.parent.name] = json.loads(path.read_text())
    return found


class LoopDriver:
    """The drivers of all nodes: they share one folder."""

    name = PLUGIN

    def __init__(self, cluster: Cluster, folder: Path = SHARED_SOURCE) -> None:
        self._cluster = cluster
        self._folder = folder
        self._record = folder / "calls.jsonl"
        self._faults = folder / "faults"

    def calls(self, after: int = 0) -> list[Call]:
        """The calls that began after a number that `last` gave."""
        try:
            with self._record.open() as lines:
                return [call for call in parse(lines) if call.seq > after]
        except FileNotFoundError:
            return []

    def last(self) -> int:
        """The number of the last line so far."""
        try:
            return int((self._folder / "calls.seq").read_text())
        except FileNotFoundError:
            return 0

    # Storage. It exists if and only if its record does.

    def volumes(self) -> dict[str, Record]:
        """The records of all volumes, by their ids."""
        return _records(self._folder / "volumes", "volume.json")

    def groups(self) -> dict[str, Record]:
        """The records of all groups of snapshots, by their ids."""
        return _records(self._folder / "groups", "group.json")

    def snapshots(self) -> dict[str, Record]:
        """The records of all snapshots, by their ids. A member of a group is one for as long as its group exists."""
        found = _records(self._folder / "snapshots", "snapshot.json")
        for group in self.groups():
            found |= _records(self._folder / "groups" / group, "snapshot.json")
        return found

    def kept(self) -> set[str]:
        """The ids of all volumes, snapshots and groups of snapshots."""
        return {*self.volumes(), *self.snapshots(), *self.groups()}

    # Faults. One file serves one RPC on one node, or on any; a call looks at both.

    def hang(self, rpc: str, when: str = BEFORE, seconds: float = 90) -> Fault:
        """The next call of this RPC stops there until the fault is released, the driver is killed or the time is up.

        A second one for the same RPC may be asked for when the first has been met.
        """
        return self._ask(rpc, {"when": when, "do": "hang", "times": 1, "secondsMax": seconds})

    def fail(self, rpc: str, code: str, when: str = BEFORE, times: int | None = None) -> Fault:
        """The next calls of this RPC fail there: so many, or all until the fault is released."""
        counted = {} if times is None else {"times": times}
        return self._ask(rpc, {"when": when, "do": "fail", "code": code, **counted})

    def await_met(self, fault: Fault) -> None:
        """Waits until a call hangs there."""
        self._cluster.wait_for(f"a call to stop {fault}", lambda: fault.met, 45, 0.02)
        fault.withdraw_elsewhere()

    def clear_faults(self) -> None:
        for path in self._faults.glob("*/*"):
            path.unlink(missing_ok=True)

    def _ask(self, rpc: str, content: dict[str, object]) -> Fault:
        """A file for any node, or where there is one already, one for each node: a call looks at both."""
        every = tuple(self._faults / node.name / rpc for node in self._cluster.nodes)
        paths = every if (self._faults / ANY / rpc).exists() else (self._faults / ANY / rpc,)
        for path in paths:
            if path.exists():
                raise ValueError(f"there are two faults for {rpc} already")
            path.parent.mkdir(parents=True, exist_ok=True)
            # Whole at once: the driver may look at any moment.
            temporary = self._faults / f"{path.parent.name}.{rpc}"
            temporary.write_text(json.dumps(content))
            temporary.rename(path)
        return Fault(rpc, str(content["when"]), paths)
