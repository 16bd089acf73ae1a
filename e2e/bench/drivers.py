"""The driver on Kubernetes' mount library, once served by moor and once by kubelet alone."""

from __future__ import annotations

from e2e.cluster import Cluster, Node, parts, step
from e2e.cluster.node_config import PRIVATE
from e2e.suite import mount_driver, objects

from .kinds import DIRECT, NAMESPACE, SERVED, storage_classes

_KUBELET = str(PRIVATE["kubelet"])
_STORAGE = "/apis/storage.k8s.io/v1"


def start(cluster: Cluster) -> None:
    """Both on every node, and known to every kubelet when this returns."""
    direct = {"metadata": {"name": DIRECT}, "spec": {"attachRequired": False, "podInfoOnMount": True}}
    cluster.api.post(f"{_STORAGE}/csidrivers", direct)
    for item in storage_classes():
        cluster.api.post(f"{_STORAGE}/storageclasses", item)
    cluster.api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    cluster.apply(objects.plugin(SERVED))
    for node in cluster.nodes:
        mount_driver.start_on_node(node)
        _start_directly(node)
    with step("until kubelets know all drivers"):
        cluster.wait_for("kubelets to know all drivers", lambda: _known(cluster), 90, 0.5)


def _start_directly(node: Node) -> None:
    command = [
        parts.program("mount-driver"),
        f"--socket={_KUBELET}/plugins/{DIRECT}/csi.sock",
        f"--register={_KUBELET}/plugins_registry/{DIRECT}.sock",
        f"--name={DIRECT}",
        f"--node-id={node.name}",
    ]
    node.start_daemon("mount-driver-direct", command)


def _known(cluster: Cluster) -> bool:
    nodes = cluster.get("csinodes")["items"]
    known = [{driver["name"] for driver in node["spec"].get("drivers") or []} for node in nodes]
    return len(known) == len(cluster.nodes) and all({DIRECT, SERVED, objects.PLUGIN} <= names for names in known)
