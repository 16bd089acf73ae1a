"""The loop driver in the two ways in which the suite is run on it, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.cluster import Cluster, step
from e2e.cluster import install as installation
from e2e.cluster.namespace import NAMESPACE
from e2e.cluster.node_config import PRIVATE
from e2e.suite import leaks, objects
from e2e.suite.pods import Pods

SHARED, LOCAL = objects.PLUGIN, f"local.{objects.PLUGIN}"
_DAEMON = "moor-loop-driver"
_LOCAL_DAEMON = f"{_DAEMON}-local"
# volumeLimits fills a node, with one Pod.
_VOLUMES_PER_NODE = 12


def install(cluster: Cluster) -> None:
    """moor with both drivers, which serve Pods when this returns."""
    installation.install(["--set", f"loopDriver.maxVolumesPerNode={_VOLUMES_PER_NODE}"])
    # One class names no file system, and has fsGroup applied none the less; the other one names it.
    cluster.apply(objects.plugin(SHARED, kubernetes={"csiDriver": {"fsGroupPolicy": "File"}}))
    _add_local(cluster)
    Pods(cluster).await_ready()
    _await_serving(cluster)


@contextmanager
def local(cluster: Cluster) -> Iterator[None]:
    """The driver with a folder for each node beside the one that is there, for as long as this lasts."""
    _add_local(cluster)
    try:
        _await_serving(cluster)
        yield
    finally:
        cluster.kubectl("delete", f"plugin/{LOCAL}", "--timeout=60s")
        cluster.wait_for("kubelets to forget the driver", lambda: not any(LOCAL in of for of in _known(cluster)), 60)
        words = ("--cascade=foreground", "--timeout=60s")
        cluster.kubectl("delete", f"daemonset/{_LOCAL_DAEMON}", "-n", NAMESPACE, *words)


def leftovers(cluster: Cluster) -> set[str]:
    """What there is of volumes; nothing, when all are gone."""
    found = leaks.leftovers(cluster)
    for node in cluster.nodes:
        folder = node.directory / "moor-loop-local"
        left = leaks.driver_leftovers(folder) | leaks.loop_devices(folder)
        found |= {f"{node.name}: {line}" for line in left}
    return found


def _add_local(cluster: Cluster) -> None:
    cluster.apply(_on_its_node(cluster.get("daemonset", _DAEMON, "-n", NAMESPACE)))
    # Only the driver of a node makes volumes there.
    cluster.apply(objects.plugin(LOCAL, balancing="PerTopology"))


def _await_serving(cluster: Cluster) -> None:
    with step("until both drivers serve Pods on all nodes"):
        for name in (SHARED, LOCAL):
            cluster.kubectl("wait", "--for=condition=Ready", f"plugin/{name}", "--timeout=90s")
        cluster.wait_for("kubelets to know both drivers", lambda: _registered(cluster), 90, 0.5)


def _known(cluster: Cluster) -> list[set[str]]:
    """The drivers that the kubelet of each node knows."""
    nodes = cluster.get("csinodes")["items"]
    return [{driver["name"] for driver in node["spec"].get("drivers") or []} for node in nodes]


def _registered(cluster: Cluster) -> bool:
    known = _known(cluster)
    return len(known) == len(cluster.nodes) and all({SHARED, LOCAL} <= names for names in known)


def _on_its_node(daemon: Any) -> Any:
    """The chart's DaemonSet once more: another name, and a folder that is the node's own."""
    place = str(PRIVATE["moor-loop-local"])
    template = daemon["spec"]["template"]
    labels = {**template["metadata"]["labels"], "app.kubernetes.io/component": "loop-driver-local"}
    pod = template["spec"]
    container = pod["containers"][0]
    arguments = [word for word in container["args"] if not word.startswith(("--shared", "--state-dir="))]
    container["args"] = [
        *(word.replace(f"/{SHARED}/", f"/{LOCAL}/") for word in arguments),
        f"--driver-name={LOCAL}",
        f"--state-dir={place}",
    ]
    for mount in container["volumeMounts"]:
        if mount["name"] == "state":
            mount["mountPath"] = place
    for volume in pod["volumes"]:
        if volume["name"] == "state":
            volume["hostPath"]["path"] = place
    return {
        "apiVersion": daemon["apiVersion"],
        "kind": daemon["kind"],
        "metadata": {"name": _LOCAL_DAEMON, "namespace": daemon["metadata"]["namespace"]},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
