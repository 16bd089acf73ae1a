"""Snapshots, and Volumes that are made of Snapshots and of other Volumes, with real bytes on real devices."""

from __future__ import annotations

from dataclasses import dataclass

from e2e.cluster import Node

from .. import objects
from ..registry import scenario
from ..world import World, expect

SIZE = 4 * 1024 * 1024


@dataclass(frozen=True)
class Kind:
    """How the volumes of a scenario are used."""

    capacity: str
    larger: str
    file_system: str = ""  # none is a raw device

    @property
    def volume(self) -> objects.Object:
        if not self.file_system:
            return {"capabilities": [objects.use(block=True)]}
        return {"mountOptions": {"fsType": self.file_system}}

    @property
    def claim(self) -> objects.Object:
        return {} if self.file_system else {"attachmentMode": "BlockDevice"}

    def place(self, target: str) -> str:
        """Where the bytes are."""
        return f"{target}/bytes" if self.file_system else target


@scenario("an ext4 volume in use is snapshotted, copied and restored with its bytes", namespace="snapshots-ext4", limit=180)
def ext4(world: World) -> None:
    _life(world, Kind("64Mi", "96Mi", "ext4"))


@scenario("an xfs volume in use is snapshotted, copied and restored with its bytes", namespace="snapshots-xfs", limit=180)
def xfs(world: World) -> None:
    _life(world, Kind("320Mi", "448Mi", "xfs"))


@scenario("a raw device in use is snapshotted, copied and restored with its bytes", namespace="snapshots-block", limit=180)
def block(world: World) -> None:
    _life(world, Kind("64Mi", "96Mi"))


def _life(world: World, kind: Kind) -> None:
    world.ready_volume(capacity=kind.capacity, **kind.volume)
    place = kind.place(world.ready_claim("writer", world.first, **kind.claim))
    before = _fill(world.first, place)
    _snapshot(world, "kept", "data")
    after = _fill(world.first, place)
    expect(before != after, "both times the same random bytes were written")

    # Beside the volume in use: what it held then, larger; and what it holds now.
    world.ready_volume("restored", capacity=kind.larger, source={"snapshotName": "kept"}, **kind.volume)
    world.ready_volume("copy", capacity=kind.capacity, source={"volumeName": "data"}, **kind.volume)
    _expect(world, kind, world.first, {"restored": before, "copy": after})
    _expect_larger(world, kind)

    # The snapshot outlives its volume.
    world.remove("VolumeClaim", "writer")
    world.remove("Volume", "data")
    world.ready_volume("again", capacity=kind.capacity, source={"snapshotName": "kept"}, **kind.volume)
    _expect(world, kind, world.second, {"restored": before, "copy": after, "again": before})
    world.remove("Snapshot", "kept")
    _expect(world, kind, world.second, {"again": before})
    snapshots = [call.rpc for call in world.calls("CreateSnapshot", "DeleteSnapshot")]
    expect(snapshots == ["CreateSnapshot", "DeleteSnapshot"], f"the calls about the snapshot were {snapshots}")


@scenario("a snapshot that its driver works on for long is asked for until it is ready", namespace="snapshots-slow")
def slow(world: World) -> None:
    world.ready_volume()
    world.snapshot("kept", volumeName="data", parameters={"readyAfterSeconds": "6"})
    world.await_reason("Snapshot", "kept", "NotReadyToUse", "snap-")
    world.volume("restored", source={"snapshotName": "kept"})
    world.await_reason("Volume", "restored", "SourceNotUsable", "Snapshot kept is not Ready")
    listed = world.cluster.kubectl("get", "snapshots", "-n", world.namespace, "--no-headers").stdout
    expect("NotReadyToUse" in listed and "Created" in listed, f"kubectl get shows: {listed}")
    world.delete("Volume", "data")
    world.await_reason("Volume", "data", "InUse", "Snapshot kept")
    world.await_ready("Snapshot", "kept")
    world.await_gone("Volume", "data")
    world.await_ready("Volume", "restored")


def _snapshot(world: World, name: str, volume: str) -> None:
    world.snapshot(name, volumeName=volume)
    status = world.await_ready("Snapshot", name)[0]["status"]
    expect(status["sourceVolumeHandle"] == world.handle(volume), f"{name} is of {status['sourceVolumeHandle']}")
    expect(status.get("creationTime") and status.get("restoreSizeBytes"), f"the driver's words are not there: {status}")


def _expect(world: World, kind: Kind, node: Node, digests: dict[str, str]) -> None:
    """Each of these Volumes has these bytes, on this node."""
    for volume, digest in digests.items():
        claim = f"{volume}-reader"
        target = world.ready_claim(claim, node, volumeName=volume, **kind.claim)
        found = _digest(node, kind.place(target))
        expect(found == digest, f"{volume} on {node.name} has other bytes")
    world.remove("VolumeClaim", *(f"{volume}-reader" for volume in digests))


def _expect_larger(world: World, kind: Kind) -> None:
    """What is restored into a larger volume has its whole size, and so has its file system."""
    target = world.ready_claim("larger", world.first, volumeName="restored", **kind.claim)
    if kind.file_system:
        size = int(world.first.shell(f"df --output=size --block-size=1 {target} | tail -1"))
    else:
        size = int(world.first.shell(f"blockdev --getsize64 {target}"))
    mebibytes = int(kind.capacity.removesuffix("Mi"))
    expect(size > mebibytes * 1024 * 1024, f"restored has {size} bytes, which is no more than its snapshot's volume")
    world.remove("VolumeClaim", "larger")


def _fill(node: Node, place: str) -> str:
    """Random bytes there, and their digest."""
    node.shell(f"head -c {SIZE} /dev/urandom | dd of={place} bs=1M conv=fsync,notrunc status=none")
    return _digest(node, place)


def _digest(node: Node, place: str) -> str:
    return node.shell(f"dd if={place} bs=1M count={SIZE // 1024 // 1024} status=none | sha256sum").split()[0]
