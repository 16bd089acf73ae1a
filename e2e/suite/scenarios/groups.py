"""Several volumes are snapshotted at one moment, as Kubernetes' VolumeGroupSnapshots ask for it and as moor's own Snapshots do,
with real bytes: a file system and a raw device."""

from __future__ import annotations

from .. import group_snapshots
from ..calls import DROP, DROP_GROUP, TAKE, TAKE_GROUP
from ..content import BLOCK, EXT4, Kind, Run
from ..objects import Object
from ..registry import scenario
from ..workloads import DEVICE, MOUNT, Workloads
from ..world import World, expect

# What is in the group, by the name of its claim or Volume.
_KINDS = {"files": EXT4, "device": BLOCK}
_LABEL = {"snapshotted": "together"}
_MOMENT = "moment"
_SNAPSHOTS = "/apis/moor.dev/v1alpha1/snapshots"


@scenario(
    "claims are snapshotted as a group, restored from its members, and outlive it",
    namespace="groups-claims",
    limit=300,
    programs=(group_snapshots.PROGRAM,),
)
def of_claims(world: World) -> None:
    before, held = world.driver.kept(), _held(world)
    with group_snapshots.running(world) as groups:
        claims = _Claims(world)
        # Of the same class, and not in the group.
        claims.work.claim("beside")
        for name, kind in _KINDS.items():
            claims.make(name, kind)
        old = {name: claims.write(name) for name in _KINDS}
        taken = groups.take(_MOMENT, **_LABEL)
        members = groups.members(_MOMENT, *_KINDS)
        content = groups.content(taken)
        of_group = content["metadata"]["uid"]
        expect(of_group in _held(world), f"moor has no Snapshot for {content['metadata']['name']}")
        _expect_group(world, str(content["status"]["volumeGroupSnapshotHandle"]), before)
        new = {name: claims.write(name) for name in _KINDS}
        expect(not set(old.values()) & set(new.values()), "both times the same random bytes were written")

        for name, kind in _KINDS.items():
            handle = groups.snapshots.handle(members[name])
            claims.restore(f"{name}-restored", kind, members[name], handle)
            claims.expect_bytes(f"{name}-restored", kind, old[name])

        groups.remove(_MOMENT)
        world.cluster.wait_for("moor's Snapshots of the group to go", lambda: not _held(world) - held, 30)
        _expect_no_group(world, before)
        for name, kind in _KINDS.items():
            claims.expect_bytes(f"{name}-restored", kind, old[name])
            expect(claims.digest(name) == new[name], f"the Pod that has {name} sees other bytes since the group is gone")
        claims.work.remove_pods(*(f"{name}-writer" for name in _KINDS))
        claims.work.remove_claims("beside", *_KINDS, *(f"{name}-restored" for name in _KINDS))
    _expect_calls(world)
    left = world.driver.kept() - before
    expect(not left, f"the driver keeps {sorted(left)}, and nobody has asked for it any more")


@scenario(
    "Volumes are snapshotted by one Snapshot, restored from its members, and outlive it",
    namespace="groups-volumes",
    limit=240,
)
def of_volumes(world: World) -> None:
    before = world.driver.kept()
    run = world.first.shell
    targets = {}
    for name, kind in _KINDS.items():
        world.ready_volume(name, capacity=kind.capacity, **kind.volume)
        targets[name] = world.ready_claim(f"{name}-writer", world.first, volumeName=name, **kind.claim)
    old = {name: kind.write(run, targets[name]) for name, kind in _KINDS.items()}
    world.snapshot(_MOMENT, volumeNames=[*_KINDS])
    status = world.await_ready("Snapshot", _MOMENT)[0]["status"]
    members = {str(member["volumeHandle"]): str(member["snapshotHandle"]) for member in status["members"]}
    expect(set(members) == {world.handle(name) for name in _KINDS}, f"the members are {status['members']}")
    new = {name: kind.write(run, targets[name]) for name, kind in _KINDS.items()}
    expect(not set(old.values()) & set(new.values()), "both times the same random bytes were written")

    for name, kind in _KINDS.items():
        source = {"snapshotName": _MOMENT, "volumeName": name}
        world.ready_volume(f"{name}-restored", capacity=kind.capacity, source=source, **kind.volume)
        found = world.driver.volumes()[world.handle(f"{name}-restored")].get("source")
        wanted = members[world.handle(name)]
        expect(found == wanted, f"the driver has made {name}-restored of {found} and not of {wanted}")
    world.remove("Snapshot", _MOMENT)
    _expect_no_group(world, before)
    for name, kind in _KINDS.items():
        target = world.ready_claim(f"{name}-reader", world.second, volumeName=f"{name}-restored", **kind.claim)
        expect(kind.digest(world.second.shell, target) == old[name], f"{name}-restored has other bytes than at the moment")
        expect(kind.digest(run, targets[name]) == new[name], f"{name} has other bytes since the Snapshot is gone")
    world.remove("VolumeClaim", *(f"{name}-{who}" for name in _KINDS for who in ("writer", "reader")))
    world.remove("Volume", *_KINDS, *(f"{name}-restored" for name in _KINDS))
    _expect_calls(world)
    left = world.driver.kept() - before
    expect(not left, f"the driver keeps {sorted(left)}, and there is no object for it")


