"""Does what the plan says, on the real cluster."""

from __future__ import annotations

import time
from collections import Counter

from e2e.cluster import ApiError, Node

from .. import leaks, objects
from ..objects import Object
from ..pods import CONTROLLER, ROLES
from ..trace import LOST, REBOOT, Kill
from ..world import World, expect
from . import mounts
from .actions import (
    BLACKOUT, CLAIM, CRASH, DELETE, FORCE, FORGET, KILL, KUBELET, LOSE, MAKE, MOVE, REPLACE, RESTORE, SNAPSHOT, START,
    UNTAINT, WRITE, SLOTS, Action, Claim, Disk,
)  # fmt: skip
from .ledger import Ledger

TAINT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
# How long one process or one node may take to come back, on a machine that does other things as well.
PATIENCE = 300


class Hands:
    """Performs actions, and remembers what has to be true since."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.ledger = Ledger(seed)
        self.counts: Counter[str] = Counter()  # of actions
        self.compared = 0  # slots, each time that they were
        self._seen: set[tuple[str, str]] = set()  # mounts whose bytes were compared: UID of the claim, boot
        self._going: set[str] = set()  # Pods that are being replaced
        self._given_up: set[str] = set()  # UIDs of claims
        self._tainted: set[str] = set()
        self._does = {
            MAKE: self._make,
            CLAIM: self._claim,
            DELETE: self._delete,
            MOVE: self._move,
            FORCE: self._force,
            REPLACE: self._replace,
            SNAPSHOT: self._snapshot,
            RESTORE: self._replace,
            FORGET: self._forget,
            WRITE: self._write,
            KILL: self._kill,
            KUBELET: self._kubelet,
            CRASH: self._crash,
            BLACKOUT: self._blackout,
            START: self._start,
            LOSE: self._lose,
            UNTAINT: self._untaint,
        }

    def do(self, action: Action) -> str:
        """Returns what is to be said of it beside what it is."""
        self.counts[action.kind] += 1
        return self._does[action.kind](action) or ""

    # Objects.

    def _make(self, action: Action) -> str:
        assert action.disk is not None
        spec = _spec(action.disk)
        found = action.snapshot and self.world.find("Snapshot", action.snapshot)
        if not found or "deletionTimestamp" in found["metadata"] or objects.state(found) != "Ready":
            # One whose volume has gone before will never be Ready, and nor would what is made of it.
            self.world.volume(action.volume, **spec)
            return "empty: the snapshot is not Ready" if action.snapshot else ""
        self.see_snapshots()
        self.ledger.restored(action.volume, action.snapshot)
        self.world.volume(action.volume, source={"snapshotName": action.snapshot}, **spec)
        return ""

    def _snapshot(self, action: Action) -> None:
        self.ledger.snapshot_asked(action.snapshot, action.volume)
        self.world.snapshot(action.snapshot, volumeName=action.volume)

    def _forget(self, action: Action) -> str:
        for volume in self.world.every("Volume"):
            named = volume["spec"].get("source", {}).get("snapshotName") == action.snapshot
            if named and "assignment" not in volume["spec"]:
                # It would wait for a snapshot of that name for ever. What was begun is ended first.
                return f"left: {volume['metadata']['name']} is to be made of it"
        self.world.delete("Snapshot", action.snapshot)
        return ""

    def see_snapshots(self) -> None:
        """What is written from now on is in none that is ready, or gone."""
        if self.ledger.awaited:
            left = {str(item["metadata"]["name"]): objects.state(item) for item in self.world.every("Snapshot")}
            for name in [name for name in self.ledger.awaited if left.get(name, "Ready") == "Ready"]:
                self.ledger.snapshot_made(name)

    def _claim(self, action: Action) -> None:
        assert action.claim is not None
        self._create(action.claim)

    def _create(self, claim: Claim) -> None:
        node = self.world.cluster.node(claim.node) if claim.node else None
        self.world.claim(
            claim.name,
            node,
            volumeName=claim.volume,
            accessMode=claim.mode,
            attachmentMode=claim.attachment_mode,
            readOnly=claim.read_only,
        )

    def _delete(self, action: Action) -> None:
        for name in action.old:
            self.world.delete("VolumeClaim", name)

    def _move(self, action: Action) -> None:
        self._delete(action)
        self._claim(action)

    def _force(self, action: Action) -> None:
        self._delete(action)
        for name in action.old:
            claim = self.world.find("VolumeClaim", name)
            if claim is None:
                continue
            claim["spec"]["forceDetach"] = True
            self.expect_losses([claim])
            try:
                path = objects.path("VolumeClaim", self.world.namespace, name)
                self.world.cluster.api.patch(path, {"spec": {"forceDetach": True}})
            except ApiError as error:
                # It has gone without.
                if error.status != 404:
                    raise

    def expect_losses(self, claims: list[Object]) -> None:
        """A claim deleted by force on a node that is down may be taken from it as it is (rule R4)."""
        down = {node.name for node in self.world.cluster.nodes if not node.running}
        for claim in claims:
            granted = claim["spec"].get("assignment", {})
            uid = str(claim["metadata"]["uid"])
            forced = "deletionTimestamp" in claim["metadata"] and claim["spec"].get("forceDetach")
            if not forced or granted.get("nodeName") not in down or uid in self._given_up:
                continue
            attachment = self.world.find("Attachment", granted["attachment"])
            if attachment is not None:
                self._given_up.add(uid)
                volume = str(attachment["spec"]["volumeHandle"])
                self.world.kills.append(Kill(_now(), LOST, str(granted["nodeName"]), volume))

    def _replace(self, action: Action) -> None:
        self._delete(action)
        self.world.delete("Volume", action.volume)

    # Bytes.

    def _write(self, action: Action) -> str:
        usable = [item for item in self.usable(self.claims()) if item["spec"]["volumeName"] == action.volume]
        writer = next((item for item in usable if not item["spec"].get("readOnly")), None)
        if writer is None:
            return "nobody can"
        self.write(writer, action.slot, synced=action.synced)
        return f"through {writer['metadata']['name']}"

    def write(self, claim: Object, slot: int, *, synced: bool = True) -> None:
        spec = claim["spec"]
        mode, node = spec["attachmentMode"], self._node_of(claim)
        written, text = self.ledger.next(spec["volumeName"], slot, node.name, synced=synced)
        mounts.write(node, claim["status"]["targetPath"], mode, slot, text, synced=synced)
        self.ledger.made(written)

    def compare(self, claim: Object) -> None:
        """What a mount shows against what was written; a reader's mount is tried, too."""
        spec, path, node = claim["spec"], str(claim["status"]["targetPath"]), self._node_of(claim)
        wrong = self.ledger.wrong(spec["volumeName"], mounts.read(node, path, spec["attachmentMode"]))
        name = claim["metadata"]["name"]
        expect(not wrong, "\n".join([f"{name} on {node.name} shows other bytes than were written:", *wrong]))
        if spec.get("readOnly"):
            refused = mounts.refuses_writes(node, path, spec["attachmentMode"])
            expect(refused, f"{name} on {node.name} is read-only and was written to")
        self.compared += self.ledger.certain(spec["volumeName"])

    def compare_new(self, claims: list[Object]) -> None:
        """Looks through every mount that was not there before, and writes through it."""
        for claim in self.usable(claims):
            mount = (str(claim["metadata"]["uid"]), str(claim["status"]["bootID"]))
            if mount in self._seen:
                continue
            self._seen.add(mount)
            self.compare(claim)
            if not claim["spec"].get("readOnly"):
                self.write(claim, len(self._seen) % SLOTS)

    def claims(self) -> list[Object]:
        return self.world.every("VolumeClaim")

    def usable(self, claims: list[Object]) -> list[Object]:
        """Claims that may be used now: Ready, in this boot of their node, and nobody has asked for their end."""
        found = []
        for claim in claims:
            if "deletionTimestamp" in claim["metadata"] or objects.state(claim) != "Ready":
                continue
            node = self._node_of(claim)
            if node.running and claim["status"].get("bootID") == node.boot_id:
                found.append(claim)
        return found

    def _node_of(self, claim: Object) -> Node:
        return self.world.cluster.node(str(claim["spec"]["assignment"]["nodeName"]))

    # Processes.

    def _kill(self, action: Action) -> str:
        pods = self.world.pods
        if action.role == CONTROLLER:
            leader = pods.leader_name()
            victims = [found for found in pods.running(CONTROLLER) if found.pod == leader]
        else:
            victims = pods.running(action.role, action.node)
        for victim in victims:
            self.world.kill(victim)
        return ", ".join(f"pid {victim.process.pid} on {victim.node}" for victim in victims) or "does not run"

    def _kubelet(self, action: Action) -> None:
        self.world.cluster.node(action.node).restart_kubelet()

    def renew_pods(self) -> None:
        """Replaces Pods that kubelet lets wait, for it lets them wait longer each time."""
        items = {str(item["metadata"]["name"]): item for item in self.world.pods.objects()}
        self._going &= items.keys()
        up = {node.name for node in self.world.cluster.nodes if node.running}
        for name, item in items.items():
            node = str(item["spec"].get("nodeName", ""))
            if node not in up or (name not in self._going and not _is_waiting(item)):
                continue
            role = str(item["metadata"]["labels"].get("app.kubernetes.io/component"))
            runs = any(found.pod == name for found in self.world.pods.running(role, node))
            if name in self._going:
                if runs:
                    # Kubelet had started it just before it was told, and ends it now.
                    self._ended(role, node)
            elif not runs:
                self._going.add(name)
                self.world.pods.ask_to_go(name)

    def _ended(self, role: str, node: str) -> None:
        self.world.kills.append(Kill(_now(), role, node))

    # Machines.

    def _crash(self, action: Action) -> None:
        self.crash(self.world.cluster.node(action.node))

    def crash(self, node: Node) -> None:
        node.crash()
        self.ledger.crashed(node.name)
        # With the taint it is lost at once when it is silent.
        for role in (*ROLES, REBOOT, *([LOST] if node.name in self._tainted else [])):
            self._ended(role, node.name)

    def _blackout(self, _action: Action) -> None:
        for node in self.world.cluster.nodes:
            if node.running:
                self.crash(node)

    def _start(self, action: Action) -> None:
        self.world.cluster.node(action.node).start()

    def _lose(self, action: Action) -> None:
        """Returns when moor has taken everything from the node; its Lease has to expire first."""
        node = action.node
        self._tainted.add(node)
        self._ended(LOST, node)
        self._taint(node, add=True)

        def taken() -> bool:
            self.renew_pods()
            held = [item["spec"] for item in self.world.every("Attachment") if item["spec"]["nodeName"] == node]
            return all(spec.get("lost") for spec in held)

        self.world.cluster.wait_for(f"everything on {node} to be declared lost", taken, PATIENCE, 0.5)

    def _untaint(self, action: Action) -> None:
        """Only when the node has cleaned up what it had been holding."""
        node = self.world.cluster.node(action.node)
        self.world.cluster.wait_for(f"{node.name} to clean up", lambda: not self._stale(node), PATIENCE, 0.5)
        self._taint(node.name, add=False)
        self._tainted.discard(node.name)

    def _stale(self, node: Node) -> set[str]:
        """Records whose Attachment is gone, or was taken from the node."""
        self.renew_pods()
        items = [item for item in self.world.every("Attachment") if not item["spec"].get("lost")]
        own = {f"record {item['metadata']['uid']}.json" for item in items}
        return leaks.records(node.directory / "moor") - own

    def _taint(self, name: str, *, add: bool) -> None:
        path = f"/api/v1/nodes/{name}"
        found = self.world.cluster.api.get(path)["spec"].get("taints", [])
        others = [taint for taint in found if taint["key"] != TAINT["key"]]
        taints = [*others, TAINT] if add else others
        self.world.cluster.api.patch(path, {"spec": {"taints": taints}})

    def restore(self) -> None:
        """Every node, and every Pod of moor's, is there again."""
        cluster = self.world.cluster
        for node in cluster.nodes:
            node.start()
        cluster.wait_nodes_ready(PATIENCE)

        def healthy() -> bool:
            self.renew_pods()
            return not self.world.pods.ailing()

        cluster.wait_for("moor's Pods to be Ready", healthy, PATIENCE, 0.5)
        for name in sorted(self._tainted):
            self._untaint(Action(UNTAINT, 0, node=name))


def _spec(disk: Disk) -> Object:
    block = disk.attachment_mode == "BlockDevice"
    uses = [objects.use(mode, block=block) for mode in disk.modes]
    options = {"fsType": disk.file_system} if disk.file_system else None
    return {"capacity": disk.capacity, "capabilities": uses, "mountOptions": options}


def _is_waiting(pod: Object) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    waiting = any(status["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff" for status in statuses)
    return waiting and "deletionTimestamp" not in pod["metadata"]


def _now() -> int:
    return int(time.time() * 1000)
