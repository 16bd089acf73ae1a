"""Pods on PersistentVolumes: kubelet asks moor, and moor's rules hold for them as for any claim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import Node
from e2e.cluster.control_plane import API_SERVER
from e2e.cluster.node import KUBELET
from e2e.cluster.node_config import PRIVATE

from .. import audit, leaks
from ..calls import DETACH, PUBLISH, STAGE, UNPUBLISH, mutating
from ..pods import AGENT
from ..registry import scenario
from ..workloads import DEVICE, MOUNT, Workloads
from ..world import World, expect


def _claim_for(world: World, *, block: bool = False) -> Workloads:
    """A claim that is bound to a volume, which moor has made."""
    work = Workloads(world)
    work.claim(block=block)
    return work


@scenario("a Pod uses a PersistentVolume, its data moves to the other node with it, and nothing is left", limit=180)
def pods_move(world: World) -> None:
    work = _claim_for(world)
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
    work = _claim_for(world)
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
    work = _claim_for(world, block=True)
    work.running_pod("raw", "data", world.first)
    work.run("raw", f"echo words | dd of={DEVICE} conv=fsync 2>/dev/null")
    work.remove_pods("raw")
    work.running_pod("raw", "data", world.second)
    read = work.run("raw", f"head -c 5 {DEVICE}")
    expect(read == "words", f"the device has {read!r}")
    work.remove_pods("raw")


@scenario("kubelet and agent restart under a running Pod: no CSI call, no API write, the CSINode stays", limit=180)
def pods_restarts(world: World) -> None:
    work = _claim_for(world)
    work.running_pod("pod", "data", world.first)
    work.write("pod", "before")
    calls, log, node = world.driver.last(), audit.position(world.cluster), _csi_node(world)
    with _publishes_again(world, world.first, work.uid("pod")):
        world.first.restart_kubelet()
    world.kill(world.pods.one(AGENT, world.first.name))
    world.pods.await_ready()
    work.write("pod", "after")
    expect(_csi_node(world) == node, "kubelet has registered the driver anew")
    touched = [call.told() for call in mutating(world.calls(after=calls))]
    expect(not touched, "the driver was called for a mounted volume:\n" + "\n".join(touched))
    written = audit.about_claims(audit.writes(world.cluster, log))
    expect(not written, f"API writes for a running Pod: {audit.told(written)}")
    # The agent that was started anew is asked by kubelet, and undoes what the other one has made.
    work.remove_pods("pod")


@scenario("a Pod ends while the API server is away, and its claim goes when the server is back", limit=240)
def pods_end_alone(world: World) -> None:
    work = _claim_for(world)
    work.pod("pod", "data", world.first, terminationGracePeriodSeconds=8, containers=[work.container(_SLOW_TO_END)])
    work.await_running("pod")
    uid = work.uid("pod")
    mounted = _mounts_of(world.first, uid)
    expect(len(mounted) == 1, f"the Pod's volume is mounted at {mounted}")
    expect(len(work.claims_of(uid)) == 1, f"the Pod has the claims {work.claims_of(uid)}")
    work.delete_pod("pod")
    # From here on kubelet knows that the Pod is to end.
    world.cluster.wait_for("the Pod to hear of its end", lambda: world.first.path(f"{mounted[0]}/told").exists(), 30)
    server = world.cluster.component(API_SERVER)
    server.kill()
    try:
        world.cluster.wait_for("kubelet to unmount", lambda: not _mounts_of(world.first, uid), 60, 0.2)
        expect(len(world.calls(UNPUBLISH)) == 1, "the driver was not asked to unpublish")
    finally:
        server.start()
        world.cluster.wait_api_ready()
    work.await_pod_gone("pod", 90)
    world.cluster.wait_for("the Pod's claim to go", lambda: not work.claims_of(uid), 90)


# It says that it has heard SIGTERM, and goes on for a while.
_SLOW_TO_END = f"trap 'touch {MOUNT}/told' TERM; while :; do sleep 1; done"


def _csi_node(world: World) -> str:
    node = world.cluster.api.get(f"/apis/storage.k8s.io/v1/csinodes/{world.first.name}")
    return str(node["metadata"]["resourceVersion"])


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


def _mounts_of(node: Node, pod: str) -> list[str]:
    """The mounts of a Pod's CSI volumes on a node."""
    folder = PRIVATE["kubelet"] / "pods" / pod / "volumes" / "kubernetes.io~csi"
    points = [leaks.mount_point(line) for line in node.mounts()]
    return [point for point in points if Path(point).is_relative_to(folder)]
