"""VolumeGroupSnapshots as Kubernetes knows them: VolumeSnapshots of several claims, of one moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import parts

from . import snapshot_controller, volume_snapshots
from .objects import PLUGIN, Object
from .volume_snapshots import VolumeSnapshots
from .world import World

PROGRAM = snapshot_controller.PROGRAM
_GROUP_VERSION = "groupsnapshot.storage.k8s.io/v1beta2"
_API = f"/apis/{_GROUP_VERSION}"
_GATE = "--feature-gates=CSIVolumeGroupSnapshot=true"


@contextmanager
def running(world: World) -> Iterator[GroupSnapshots]:
    """Installs the kinds, those of VolumeSnapshots too, runs the snapshot-controller, and takes all of it away in the end."""
    kinds = [*parts.snapshot_kinds(), *parts.snapshot_kinds(groups=True)]
    with snapshot_controller.running(world.cluster, kinds, _GATE):
        groups = GroupSnapshots(world)
        try:
            groups.make_class()
            yield groups
        finally:
            groups.remove_all()


class GroupSnapshots:
    """Those of a scenario's namespace, with their members."""

    def __init__(self, world: World) -> None:
        self.snapshots = VolumeSnapshots(world)
        self._world = world
        self._path = f"{_API}/namespaces/{world.namespace}/volumegroupsnapshots"

    def make_class(self) -> None:
        """A class of the scenario's name, by which what the driver keeps goes with the VolumeGroupSnapshot."""
        item = self._item("VolumeGroupSnapshotClass", self._world.namespace)
        self._world.cluster.api.post(f"{_API}/volumegroupsnapshotclasses", {**item, "driver": PLUGIN, "deletionPolicy": "Delete"})

    def ask(self, name: str, **labels: str) -> None:
        """A VolumeGroupSnapshot of the PersistentVolumeClaims that have these labels, which is taken meanwhile."""
        source = {"selector": {"matchLabels": labels}}
        spec = {"volumeGroupSnapshotClassName": self._world.namespace, "source": source}
        self._world.cluster.api.post(self._path, {**self._item("VolumeGroupSnapshot", name), "spec": spec})

    def take(self, name: str, **labels: str) -> Object:
        """The same, when it is ready."""
        self.ask(name, **labels)

        def ready() -> Object | None:
            found: Object = self._world.cluster.api.get(f"{self._path}/{name}")
            return found if volume_snapshots.is_ready(found) else None

        return self._await(f"VolumeGroupSnapshot {name} to be ready", ready)

    def members(self, group: str, *claims: str) -> dict[str, Object]:
        """The VolumeSnapshots of these claims that a VolumeGroupSnapshot has brought, by claim, when all are ready."""

        def ready() -> dict[str, Object] | None:
            of_group = [item for item in self.snapshots.every() if _is_of(item, group)]
            found = {str(item["spec"]["source"]["persistentVolumeClaimName"]): item for item in of_group}
            whole = set(found) == set(claims) and len(of_group) == len(claims)
            return found if whole and all(map(_is_member, of_group)) else None

        return self._await(f"VolumeGroupSnapshot {group} to have a VolumeSnapshot of each of {', '.join(claims)}", ready)

    def content(self, group: Object) -> Object:
        """The content of a VolumeGroupSnapshot that is ready."""
        name = group["status"]["boundVolumeGroupSnapshotContentName"]
        found: Object = self._world.cluster.api.get(f"{_API}/volumegroupsnapshotcontents/{name}")
        return found

    def remove(self, *names: str) -> None:
        """Deletes VolumeGroupSnapshots, and waits until nothing is left of any in the namespace: no member and no content."""
        for name in names:
            self._world.cluster.api.delete(f"{self._path}/{name}")
        if names:
            self._await(f"{', '.join(names)} and what stands for them to go", lambda: not self.left())

    def remove_all(self) -> None:
        self.remove(*(str(item["metadata"]["name"]) for item in self._world.cluster.api.get(self._path)["items"]))

    def left(self) -> list[str]:
        """What there is of VolumeGroupSnapshots and their members, by kind and name."""
        contents = self._world.cluster.api.get(f"{_API}/volumegroupsnapshotcontents")["items"]
        here = [item for item in contents if item["spec"]["volumeGroupSnapshotRef"]["namespace"] == self._world.namespace]
        groups = self._world.cluster.api.get(self._path)["items"]
        every = [*groups, *here, *self.snapshots.every(), *self.snapshots.contents()]
        return [f"{item['kind']} {item['metadata']['name']}" for item in every]

    def _item(self, kind: str, name: str) -> Object:
        return {"apiVersion": _GROUP_VERSION, "kind": kind, "metadata": {"name": name}}

    def _await(self, what: str, holds: object) -> Object:
        kinds = "volumegroupsnapshots,volumegroupsnapshotcontents,volumesnapshots,volumesnapshotcontents"
        return volume_snapshots.await_that(self._world, what, holds, kinds)


def _is_of(snapshot: Object, group: str) -> bool:
    owners = snapshot["metadata"].get("ownerReferences", [])
    return any(owner["kind"] == "VolumeGroupSnapshot" and owner["name"] == group for owner in owners)


def _is_member(snapshot: Object) -> bool:
    """Whether it is ready, and says of which VolumeGroupSnapshot it is: one that does not is not kept until that goes."""
    return volume_snapshots.is_ready(snapshot) and bool(snapshot["status"].get("volumeGroupSnapshotName"))
