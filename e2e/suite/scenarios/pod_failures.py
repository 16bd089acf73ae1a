"""What goes wrong around Pods with volumes on a real kubelet: nodes that are cut off, agents that are rolled, halves of mounts."""

from __future__ import annotations

from e2e.cluster.namespace import NAMESPACE

from ..calls import DETACH, PUBLISH, mutating
from ..objects import Object
from ..pods import AGENT
from ..registry import scenario
from ..trace import ROLLED
from ..workloads import MOUNT, Workloads
from ..world import World, expect
from .losses import lost_and_other, tell
from .pods import claim_for, csi_node, mounts_of

# Pods that start while the agents are rolled, two of each claim.
COUNT = 20
# Where a container has the volume a second time, to read only.
BESIDE = "/read-only"


@scenario("kubectl delete pod --force on a cut off node: the next Pod waits until the node has given the volume up", limit=240)
def force_deleted(world: World) -> None:
    work = claim_for(world)
    lost, other = lost_and_other(world)
    work.running_pod("old", "data", lost)
    work.write("old", "before the cut")
    uid = work.uid("old")
    lost.disconnect()
    try:
        world.cluster.kubectl("delete", "pod", "old", "-n", world.namespace, "--force", "--grace-period=0")
        work.pod("new", "data", other)
        told = work.await_event("new", "WaitsForVolume", f"{world.namespace}/old", lost.name, timeout=60)
        world.note(f"the waiting Pod was told: {told}")
        expect(mounts_of(lost, uid), "the cut off node has unmounted by itself: this shows nothing")
        expect(not world.calls(DETACH), "the volume was taken from a node that still writes to it")
        expect(_phase(world, "new") == "Pending", "the next Pod runs beside the one that was deleted by force")
    finally:
        lost.connect()
    work.await_running("new", timeout=120)
    expect(not mounts_of(lost, uid), "the volume is mounted on both nodes")
    expect(world.calls(DETACH), "the volume moved without having been detached")
    work.expect_text("new", "before the cut")
    work.remove_pods("new")


@scenario("the agents are rolled while 20 Pods start: all of them start, and no CSINode is written", limit=300)
def rolled(world: World) -> None:
    work = Workloads(world)
    claims = [f"data-{number}" for number in range(COUNT // 2)]
    for name in claims:
        work.claim(name)
    before = [csi_node(world, node) for node in world.cluster.nodes]
    agents = ("daemonset", "moor-agent", "-n", NAMESPACE)
    names = [f"{claim}-{half}" for half in ("before", "after") for claim in claims]
    for number, name in enumerate(names):
        if number == len(claims):
            for node in world.cluster.nodes:
                tell(world, ROLLED, node)
            world.cluster.kubectl("rollout", "restart", *agents)
        # Both Pods of a claim are on one node.
        at = number % len(claims)
        work.pod(name, claims[at], world.cluster.nodes[at % len(world.cluster.nodes)])
    world.cluster.kubectl("rollout", "status", *agents, "--timeout=90s")
    work.await_running(*names, timeout=90)
    world.pods.await_ready()
    expect([csi_node(world, node) for node in world.cluster.nodes] == before, "kubelet has registered the driver anew")
    ready = [claim for claim in world.cluster.get("volumeclaims", "-n", NAMESPACE)["items"] if _is_of(claim, world)]
    expect(len(ready) == COUNT, f"{COUNT} Pods run, and {len(ready)} VolumeClaims are theirs")
    work.remove_pods(*names)


@scenario("no container starts before all volumes of its Pod are mounted, also when the agent dies in between", limit=180)
def all_or_none(world: World) -> None:
    work = Workloads(world)
    for name in ("one", "two"):
        work.claim(name)
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("one", "two")]
    both = "grep -q ' /one ' /proc/mounts && grep -q ' /two ' /proc/mounts && echo both > /one/seen"
    container = {**work.container(f"{both}; sleep infinity"), "volumeMounts": mounts}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("one", "two")]
    fault = world.driver.hang(PUBLISH)
    work.pod("pod", "one", world.first, containers=[container], volumes=volumes)
    world.driver.await_met(fault)
    world.cluster.wait_for("the other volume to be published", lambda: _published(world) == 1, 30)
    told = work.await_event("pod", "WaitsForVolume", "PersistentVolume")
    world.note(f"the waiting Pod was told: {told}")
    expect(not _has_begun(world, "pod"), "a container has begun with one of its two volumes")
    world.kill(world.pods.one(AGENT, world.first.name))
    expect(not _has_begun(world, "pod"), "a container has begun with one of its two volumes")
    fault.release()
    work.await_running("pod", timeout=60)
    work.await_words("pod", "cat /one/seen", "both")
    world.pods.await_ready()
    work.remove_pods("pod")


@scenario("a container has a volume twice, once to read only, and one that does not name it sees nothing")
def twice(world: World) -> None:
    work = claim_for(world)
    main = work.container("sleep infinity")
    main["volumeMounts"] = [{"name": "data", "mountPath": MOUNT}, {"name": "data", "mountPath": BESIDE, "readOnly": True}]
    other = {"name": "other", "image": main["image"], "command": main["command"]}
    work.running_pod("pod", "data", world.first, containers=[main, other])
    work.write("pod", "for both")
    found = work.run("pod", f"cat {BESIDE}/file").strip()
    expect(found == "for both", f"at the second place is {found!r}")
    tried = work.run("pod", f"touch {BESIDE}/more 2>&1 || true")
    expect("Read-only file system" in tried, f"a write to what is to be read only says {tried!r}")
    look = ("exec", "-n", world.namespace, "pod", "-c", "other", "--", "cat", "/proc/mounts")
    seen = world.cluster.kubectl(*look).stdout
    expect(seen and not any(f" {place} " in seen for place in (MOUNT, BESIDE)), f"the other container has\n{seen}")
    work.remove_pods("pod")


@scenario("a Pod that cannot use its volume as it is is told, before any claim and any call")
def unfit(world: World) -> None:
    work = Workloads(world)
    work.claim("files")
    work.claim("device", block=True)
    calls = world.driver.last()
    for claim, mode, field in (("files", "Filesystem", "volumeDevices"), ("device", "Block", "volumeMounts")):
        work.pod(claim, claim, world.first, containers=[work.container("sleep infinity", is_block=claim == "files")])
        told = work.await_event(claim, "FailedMount", "volume data", f"volumeMode {mode}", field)
        world.note(f"Pod {claim} was told: {told}")
        expect(not work.claims_of(work.uid(claim)), f"there is a VolumeClaim for Pod {claim}")
    made = [call.told() for call in mutating(world.calls(after=calls))]
    expect(not made, "the driver was called for a Pod that cannot use its volume:\n" + "\n".join(made))
    work.remove_pods("files", "device")


def _phase(world: World, pod: str) -> str:
    return str(world.cluster.get("pod", pod, "-n", world.namespace)["status"]["phase"])


def _is_of(claim: Object, world: World) -> bool:
    """Whether a VolumeClaim is of a Pod of this scenario, and Ready."""
    pod = claim["spec"].get("pod", {})
    return pod.get("namespace") == world.namespace and claim.get("status", {}).get("state") == "Ready"


def _published(world: World) -> int:
    return len([call for call in world.calls(PUBLISH) if call.ok])


def _has_begun(world: World, pod: str) -> bool:
    """Whether any container of a Pod runs, or ever did."""
    states = world.cluster.get("pod", pod, "-n", world.namespace)["status"].get("containerStatuses", [])
    return any("waiting" not in state["state"] or state["restartCount"] for state in states)
