"""The whole life of Volumes without Pods, with real bytes: each step is done to what the steps before have left."""

from __future__ import annotations

from .. import objects
from ..content import BLOCK, EXT4, MEBIBYTE, XFS, Kind
from ..registry import scenario
from ..world import World, expect


@scenario(
    "an ext4 Volume is snapshotted, restored, copied, grown, modified, registered and deleted",
    namespace="edits-ext4",
    limit=240,
)
def ext4(world: World) -> None:
    _life(world, EXT4)


@scenario(
    "an xfs Volume is snapshotted, restored, copied, grown, modified, registered and deleted",
    namespace="edits-xfs",
    limit=240,
)
def xfs(world: World) -> None:
    _life(world, XFS)


@scenario(
    "a raw Volume is snapshotted, restored, copied, grown, modified, registered and deleted",
    namespace="edits-block",
    limit=240,
)
def block(world: World) -> None:
    _life(world, BLOCK)


def _life(world: World, kind: Kind) -> None:
    before = world.driver.kept()
    run = world.first.shell
    world.ready_volume(capacity=kind.capacity, mutableParameters={"label": "first"}, **kind.volume)
    target = world.ready_claim("writer", world.first, **kind.claim)
    old = kind.write(run, target)
    _snapshot(world, "kept", "data")
    new = kind.write(run, target)
    expect(old != new, "both times the same random bytes were written")

    # Beside the volume in use: what it held then, larger; and what it holds now.
    world.ready_volume("restored", capacity=kind.larger, source={"snapshotName": "kept"}, **kind.volume)
    world.ready_volume("copy", capacity=kind.capacity, source={"volumeName": "data"}, **kind.volume)
    _expect_sources(world, {"restored": _snapshot_handle(world, "kept"), "copy": world.handle()})
    _expect_bytes(world, kind, {"restored": old, "copy": new}, grown=("restored",))
    _expect_kept(world, before)

    _modify(world)
    _grow(world, kind)
    if kind.grows_mounted:
        _await_followed(world)
        kind.expect_grown(run, target)
    expect(kind.digest(run, target) == new, "the volume has other bytes since it was modified and has grown in use")
    world.remove("VolumeClaim", "writer")
    target = world.ready_claim("moved", world.second, **kind.claim)
    _await_followed(world)
    kind.expect_grown(world.second.shell, target)
    expect(kind.digest(world.second.shell, target) == new, "the volume has other bytes on the other node")
    world.remove("VolumeClaim", "moved")

    _register(world, kind, new)

    # The snapshot outlives its volume, and what was made of it outlives the snapshot.
    world.remove("Volume", "data")
    world.ready_volume("again", capacity=kind.capacity, source={"snapshotName": "kept"}, **kind.volume)
    _expect_kept(world, before)
    world.remove("Snapshot", "kept")
    _expect_bytes(world, kind, {"restored": old, "again": old})
    world.remove("Volume", "restored", "again")
    _expect_kept(world, before)
    snapshots = [call.rpc for call in world.calls("CreateSnapshot", "DeleteSnapshot")]
    expect(snapshots == ["CreateSnapshot", "DeleteSnapshot"], f"the calls about the snapshot were {snapshots}")


def _snapshot(world: World, name: str, volume: str) -> None:
    world.snapshot(name, volumeName=volume)
    status = world.await_ready("Snapshot", name)[0]["status"]
    expect(status["sourceVolumeHandle"] == world.handle(volume), f"{name} is of {status['sourceVolumeHandle']}")
    expect(status.get("creationTime") and status.get("restoreSizeBytes"), f"the driver's words are not there: {status}")


def _snapshot_handle(world: World, name: str) -> str:
    return str(world.get("Snapshot", name)["status"]["snapshotHandle"])


def _expect_sources(world: World, sources: dict[str, str]) -> None:
    records = world.driver.volumes()
    for volume, source in sources.items():
        found = records[world.handle(volume)].get("source")
        expect(found == source, f"the driver has made {volume} of {found} and not of {source}")


def _expect_kept(world: World, before: set[str]) -> None:
    """The driver keeps what there are objects for, and nothing else."""
    objects_of = {world.handle(str(item["metadata"]["name"])) for item in world.every("Volume")}
    objects_of |= {_snapshot_handle(world, str(item["metadata"]["name"])) for item in world.every("Snapshot")}
    found = world.driver.kept() - before
    expect(found == objects_of, f"the driver keeps {sorted(found)}, and there are objects for {sorted(objects_of)}")


def _expect_bytes(world: World, kind: Kind, digests: dict[str, str], grown: tuple[str, ...] = ()) -> None:
    """Each of these Volumes has these bytes, and some are larger than what they were made of."""
    for volume, digest in digests.items():
        target = world.ready_claim(f"{volume}-reader", world.first, volumeName=volume, **kind.claim)
        found = kind.digest(world.first.shell, target)
        expect(found == digest, f"{volume} has other bytes than it should have")
        if volume in grown:
            kind.expect_grown(world.first.shell, target)
    world.remove("VolumeClaim", *(f"{volume}-reader" for volume in digests))


def _modify(world: World) -> None:
    """The driver has the label that was asked for at first, and then the other one."""
    handle = world.handle()
    expect(world.driver.volumes()[handle]["label"] == "first", "the volume was made without its label")
    _patch(world, "data", {"mutableParameters": {"label": "second"}})
    world.await_that("Volume", "data", "to be modified", _says("mutableParameters", {"label": "second"}))
    label = world.driver.volumes()[handle]["label"]
    expect(label == "second", f"the driver has the label {label!r}, and the Volume says that it is modified")


def _grow(world: World, kind: Kind) -> None:
    _patch(world, "data", {"capacity": kind.larger})
    size = kind.grown * MEBIBYTE
    world.await_that("Volume", "data", "to grow", _says("capacityBytes", size))
    found = world.driver.volumes()[world.handle()]["capacityBytes"]
    expect(found == size, f"the volume has {found} bytes, and says that it has {size}")


def _await_followed(world: World) -> None:
    """The nodes have made it as large as the driver, so whoever uses it can use that."""

    def holds(item: objects.Object) -> bool:
        return {c["type"]: c["status"] for c in item["status"]["conditions"]}.get("Expanded") == "True"

    world.await_that("Volume", "data", "to have grown on its nodes", holds)


def _says(field: str, value: object) -> objects.Holds:
    return lambda item: item["status"].get(field) == value


def _patch(world: World, volume: str, spec: objects.Object) -> None:
    world.cluster.api.patch(objects.path("Volume", world.namespace, volume), {"spec": spec})


def _register(world: World, kind: Kind, digest: str) -> None:
    """The copy's Volume goes and leaves the storage, which is registered by its handle, used, and deleted as that."""
    handle = world.handle("copy")
    _patch(world, "copy", {"deletionPolicy": "Retain"})
    world.remove("Volume", "copy")
    expect(handle in world.driver.volumes(), "the storage went with a Volume that was to leave it")
    here = {"namespaces": [world.namespace]}
    plugin = objects.path("Plugin", "", objects.PLUGIN)
    world.cluster.api.patch(plugin, {"spec": {"allow": {"register": here, "deleteRegistered": here}}})
    try:
        world.ready_volume("registered", capacity=None, volumeHandle=handle, deletionPolicy="Delete", **kind.volume)
        _expect_bytes(world, kind, {"registered": digest})
        world.remove("Volume", "registered")
    finally:
        world.cluster.api.patch(plugin, {"spec": {"allow": None}})
    expect(handle not in world.driver.volumes(), "the storage is there still, and its Volume was to take it along")
