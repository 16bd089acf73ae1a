"""The loop driver as a vendor would install it: one process for both services on each node, with a socket where no driver is looked
for, so that its Plugin has to name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import ApiError
from e2e.cluster.node_config import PRIVATE, SHARED, SHARED_SOURCE

from . import managed_driver, objects
from .driver import LoopDriver
from .objects import Object
from .pods import AGENT
from .world import World

NAME = "adopted.moor.dev"
_FOLDER = "vendor/run"
_SOCKET = f"{_FOLDER}/driver.sock"
_KUBELET = str(PRIVATE["kubelet"])


@contextmanager
def running(world: World) -> Iterator[LoopDriver]:
    """Installs it and its Plugin, and takes both away in the end."""
    account = f"/api/v1/namespaces/{world.namespace}/serviceaccounts/default"
    world.cluster.wait_for("the default service account", lambda: _exists(world, account), 30)
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
    state = str(SHARED / managed_driver.FOLDER / NAME)
    mounts = {"kubelet": _KUBELET, "state": state, "dev": "/dev", "run": "/run"}
    container = {
        "name": "driver",
        "image": world.pods.objects(AGENT)[0]["spec"]["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["moor", "loop-driver"],
        "args": [
            f"--endpoint=unix://{_KUBELET}/plugins/{_SOCKET}", "--node-id=$(NODE_NAME)", f"--driver-name={NAME}",
            f"--state-dir={state}", "--shared", "--record-calls",
        ],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": name, "mountPath": mount, **({"mountPropagation": "Bidirectional"} if name == "kubelet" else {})}
            for name, mount in mounts.items()
        ],
    }  # fmt: skip
    volumes = [
        {"name": "kubelet", "hostPath": {"path": _KUBELET, "type": "Directory"}},
        {"name": "state", "hostPath": {"path": state, "type": "DirectoryOrCreate"}},
        {"name": "dev", "hostPath": {"path": "/dev", "type": "Directory"}},
        {"name": "run", "emptyDir": {"medium": "Memory"}},
    ]
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": volumes,
    }
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {"metadata": {"name": NAME}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def _exists(world: World, path: str) -> bool:
    try:
        world.cluster.api.get(path)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True
