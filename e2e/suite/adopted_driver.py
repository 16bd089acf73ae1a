"""The loop driver as a vendor would install it: one process for both services on each node, with a socket where no driver is looked
for, so that its Plugin has to name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster.node_config import PRIVATE, SHARED_SOURCE

from . import managed_driver, objects
from .driver import LoopDriver
from .objects import Object
from .world import World

NAME = "adopted.moor.dev"
_FOLDER = "vendor/run"
_SOCKET = f"{_FOLDER}/driver.sock"
_KUBELET = str(PRIVATE["kubelet"])


@contextmanager
def running(world: World) -> Iterator[LoopDriver]:
    """Installs it and its Plugin, and takes both away in the end."""
    world.await_account()
    path = f"/apis/apps/v1/namespaces/{world.namespace}/daemonsets"
    world.cluster.api.post(path, _daemon_set(world))
    world.create(objects.plugin(NAME, socketPath=_SOCKET))
    try:
        world.await_ready("Plugin", NAME, timeout=90)
        yield LoopDriver(world.cluster, SHARED_SOURCE / managed_driver.FOLDER / NAME)
    finally:
        world.remove("Plugin", NAME)
        world.cluster.api.delete(f"{path}/{NAME}")
    pods = f"/api/v1/namespaces/{world.namespace}/pods?labelSelector=app%3D{NAME}"
    world.cluster.wait_for("the end of its Pods", lambda: not world.cluster.api.get(pods)["items"], 60)


def _daemon_set(world: World) -> Object:
    """What moor would add to the Pods of a driver that it runs itself is all here."""
    pod = managed_driver.pod_of(world, NAME, f"unix://{_KUBELET}/plugins/{_SOCKET}", "all")
    (container,) = pod["containers"]
    container["env"] = [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    container["volumeMounts"] += [
        {"name": "kubelet", "mountPath": _KUBELET, "mountPropagation": "Bidirectional"},
        {"name": "dev", "mountPath": "/dev"},
    ]
    pod["volumes"] += [
        {"name": "kubelet", "hostPath": {"path": _KUBELET, "type": "Directory"}},
        {"name": "dev", "hostPath": {"path": "/dev", "type": "Directory"}},
    ]
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {"metadata": {"name": NAME}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
