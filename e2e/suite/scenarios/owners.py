"""Objects that belong to others go with them, as Kubernetes' garbage collection has it."""

from __future__ import annotations

import json

from ..objects import Object
from ..registry import scenario
from ..world import World, expect

_CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"


@scenario("a Volume, its Snapshot and its claim go with what owns them, detached before it is deleted")
def owners(world: World) -> None:
    owner = world.cluster.api.post(_CONFIG_MAPS.format(world.namespace), {"metadata": {"name": "owner"}})
    world.volume()
    world.claim("writer", world.first)
    world.await_ready("VolumeClaim", "writer")
    world.snapshot("kept", volumeName="data")
    world.await_ready("Snapshot", "kept")
    for kind, name in (("Volume", "data"), ("VolumeClaim", "writer"), ("Snapshot", "kept")):
        _give(world, owner, kind, name)
    handle = world.handle()

    world.cluster.api.delete(f"{_CONFIG_MAPS.format(world.namespace)}/owner")
    for kind, name in (("VolumeClaim", "writer"), ("Snapshot", "kept"), ("Volume", "data")):
        world.await_gone(kind, name)
    wanted = ["NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume", "DeleteVolume"]
    undone = [call.rpc for call in world.calls(*wanted, volume=handle)]
    expect(undone == wanted, f"the calls that undo were {undone}")
    expect(len(world.calls("DeleteSnapshot")) == 1, "the snapshot was not deleted, or more than once")


def _give(world: World, owner: Object, kind: str, name: str) -> None:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": False,
    }
    patch = json.dumps({"metadata": {"ownerReferences": [reference]}})
    world.cluster.kubectl("patch", kind.lower(), name, "-n", world.namespace, "--type=merge", "-p", patch)

