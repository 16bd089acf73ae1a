"""VolumeSnapshots as Kubernetes knows them: their kinds and their snapshot-controller, for as long as a scenario has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Problem, parts

from . import snapshot_controller
from .objects import PLUGIN, Holds, Object
from .world import Failed, World

PROGRAM = snapshot_controller.PROGRAM
_GROUP = "snapshot.storage.k8s.io"
API = f"/apis/{_GROUP}/v1"


@contextmanager
def running(world: World) -> Iterator[VolumeSnapshots]:
    """Installs the kinds, runs the snapshot-controller, and takes both away in the end."""
    with snapshot_controller.running(world.cluster, parts.snapshot_kinds()):
        snapshots = VolumeSnapshots(world)
        try:
            snapshots.make_class()
            yield snapshots
        finally:
            snapshots.remove_all()


def await_that(world: World, what: str, holds: object, kinds: str) -> Object:
    """Waits until this holds; tells what there is of these kinds instead if it never does."""
    try:
        found: Object = world.cluster.wait_for(what, holds, 45)  # type: ignore[arg-type]
    except Problem as problem:
        told = world.cluster.kubectl("describe", kinds, "-n", world.namespace, check=False).stdout
        raise Failed(f"{problem.what}:\n{told}") from None
    return found


def is_ready(item: Object) -> bool:
    """Whether volumes can be made of it."""
    return bool(item.get("status", {}).get("readyToUse"))


class VolumeSnapshots:
    """Those of a scenario's namespace."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._path = f"{API}/namespaces/{world.namespace}/volumesnapshots"

    def make_class(self) -> None:
        """A class of the scenario's name, by which what the driver keeps goes with the VolumeSnapshot."""
        item = {"apiVersion": f"{_GROUP}/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": self._world.namespace}}
        self._world.cluster.api.post(f"{API}/volumesnapshotclasses", {**item, "driver": PLUGIN, "deletionPolicy": "Delete"})

    def take(self, name: str, claim: str) -> Object:
        """A VolumeSnapshot of a PersistentVolumeClaim, of which volumes can be made."""
        spec = {"volumeSnapshotClassName": self._world.namespace, "source": {"persistentVolumeClaimName": claim}}
        item = {"apiVersion": f"{_GROUP}/v1", "kind": "VolumeSnapshot", "metadata": {"name": name}, "spec": spec}
        self._world.cluster.api.post(self._path, item)
        return self.await_snapshot(name, "to be ready", is_ready)

    def await_snapshot(self, name: str, what: str, holds: Holds) -> Object:
        def look() -> Object | None:
            found: Object = self._world.cluster.api.get(f"{self._path}/{name}")
            return found if holds(found) else None

        return self._await(f"VolumeSnapshot {name} {what}", look)

    def every(self) -> list[Object]:
        found: list[Object] = self._world.cluster.api.get(self._path)["items"]
        return found

    def contents(self) -> list[Object]:
        """The contents of VolumeSnapshots of the namespace, whether these are there still or not."""
        found = self._world.cluster.api.get(f"{API}/volumesnapshotcontents")["items"]
        return [item for item in found if item["spec"]["volumeSnapshotRef"]["namespace"] == self._world.namespace]

    def handle(self, snapshot: Object) -> str:
        """The driver's id of a VolumeSnapshot that is ready."""
        name = snapshot["status"]["boundVolumeSnapshotContentName"]
        content = self._world.cluster.api.get(f"{API}/volumesnapshotcontents/{name}")
        return str(content["status"]["snapshotHandle"])

    def remove(self, *names: str) -> None:
        """Deletes VolumeSnapshots and waits until their contents are gone too."""
        for name in names:
            self._world.cluster.api.delete(f"{self._path}/{name}")
        self._await(f"{', '.join(names)} and what stands for them to go", lambda: not self._left(set(names)))

    def remove_all(self) -> None:
        self.remove(*(str(item["metadata"]["name"]) for item in self.every()))

    def _left(self, names: set[str]) -> bool:
        found = {str(item["metadata"]["name"]) for item in self.every()}
        of_contents = {str(item["spec"]["volumeSnapshotRef"]["name"]) for item in self.contents()}
        return bool(names & (found | of_contents))

    def _await(self, what: str, holds: object) -> Object:
        return await_that(self._world, what, holds, "volumesnapshots,volumesnapshotcontents")
