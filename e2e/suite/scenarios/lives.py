"""The whole life of what Pods use, as Kubernetes' own objects ask for it, with real bytes: PersistentVolumeClaims, VolumeSnapshots,
VolumeAttributesClasses, and a PersistentVolume that is written by hand for storage that is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import volume_snapshots
from ..content import BLOCK, EXT4, MEBIBYTE, XFS, Kind, Run
from ..objects import PLUGIN, Object
from ..registry import scenario
from ..workloads import DEVICE, MOUNT, Workloads
from ..world import World, expect

_ATTRIBUTES = "/apis/storage.k8s.io/v1/volumeattributesclasses"
_VOLUMES = "/api/v1/persistentvolumes"


@scenario(
    "Pods' ext4 volumes are snapshotted, restored, copied, grown, modified, registered and deleted",
    namespace="lives-ext4",
    limit=300,
    programs=(volume_snapshots.PROGRAM,),
)
def ext4(world: World) -> None:
    _life(world, EXT4)


@scenario(
    "Pods' xfs volumes are snapshotted, restored, copied, grown, modified, registered and deleted",
    namespace="lives-xfs",
    limit=300,
    programs=(volume_snapshots.PROGRAM,),
)
def xfs(world: World) -> None:
    _life(world, XFS)


@scenario(
    "Pods' raw volumes are snapshotted, restored, copied, grown, modified, registered and deleted",
    namespace="lives-block",
    limit=300,
    programs=(volume_snapshots.PROGRAM,),
)
def block(world: World) -> None:
    _life(world, BLOCK)


def _life(world: World, kind: Kind) -> None:
    before = world.driver.kept()
    with volume_snapshots.running(world) as snapshots, _labels(world) as (first, second):
        life = _Life(world, kind)
        life.claim("data", volumeAttributesClassName=first)
        run = life.start("writer", "data", 0)
        expect(life.record("data")["label"] == first, "the volume was made without the parameters of its class")
        old = kind.write(run, life.target)
        kept = snapshots.take("kept", "data")
        new = kind.write(run, life.target)
        expect(old != new, "both times the same random bytes were written")

        # Beside the Pod that goes on: what it had written then, larger; and what it has written by now.
        life.claim("restored", size=kind.larger, dataSource=_of_snapshot("kept"))
        life.claim("copy", dataSource={"kind": "PersistentVolumeClaim", "name": "data"})
        life.expect_source("restored", snapshots.handle(kept))
        life.expect_source("copy", life.handle("data"))
        life.expect_bytes("restored", old, grown=True)
        life.expect_bytes("copy", new)

        life.modify("data", second)
        life.grow("data")
        expect(kind.digest(run, life.target) == new, "the Pod sees other bytes since its volume was modified and has grown")
        life.work.remove_pods("writer")
        # kubelet has the file system fill the volume when it mounts that next.
        run = life.start("moved", "data", 1)
        kind.expect_grown(run, life.target)
        expect(kind.digest(run, life.target) == new, "the Pod on the other node sees other bytes")
        life.work.await_claim("data", "to have grown", life.has_grown)
        life.work.remove_pods("moved")

        life.register("copy", new)

        # The snapshot outlives its volume, and what was made of it outlives the snapshot.
        life.work.remove_claims("data")
        life.claim("again", dataSource=_of_snapshot("kept"))
        found = world.driver.kept() - before
        expect(len(found) == 3, f"there are two claims and a VolumeSnapshot, and the driver keeps {sorted(found)}")
        snapshots.remove("kept")
        life.expect_bytes("again", old)
        life.expect_bytes("restored", old)
        life.work.remove_claims("again", "restored")
    left = world.driver.kept() - before
    expect(not left, f"the driver keeps {sorted(left)}, and nobody has asked for it any more")


@contextmanager
def _labels(world: World) -> Iterator[tuple[str, str]]:
    """Two VolumeAttributesClasses, each of which labels volumes with its own name."""
    names = (f"{world.namespace}-first", f"{world.namespace}-second")
    for name in names:
        item = {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": name}}
        world.cluster.api.post(_ATTRIBUTES, {**item, "driverName": PLUGIN, "parameters": {"label": name}})
    try:
        yield names
    finally:
        for name in names:
            world.cluster.api.delete(f"{_ATTRIBUTES}/{name}")


def _of_snapshot(name: str) -> Object:
    return {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name}


class _Life:
    """The claims of one kind, and the Pods that use them."""

    def __init__(self, world: World, kind: Kind) -> None:
        self.world = world
        self.kind = kind
        self.work = Workloads(world)
        self.target = MOUNT if kind.file_system else DEVICE
        parameters = {"csi.storage.k8s.io/fstype": kind.file_system} if kind.file_system else {}
        self.work.storage_class(allowVolumeExpansion=True, parameters=parameters)

    def claim(self, name: str, size: str = "", **fields: Any) -> None:
        self.work.claim(name, block=not self.kind.file_system, size=size or self.kind.capacity, **fields)

    def start(self, pod: str, claim: str, node: int) -> Run:
        """A Pod that runs, and how scripts are run in it."""
        self.work.running_pod(pod, claim, self.world.cluster.nodes[node])
        return lambda script: self.work.run(pod, script)

    def handle(self, claim: str) -> str:
        return str(self.work.await_bound(claim)["spec"]["csi"]["volumeHandle"])

    def record(self, claim: str) -> Object:
        """What the driver keeps of a claim's volume."""
        return self.world.driver.volumes()[self.handle(claim)]

    def expect_source(self, claim: str, source: str) -> None:
        found = self.record(claim).get("source")
        expect(found == source, f"the driver has made {claim} of {found} and not of {source}")

    def expect_bytes(self, claim: str, digest: str, *, grown: bool = False) -> None:
        pod = f"{claim}-reader"
        run = self.start(pod, claim, 0)
        expect(self.kind.digest(run, self.target) == digest, f"{claim} has other bytes than it should have")
        if grown:
            self.kind.expect_grown(run, self.target)
        self.work.remove_pods(pod)

    def modify(self, claim: str, wanted: str) -> None:
        """Another class: the driver has its parameters when the claim's status names it."""
        self.work.change_claim(claim, {"volumeAttributesClassName": wanted})
        named = "currentVolumeAttributesClassName"
        self.work.await_claim(claim, f"to be of class {wanted}", lambda item: item["status"].get(named) == wanted)
        label = self.record(claim)["label"]
        expect(label == wanted, f"the driver has the label {label!r}, and the claim is of class {wanted}")

    def grow(self, claim: str) -> None:
        """The driver's part: its volume is larger, and so is the PersistentVolume."""
        self.work.change_claim(claim, {"resources": {"requests": {"storage": self.kind.larger}}})

        def has() -> bool:
            said = self.work.await_bound(claim)["spec"]["capacity"]["storage"]
            return bool(said == self.kind.larger)

        self.world.cluster.wait_for(f"the PersistentVolume of {claim} to say {self.kind.larger}", has, 45)
        found = self.record(claim)["capacityBytes"]
        expect(found == self.kind.grown * MEBIBYTE, f"the volume of {claim} has {found} bytes")

    def has_grown(self, claim: Object) -> bool:
        return bool(claim["status"]["capacity"]["storage"] == self.kind.larger)

    def register(self, claim: str, digest: str) -> None:
        """The claim's PersistentVolume goes and leaves the storage. Another one is written for that, as people do it: with the
        source of the first one as it was. A Pod uses it, and it takes the storage along."""
        made = self.work.await_bound(claim)
        spec, name = made["spec"], str(made["metadata"]["name"])
        handle = str(spec["csi"]["volumeHandle"])
        self.work.set_reclaim_policy(name, "Retain")
        self.world.cluster.kubectl("delete", "pvc", claim, "-n", self.world.namespace, "--timeout=30s")
        self.world.cluster.kubectl("delete", "pv", name, "--timeout=30s")
        expect(handle in self.world.driver.volumes(), "the storage went with a PersistentVolume that was to leave it")

        written = f"{self.world.namespace}-written"
        kept = {key: spec[key] for key in ("csi", "accessModes", "capacity", "volumeMode")}
        reference = {"namespace": self.world.namespace, "name": "registered"}
        by_hand = {**kept, "claimRef": reference, "storageClassName": "by-hand", "persistentVolumeReclaimPolicy": "Delete"}
        self.world.cluster.api.post(_VOLUMES, {"metadata": {"name": written}, "spec": by_hand})
        self.claim("registered", volumeName=written, storageClassName="by-hand")
        self.expect_bytes("registered", digest)
        self.work.remove_claims("registered")
        expect(handle not in self.world.driver.volumes(), "the storage is there still, and was to go with its PersistentVolume")
