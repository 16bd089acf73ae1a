"""VolumeSnapshots as Kubernetes knows them: their kinds and their snapshot-controller, for as long as a scenario has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Problem, parts
from e2e.cluster.processes import Component

from .objects import PLUGIN, Object
from .world import Failed, World

PROGRAM = parts.SNAPSHOT_CONTROLLER
_GROUP = "snapshot.storage.k8s.io"
_API = f"/apis/{_GROUP}/v1"


@contextmanager
def running(world: World) -> Iterator[VolumeSnapshots]:
    """Installs the kinds, runs the snapshot-controller, and takes both away in the end."""
    kinds = parts.snapshot_kinds()
    names = [f"{path.stem.partition('_')[2]}.{_GROUP}" for path in kinds]
    files = [word for path in kinds for word in ("-f", str(path))]
    world.cluster.kubectl("apply", *files)
    world.cluster.kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in names), "--timeout=30s")
    # As the administrator: its own rights are not what is tried here.
    arguments = [f"--kubeconfig={world.cluster.kubeconfig}", "--retry-interval-max=1s", "--leader-election=false"]
    controller = Component(PROGRAM, [parts.program(PROGRAM), *arguments])
    controller.start()
    snapshots = VolumeSnapshots(world)
    try:
        snapshots.make_class()
        yield snapshots
        controller.must_live()
    finally:
        try:
            snapshots.remove_all()
        finally:
            controller.kill()
            world.cluster.kubectl("delete", *(f"crd/{name}" for name in names), "--timeout=30s")


class VolumeSnapshots:
    """Those of a scenario's namespace."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._path = f"{_API}/namespaces/{world.namespace}/volumesnapshots"

    def make_class(self) -> None:
        """A class of the scenario's name, by which what the driver keeps goes with the VolumeSnapshot."""
        item = {"apiVersion": f"{_GROUP}/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": self._world.namespace}}
        self._world.cluster.api.post(f"{_API}/volumesnapshotclasses", {**item, "driver": PLUGIN, "deletionPolicy": "Delete"})

    def take(self, name: str, claim: str) -> Object:
        """A VolumeSnapshot of a PersistentVolumeClaim, of which volumes can be made."""
        spec = {"volumeSnapshotClassName": self._world.namespace, "source": {"persistentVolumeClaimName": claim}}
        item = {"apiVersion": f"{_GROUP}/v1", "kind": "VolumeSnapshot", "metadata": {"name": name}, "spec": spec}
        self._world.cluster.api.post(self._path, item)

        def ready() -> Object | None:
            found: Object = self._world.cluster.api.get(f"{self._path}/{name}")
            return found if found.get("status", {}).get("readyToUse") else None

        return self._await(f"VolumeSnapshot {name} to be ready", ready)

    def handle(self, snapshot: Object) -> str:
        """The driver's id of a VolumeSnapshot that is ready."""
        name = snapshot["status"]["boundVolumeSnapshotContentName"]
        content = self._world.cluster.api.get(f"{_API}/volumesnapshotcontents/{name}")
        return str(content["status"]["snapshotHandle"])

    def remove(self, *names: str) -> None:
        """Deletes VolumeSnapshots and waits until their contents are gone too."""
        for name in names:
            self._world.cluster.api.delete(f"{self._path}/{name}")
        self._await(f"{', '.join(names)} and what stands for them to go", lambda: not self._left(set(names)))

    def remove_all(self) -> None:
        self.remove(*(str(item["metadata"]["name"]) for item in self._world.cluster.api.get(self._path)["items"]))

    def _left(self, names: set[str]) -> bool:
        found = {str(item["metadata"]["name"]) for item in self._world.cluster.api.get(self._path)["items"]}
        contents = self._world.cluster.api.get(f"{_API}/volumesnapshotcontents")["items"]
        of_contents = {str(item["spec"]["volumeSnapshotRef"]["name"]) for item in contents}
        return bool(names & (found | of_contents))

    def _await(self, what: str, holds: object) -> Object:
        try:
            found: Object = self._world.cluster.wait_for(what, holds, 45)  # type: ignore[arg-type]
        except Problem as problem:
            words = ("describe", "volumesnapshots,volumesnapshotcontents", "-n", self._world.namespace)
            raise Failed(f"{problem.what}:\n{self._world.cluster.kubectl(*words, check=False).stdout}") from None
        return found
