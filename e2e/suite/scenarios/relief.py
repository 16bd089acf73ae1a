"""A driver that makes controller calls goes away: another instance makes what is left, and never do both call."""

from __future__ import annotations

import time

from e2e.cluster import Node
from e2e.cluster.node import KUBELET

from .. import managed_driver as managed
from .. import trace
from ..calls import ATTACH, DETACH
from ..managed_driver import NAME
from ..pods import DRIVER
from ..registry import scenario
from ..world import World, expect
from .losses import volume_called_from


@scenario("kill -9 of a driver in a controller call, and it stays away: another instance finishes", limit=180)
def driver_stays_away(world: World) -> None:
    gone, other = world.second, world.first
    volume_called_from(world, gone)
    fault = world.driver.hang(ATTACH)
    world.claim("data", other)
    world.driver.await_met(fault)
    # Else kubelet starts it again at once.
    gone.kill_daemon(KUBELET)
    try:
        world.kill(world.pods.one(DRIVER, gone.name))
        start = time.monotonic()
        fault.release()
        world.await_ready("VolumeClaim", "data", timeout=60)
        world.note(f"Ready {time.monotonic() - start:.1f} s after the kill")
        world.write(other, f"{world.target('data')}/file", "by the other one")
        world.remove("VolumeClaim", "data")
    finally:
        gone.start_kubelet()
    by = [call.server for call in world.calls(ATTACH, DETACH)]
    expect(by == [gone.name, other.name, other.name], f"it was called on {', '.join(by)}")
    world.pods.await_ready()
    # What it is given from now on it calls again.
    world.remove("Volume", "data")
    volume_called_from(world, gone)
    before = world.driver.last()
    world.ready_claim("again", other)
    world.remove("VolumeClaim", "again")
    expect({call.server for call in world.calls(ATTACH, DETACH, after=before)} == {gone.name}, "another one was called")


@scenario("kill -9 of the active one of two controllers in a call, and it stays away: the other one finishes", limit=240)
def active_stays_away(world: World) -> None:
    controller = {"replicas": 2, "template": managed.template(world, "controller")}
    with managed.running(world, controller=controller) as driver:
        every = f"{len(world.cluster.nodes)}/{len(world.cluster.nodes)}"
        managed.expect_counts(managed.await_deployed(world), "2/2", every)
        gone = _active(world, "")
        (other,) = [node for node in world.cluster.nodes if node is not gone]
        world.ready_volume("data", pluginName=NAME)
        fault = driver.hang(ATTACH)
        world.claim("data", other)
        driver.await_met(fault)
        (pod,) = [one for one in managed.pods(world, "controller") if one["spec"]["nodeName"] == gone.name]
        (victim,) = [one for one in world.pods.running("loop-driver", gone.name) if one.pod == pod["metadata"]["name"]]
        # Else kubelet starts it again at once.
        gone.kill_daemon(KUBELET)
        try:
            kill = victim.kill()
            start = time.monotonic()
            fault.release()
            world.await_ready("VolumeClaim", "data", timeout=60)
            world.note(f"Ready {time.monotonic() - start:.1f} s after the kill")
            expect(_active(world, gone.name) is other, f"{gone.name} is still the active one")
            world.write(other, f"{world.target('data')}/file", "by the other one")
            world.remove("VolumeClaim", "data")
        finally:
            gone.start_kubelet()
        managed.await_deployed(world)
        # It is not given back to the one that has come back.
        world.ready_claim("again", gone, volumeName="data")
        world.expect_text(gone, f"{world.target('again')}/file", "by the other one")
        world.remove("VolumeClaim", "again")
        world.remove("Volume", "data")
        by = [call.server for call in driver.calls() if call.rpc in (ATTACH, DETACH)]
        expect(by == [gone.name, *[other.name] * 4], f"it was called on {', '.join(by)}")
        violations = trace.check(driver.calls(), [kill], locks=world.locks(), finished=True)
        expect(not violations, "; ".join(violations))


def _active(world: World, but: str) -> Node:
    """The node of the instance that makes all controller calls, when it is another than on the node `but`."""
    nodes = {node.name: node for node in world.cluster.nodes}

    def found() -> Node | None:
        active = world.get("Plugin", NAME)["status"].get("active")
        node = active and world.get("PluginInstance", active["instance"])["spec"]["nodeName"]
        return nodes[node] if node and node != but else None

    there: Node = world.cluster.wait_for("an active instance", found, 30)
    return there
