"""What becomes of drivers is seen soon, nodes are drained under them, and many of them cost an agent little."""

from __future__ import annotations

import time
from pathlib import Path

from e2e.cluster.namespace import NAMESPACE
from e2e.cluster.node import KUBELET

from .. import managed_driver as managed
from .. import objects
from ..managed_driver import NAME
from ..pods import AGENT
from ..registry import scenario
from ..workloads import Workloads
from ..world import World, expect

_MANY = 20
_IDLE = 10.0  # seconds


@scenario("a driver's Pod that is deleted shows within 5 s, an agent that is killed within 45 s", limit=240)
def seen_soon(world: World) -> None:
    node = world.second
    with managed.running(world):
        managed.await_deployed(world)
        name = managed.instance(world, node.name)["metadata"]["name"]
        (pod,) = [one for one in managed.pods(world, "node") if one["spec"]["nodeName"] == node.name]
        world.cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}")
        start = time.monotonic()
        world.await_that("PluginInstance", name, "to be unhealthy", lambda item: not item["status"]["healthy"], 20)
        took = time.monotonic() - start
        world.note(f"unhealthy {took:.1f} s after its Pod was deleted")
        expect(took < 5, f"it took {took:.1f} s")
        managed.await_deployed(world)
        world.await_that("PluginInstance", name, "to be healthy", lambda item: item["status"]["healthy"], 30)
        # Else kubelet starts it again at once.
        node.kill_daemon(KUBELET)
        try:
            world.kill(world.pods.one(AGENT, node.name))
            start = time.monotonic()
            fewer = f"{len(world.cluster.nodes) - 1}/{len(world.cluster.nodes)}"
            told = world.await_that(
                "Plugin", NAME, f"to count {fewer} nodes", lambda item: item["status"]["nodes"] == fewer, 90
            )
            took = time.monotonic() - start
        finally:
            node.start_kubelet()
        world.note(f"unhealthy {took:.1f} s after its agent was killed: {objects.condition(told)['message']}")
        expect(took < 45, f"it took {took:.1f} s")
        world.pods.await_ready()
        managed.await_deployed(world)


@scenario("a node is drained: the controller that moor runs moves, the node driver unmounts until the end", limit=240)
def drained(world: World) -> None:
    node, other = world.second, world.first
    anywhere = managed.template(world, "controller")
    away = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}],
    }}]}}  # fmt: skip
    anywhere["spec"]["affinity"] = away
    with managed.running(world, controller={"template": anywhere}):
        managed.await_deployed(world)
        (pod,) = managed.pods(world, "controller")
        expect(pod["spec"]["nodeName"] == node.name, f"the controller is on {pod['spec']['nodeName']}")
        world.ready_volume("data", pluginName=NAME)
        world.ready_claim("here", node)
        workloads = Workloads(world)
        workloads.storage_class(provisioner=NAME)
        workloads.claim("moves")
        workloads.running_pod("moves", "moves", node)
        workloads.write("moves", "by the Pod before")
        before = {one["metadata"]["uid"] for one in managed.pods(world, "node")}
        drain = ("drain", node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
        try:
            world.cluster.kubectl(*drain, timeout=120)
            world.cluster.wait_for(
                "the controller on the other node",
                lambda: [one["spec"]["nodeName"] for one in managed.pods(world, "controller")] == [other.name],
                60,
            )
            expect({one["metadata"]["uid"] for one in managed.pods(world, "node")} == before, "a node driver has left")
            workloads.running_pod("moved", "moves", other)
            workloads.expect_text("moved", "by the Pod before")
            # It goes on on the node that takes nothing new, and moves from there.
            world.write(node, f"{world.target('here')}/file", "from there")
            world.claim("there", other)
            world.remove("VolumeClaim", "here")
            world.await_ready("VolumeClaim", "there")
            world.expect_text(other, f"{world.target('there')}/file", "from there")
        finally:
            world.cluster.kubectl("uncordon", node.name)
        workloads.remove_all()
        world.remove("VolumeClaim", "there")
        world.remove("Volume", "data")


@scenario("twenty drivers on one node", limit=300)
def many(world: World) -> None:
    names = [f"many-{number}.moor.dev" for number in range(_MANY)]
    agent = world.pods.one(AGENT, world.first.name).process.pid
    alone = _memory(agent)
    for name in names:
        template = managed.template(world, "all", name, nodeSelector=managed.on(world.first.name))
        world.create(objects.plugin(name, node={"mountDev": True, "template": template}))
    try:
        world.await_ready("Plugin", *names, timeout=120)
        for name in names:
            counts = world.get("Plugin", name)["status"]
            expect((counts["controllers"], counts["nodes"]) == ("1/1", "1/1"), f"{name}: {counts}")
        begun, start = _processor_time(agent), time.monotonic()
        time.sleep(_IDLE)
        busy = (_processor_time(agent) - begun) / (time.monotonic() - start)
        world.note(f"the agent has {_memory(agent)} MiB (before {alone} MiB), and is busy {busy * 100:.1f} % of a processor")
    finally:
        for name in names:
            world.delete("Plugin", name)
    for name in names:
        world.await_gone("Plugin", name)
    world.cluster.wait_for("the end of their Pods", lambda: not _their_pods(world), 120)
    managed.forget_storage()


def _their_pods(world: World) -> list[object]:
    found: list[object] = world.cluster.api.get(
        f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=moor.dev%2Fservice%3Dnode"
    )["items"]
    return found


def _memory(pid: int) -> int:
    """What a process has in memory, in MiB."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) // 1024


def _processor_time(pid: int) -> float:
    """In seconds. The kernel counts in hundredths of one."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
