"""What a scenario must not leave behind: objects, mounts, loop devices, records, directories."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster import Cluster, Node, loops
from e2e.cluster.node_config import PRIVATE, SHARED, SHARED_SOURCE

from .objects import collection

# Below a node's kubelet directory: where the agent stages and publishes.
OURS = Path("plugins/kubernetes.io/csi/moor.dev")
# Where kubelet wants volumes staged and published, of any CSI driver.
_CSI, _OF_PODS = Path("plugins/kubernetes.io/csi"), "kubernetes.io~csi"
_KINDS = ("VolumeClaim", "Snapshot", "Volume", "Attachment", "VolumeHandle")


def leftovers(cluster: Cluster) -> set[str]:
    """Everything there is now, one line each. Compare two of these: what is new has leaked."""
    found = objects(cluster)
    found |= driver_leftovers(SHARED_SOURCE)
    found |= loop_devices(SHARED_SOURCE)
    with ThreadPoolExecutor(len(cluster.nodes)) as pool:
        for of_node in pool.map(_on_node, cluster.nodes):
            found |= of_node
    return found


def objects(cluster: Cluster) -> set[str]:
    found = set()
    for kind in _KINDS:
        for item in cluster.api.get(collection(kind))["items"]:
            meta = item["metadata"]
            name = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
            # No state: what an earlier scenario left may change it meanwhile.
            found.add(f"{kind} {name}")
    volumes = cluster.api.get("/api/v1/persistentvolumes")["items"]
    return found | {f"PersistentVolume {item['metadata']['name']}" for item in volumes}


def _on_node(node: Node) -> set[str]:
    if not node.running:
        return set()
    found = mounts(node.mounts(), PRIVATE["kubelet"])
    # The folders as the host has them: without what the node has mounted over them.
    found |= directories(node.directory / "kubelet")
    # The folder of the targets is only in the node.
    found |= directories(node.path(PRIVATE["kubelet"]), ("targets",))
    found |= records(node.directory / "moor")
    return {f"{node.name}: {line}" for line in found}


def mount_point(line: str) -> str:
    """The mount point of a line of mountinfo. The kernel writes blanks as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split()[4])


def mounts(mountinfo: Iterable[str], kubelet: Path) -> set[str]:
    points = [mount_point(line) for line in mountinfo]
    # The folder of all targets is no target: it stays mounted for as long as the agent runs.
    points = [point for point in points if Path(point) != kubelet / OURS / "targets"]
    of_csi = {point for point in points if Path(point).is_relative_to(kubelet / _CSI)}
    of_pods = {point for point in points if Path(point).is_relative_to(kubelet) and _OF_PODS in Path(point).parts}
    return {f"mount {point}" for point in of_csi | of_pods}


def directories(kubelet: Path, kinds: tuple[str, ...] = ("staging", "claims")) -> set[str]:
    """Staging and target directories; the folders that hold them may stay."""
    found = set()
    for kind in kinds:
        folder = kubelet / OURS / kind
        if folder.is_dir():
            found |= {f"directory {OURS / kind / entry.name}" for entry in folder.iterdir()}
    return found


def records(moor: Path) -> set[str]:
    folder = moor / "records"
    return {f"record {entry.name}" for entry in folder.iterdir()} if folder.is_dir() else set()


def driver_leftovers(state: Path) -> set[str]:
    """Volumes, snapshots, groups of them, attachments and holdings in the loop driver's folder."""
    found = set()
    for kind in ("snapshots", "groups"):
        found |= {f"driver: {kind[:-1]} {left.name}" for left in (state / kind).glob("*")}
    for volume in sorted((state / "volumes").glob("*")):
        found.add(f"driver: volume {volume.name}")
        table = _json(volume / "attachments.json")
        found |= {f"driver: {volume.name} attached to {node}" for node in table}
        found |= {f"driver: {volume.name} has {link.name}" for link in volume.glob("dev.*")}
    for holding in (state / "nodes").glob("*/volumes/*.json"):
        found.add(f"driver: {holding.stem} held by {holding.parents[1].name}")
    return found


def loop_devices(state: Path) -> set[str]:
    """Loop devices on the driver's files, and those whose file is gone but was one of the driver's."""
    here = loops.under(state)
    gone = [loop for loop in loops.attached() if loop.deleted and loop.name.startswith(str(SHARED))]
    return {f"loop device {loop.device} on {loop.backing_path}" for loop in (*here, *gone)}


def _json(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
