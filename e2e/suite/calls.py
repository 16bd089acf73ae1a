"""The loop driver's record of the CSI calls that it was sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

WHO = "GetPluginInfo"
CREATE, DELETE = "CreateVolume", "DeleteVolume"
TAKE, DROP = "CreateSnapshot", "DeleteSnapshot"
TAKE_GROUP, DROP_GROUP = "CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot"
ATTACH, DETACH = "ControllerPublishVolume", "ControllerUnpublishVolume"
STAGE, UNSTAGE = "NodeStageVolume", "NodeUnstageVolume"
PUBLISH, UNPUBLISH = "NodePublishVolume", "NodeUnpublishVolume"

# Calls that change something. Adopting what is there makes none of them.
MUTATING = frozenset(
    {CREATE, DELETE, TAKE, DROP, TAKE_GROUP, DROP_GROUP, ATTACH, DETACH, STAGE, UNSTAGE, PUBLISH, UNPUBLISH}
)
_NODE_SIDE = frozenset({STAGE, UNSTAGE, PUBLISH, UNPUBLISH, "NodeGetVolumeStats", "NodeExpandVolume"})


@dataclass
class Call:
    """One call: the line that began it, and the line that ended it if there is one."""

    seq: int
    rpc: str
    server: str  # node of the driver process
    at: int = 0  # milliseconds since 1970
    volume: str = ""
    name: str = ""  # of CreateVolume, which knows no id yet
    node: str = ""  # argument of the controller's calls
    staging: str = ""
    target: str = ""
    readonly: bool | None = None
    end_seq: int | None = None
    end_at: int | None = None
    code: str = ""

    @property
    def ok(self) -> bool:
        return self.code == "Ok"

    @property
    def on_node(self) -> bool:
        """A call of the Node service."""
        return self.rpc in _NODE_SIDE

    @property
    def place(self) -> str:
        """The node that the call is about."""
        return self.server if self.on_node else self.node

    @property
    def arguments(self) -> tuple[object, ...]:
        """What has to be the same when the call is repeated."""
        return (self.rpc, self.volume, self.name, self.place, self.staging, self.target, self.readonly)

    def __str__(self) -> str:
        words = [f"#{self.seq}", self.rpc, self.volume or self.name]
        if self.place:
            words.append(f"on {self.place}")
        if not self.on_node:
            words.append(f"by {self.server}")
        if self.target:
            words.append(f"at …{self.target[-50:]}")
        return " ".join(words)

    def told(self) -> str:
        """With its outcome, for a person who looks for what went wrong."""
        if self.end_seq is None:
            return f"{self} … has not ended"
        took = (self.end_at or 0) - self.at
        return f"{self} -> {self.code} (#{self.end_seq}, {took} ms)"


def parse(lines: Iterable[str]) -> list[Call]:
    """The calls in the order in which they began. A line that is still being written is left out."""
    calls: dict[int, Call] = {}
    for line in lines:
        if not line.endswith("\n"):
            continue
        entry: dict[str, Any] = json.loads(line)
        number = int(entry["call"])
        if entry["phase"] == "start":
            calls[number] = Call(
                seq=number,
                rpc=str(entry["rpc"]),
                server=str(entry["server"]),
                at=int(entry["at"]),
                volume=str(entry.get("volume", "")),
                name=str(entry.get("name", "")),
                node=str(entry.get("node", "")),
                staging=str(entry.get("stagingPath", "")),
                target=str(entry.get("targetPath", "")),
                readonly=entry.get("readonly"),
            )
        elif number in calls:
            ended = calls[number]
            ended.end_seq, ended.end_at, ended.code = int(entry["seq"]), int(entry["at"]), str(entry["code"])
    return [calls[number] for number in sorted(calls)]


def mutating(calls: Iterable[Call]) -> list[Call]:
    return [call for call in calls if call.rpc in MUTATING]
