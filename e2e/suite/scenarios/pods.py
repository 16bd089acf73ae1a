"""Pods on PersistentVolumes: kubelet asks moor, and moor's rules hold for them as for any claim."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import Node
from e2e.cluster.control_plane import API_SERVER
from e2e.cluster.node import KUBELET
from e2e.cluster.node_config import PRIVATE

from .. import audit, leaks
from ..calls import DETACH, PUBLISH, STAGE, UNPUBLISH, UNSTAGE, mutating
from ..pods import AGENT
from ..registry import scenario
from ..workloads import DEVICE, MOUNT, Workloads
from ..world import World, expect


def claim_for(world: World, *, block: bool = False) -> Workloads:
    """A claim that is bound to a volume, which moor has made."""
    work = Workloads(world)
    work.claim(block=block)
    return work


@scenario("a Pod uses a PersistentVolume, its data moves to the other node with it, and nothing is left", limit=180)
def pods_move(world: World) -> None:
    work = claim_for(world)
    work.running_pod("first", "data", world.first, securityContext={"fsGroup": 2000})
    work.write("first", "from the first node")
    owner = work.run("first", f"stat -c %g {MOUNT}/file").strip()
    expect(owner == "2000", f"the file's group is {owner}: kubelet has not applied fsGroup")
    work.remove_pods("first")
    work.running_pod("second", "data", world.second)
    work.expect_text("second", "from the first node")
    expect(world.calls(DETACH), "the volume moved without having been detached")
    work.remove_pods("second")


@scenario("two Pods of one node share a ReadWriteOnce volume; one of another node waits, is told why, and gets it")
def pods_share(world: World) -> None:
    work = claim_for(world)
    work.running_pod("first", "data", world.first)
    work.running_pod("beside", "data", world.first)
    work.write("first", "shared")
    work.expect_text("beside", "shared")
    expect(len(world.calls(STAGE)) == 1, "a second Pod of the node was staged for again")
    expect(len(world.calls(PUBLISH)) == 2, "each Pod has a target of its own")
    work.pod("elsewhere", "data", world.second)
    told = work.await_event("elsewhere", "WaitsForVolume", f"for Pod {world.namespace}/", world.first.name, "Held since")
    world.note(f"the waiting Pod was told: {told}")
    work.remove_pods("first", "beside")
    work.await_running("elsewhere", timeout=30)
    work.expect_text("elsewhere", "shared")
    work.remove_pods("elsewhere")


@scenario("a Pod has a PersistentVolume as a device", limit=150)
def pods_block(world: World) -> None:
    work = claim_for(world, block=True)
    work.running_pod("raw", "data", world.first)
    work.run("raw", f"echo words | dd of={DEVICE} conv=fsync 2>/dev/null")
    work.remove_pods("raw")
    work.running_pod("raw", "data", world.second)
    read = work.run("raw", f"head -c 5 {DEVICE}")
    expect(read == "words", f"the device has {read!r}")
    work.remove_pods("raw")


@scenario("kubelet and agent restart under a running Pod: no CSI call, no API write, the CSINode stays", limit=180)
def pods_restarts(world: World) -> None:
    work = claim_for(world)
    work.running_pod("pod", "data", world.first)
    work.write("pod", "before")
    calls, log, node = world.driver.last(), audit.position(world.cluster), csi_node(world, world.first)
    with _publishes_again(world, world.first, work.uid("pod")):
        world.first.restart_kubelet()
    world.kill(world.pods.one(AGENT, world.first.name))
    world.pods.await_ready()
    work.write("pod", "after")
    expect(csi_node(world, world.first) == node, "kubelet has registered the driver anew")
    touched = [call.told() for call in mutating(world.calls(after=calls))]
    expect(not touched, "the driver was called for a mounted volume:\n" + "\n".join(touched))
    written = audit.about_claims(audit.writes(world.cluster, log))
    expect(not written, f"API writes for a running Pod: {audit.told(written)}")
    # The agent that was started anew is asked by kubelet, and undoes what the other one has made.
    work.remove_pods("pod")


@scenario("Pods end while the API server is away for a minute, and their claims go when the server is back", limit=450)
def pods_end_alone(world: World) -> None:
    work = claim_for(world)
    # When the later one ends its agent's Lease is too old for any other call.
    ends = {"soon": 8, "late": 45}
    for name, seconds in ends.items():
        container = work.container(_SLOW_TO_END.format(name=name))
        work.pod(name, "data", world.first, terminationGracePeriodSeconds=seconds, containers=[container])
    work.await_running(*ends)
    uids = {name: work.uid(name) for name in ends}
    mounted = {name: mounts_of(world.first, uid) for name, uid in uids.items()}
    expect(all(len(points) == 1 for points in mounted.values()), f"the Pods' volumes are mounted at {mounted}")
    expect(all(len(work.claims_of(uid)) == 1 for uid in uids.values()), "a Pod has no claim, or several")
    for name in ends:
        work.delete_pod(name)
    # From here on kubelet knows that the Pods are to end.
    heard = [world.first.path(f"{mounted[name][0]}/told-{name}") for name in ends]
    world.cluster.wait_for("the Pods to hear of their end", lambda: all(path.exists() for path in heard), 30)
    server = world.cluster.component(API_SERVER)
    server.kill()
    back = time.monotonic() + 60
    try:
        for name, uid in uids.items():
            world.cluster.wait_for(f"kubelet to unmount for {name}", lambda uid=uid: not mounts_of(world.first, uid), 90, 0.2)
        expect(len(world.calls(UNPUBLISH)) == len(ends), "the driver was not asked to unpublish for each Pod")
        time.sleep(max(0.0, back - time.monotonic()))
        expect(not world.calls(UNSTAGE), "the device was written to on a Lease that had ended")
    finally:
        server.start()
        world.cluster.wait_api_ready()
    for name, uid in uids.items():
        work.await_pod_gone(name, 90)
        world.cluster.wait_for("the Pod's claim to go", lambda uid=uid: not work.claims_of(uid), 90)
    # Kubernetes' own controllers come back in their own time, and one of them lets the PersistentVolumeClaim go.
    work.remove_claims("data", timeout=150)


# It says that it has heard SIGTERM, and goes on for a while.
_SLOW_TO_END = f"trap 'touch {MOUNT}/told-{{name}}' TERM; while :; do sleep 1; done"


def csi_node(world: World, node: Node) -> str:
    """The version of what kubelet says of the drivers that it has registered."""
    found = world.cluster.api.get(f"/apis/storage.k8s.io/v1/csinodes/{node.name}")
    return str(found["metadata"]["resourceVersion"])


@contextmanager
def _publishes_again(world: World, node: Node, pod: str) -> Iterator[None]:
    """Waits afterwards until kubelet says that it has published a Pod's volume once more."""
    log = node.log(KUBELET)
    start = log.stat().st_size
    words = ("MountVolume.SetUp succeeded", "kubernetes.io/csi/", pod)
    yield

    def said() -> bool:
        with log.open() as lines:
            lines.seek(start)
            return any(all(word in line for word in words) for line in lines)

    world.cluster.wait_for("kubelet to publish again", said, 60, 0.2)


def mounts_of(node: Node, pod: str) -> list[str]:
    """The mounts of a Pod's CSI volumes on a node."""
    folder = PRIVATE["kubelet"] / "pods" / pod / "volumes" / "kubernetes.io~csi"
    points = [leaks.mount_point(line) for line in node.mounts()]
    return [point for point in points if Path(point).is_relative_to(folder)]