def _held(world: World) -> set[str]:
    """The UIDs of the contents that moor has a Snapshot for."""
    every = world.cluster.api.get(_SNAPSHOTS)["items"]
    return {str(item["spec"]["volumeSnapshotContent"]["uid"]) for item in every if "volumeSnapshotContent" in item["spec"]}


def _expect_group(world: World, handle: str, before: set[str]) -> None:
    """The driver keeps one group, with a member of each volume."""
    groups = set(world.driver.groups()) - before
    expect(groups == {handle}, f"the driver keeps the groups {sorted(groups)}, and its content says {handle}")
    snapshots = set(world.driver.snapshots()) - before
    expect(len(snapshots) == len(_KINDS), f"the driver keeps the snapshots {sorted(snapshots)}")


def _expect_no_group(world: World, before: set[str]) -> None:
    left = {*world.driver.groups(), *world.driver.snapshots()} - before
    expect(not left, f"the driver keeps {sorted(left)} of a group that is gone")


def _expect_calls(world: World) -> None:
    """The group was taken at once and deleted at once, and no member by itself. While somebody writes to a volume its driver may refuse."""
    found = [call.rpc for call in world.calls(TAKE, DROP, TAKE_GROUP, DROP_GROUP) if call.ok]
    expect(found == [TAKE_GROUP, DROP_GROUP], f"the calls about snapshots were {found}")


class _Claims:
    """The claims of the group, and the Pods that use them."""

    def __init__(self, world: World) -> None:
        self.work = Workloads(world)
        self._world = world

    def make(self, name: str, kind: Kind) -> None:
        """A claim with the label of the group, and a Pod that has its volume."""
        self.work.claim(name, block=not kind.file_system, size=kind.capacity)
        labels = [f"{key}={value}" for key, value in _LABEL.items()]
        self._world.cluster.kubectl("label", "pvc", name, "-n", self._world.namespace, *labels)
        self.work.running_pod(f"{name}-writer", name, self._world.first)

    def write(self, name: str) -> str:
        """Other bytes, by the Pod that has the volume. Their digest."""
        return _KINDS[name].write(self._run(f"{name}-writer"), _place(_KINDS[name]))

    def digest(self, name: str) -> str:
        return _KINDS[name].digest(self._run(f"{name}-writer"), _place(_KINDS[name]))

    def restore(self, name: str, kind: Kind, member: Object, handle: str) -> None:
        """A claim whose volume the driver makes of a member of the group."""
        snapshot = str(member["metadata"]["name"])
        source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot}
        self.work.claim(name, block=not kind.file_system, size=kind.capacity, dataSource=source)
        volume = str(self.work.await_bound(name)["spec"]["csi"]["volumeHandle"])
        found = self._world.driver.volumes()[volume].get("source")
        expect(found == handle, f"the driver has made {name} of {found} and not of {handle}")

    def expect_bytes(self, name: str, kind: Kind, digest: str) -> None:
        pod = f"{name}-reader"
        self.work.running_pod(pod, name, self._world.second)
        found = kind.digest(self._run(pod), _place(kind))
        expect(found == digest, f"{name} has other bytes than at the moment of the group")
        self.work.remove_pods(pod)

    def _run(self, pod: str) -> Run:
        return lambda script: self.work.run(pod, script)


def _place(kind: Kind) -> str:
    """Where the volume is in a Pod."""
    return MOUNT if kind.file_system else DEVICE
