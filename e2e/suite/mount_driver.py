"""The driver on Kubernetes' mount library, started on a node in the two ways in which drivers run."""

from __future__ import annotations

from e2e.cluster import Node, parts
from e2e.cluster.node_config import PRIVATE

from .world import World

NAME = "mount.moor.dev"
_PROGRAM = "mount-driver"
_KUBELET = str(PRIVATE["kubelet"])


def start_in_pod(world: World, node: Node) -> None:
    """In a Pod: in a mount namespace of its own, from which mounts reach the node, but not their flags."""
    world.await_account()
    program = "/usr/local/bin/mount-driver"
    container = {
        "name": _PROGRAM,
        "image": world.pods.image_with_tools(),
        "imagePullPolicy": "IfNotPresent",
        "command": [program, *_arguments(node)],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "program", "mountPath": program, "readOnly": True},
            {"name": "kubelet", "mountPath": _KUBELET, "mountPropagation": "Bidirectional"},
        ],
    }
    volumes = [
        {"name": "program", "hostPath": {"path": str(parts.program(_PROGRAM)), "type": "File"}},
        {"name": "kubelet", "hostPath": {"path": _KUBELET, "type": "Directory"}},
    ]
    spec = {
        "nodeName": node.name,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": volumes,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": _PROGRAM}, "spec": spec}
    world.cluster.api.post(f"/api/v1/namespaces/{world.namespace}/pods", pod)


def start_on_node(node: Node) -> None:
    """As a process of the node: its mount namespace is the node's."""
    node.start_daemon(_PROGRAM, [parts.program(_PROGRAM), *_arguments(node)])


def end_in_pod(world: World) -> None:
    path = f"/api/v1/namespaces/{world.namespace}/pods/{_PROGRAM}"
    world.cluster.api.delete(path)
    world.cluster.wait_for("the driver's Pod to end", lambda: not world.found(path), 30)


def end_on_node(node: Node) -> None:
    node.kill_daemon(_PROGRAM)


def _arguments(node: Node) -> list[str]:
    return [f"--socket={_KUBELET}/plugins/{NAME}/csi.sock", f"--name={NAME}", f"--node-id={node.name}"]
