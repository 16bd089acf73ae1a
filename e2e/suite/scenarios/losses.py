"""Nodes that fall silent: they hold their claims until somebody says that they are lost, and come back clean."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster import Node

from .. import leaks, objects
from ..calls import DETACH, UNPUBLISH, UNSTAGE
from ..registry import scenario
from ..pods import AGENT, CONTROLLER, DRIVER
from ..trace import LOST, REBOOT, Kill
from ..world import Failed, World, expect

SILENT = "NodeSilent"
TAINT = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
# Longer than an agent's Lease.
SILENCE = 90


@scenario("a crashed node holds its claims until it is declared out of service, and comes back clean", limit=300)
def out_of_service(world: World) -> None:
    lost, other = lost_and_other(world)
    world.ready_volume()
    world.write(lost, world.ready_claim("old", lost) + "/file", "before the crash")
    world.ready_volume("left")
    world.ready_claim("kept", lost, volumeName="left")
    lost.crash()
    for role in (AGENT, DRIVER, REBOOT):
        tell(world, role, lost)
    with back_again(world, lost):
        world.delete("VolumeClaim", "old")
        world.claim("new", other)
        _await_silent(world, "old", "NoHeartbeat", lost.name, "forceDetach", "out-of-service")
        _await_silent(world, "kept", "NoHeartbeat", lost.name, "out-of-service")
        world.await_reason("VolumeClaim", "new", "Held", "old", lost.name)
        tell(world, LOST, lost)
        world.cluster.kubectl("taint", "node", lost.name, TAINT)
        world.await_gone("VolumeClaim", "old", SILENCE)
        world.await_ready("VolumeClaim", "new", timeout=SILENCE)
        world.expect_text(other, world.target("new") + "/file", "before the crash")
        # Nobody had deleted this one: it ends, and says so.
        world.await_reason("VolumeClaim", "kept", "NodeLost", lost.name, "OutOfService", timeout=SILENCE)
        state = world.get("VolumeClaim", "kept")["status"]["state"]
        expect(state == "Lost", f"the claim that was in use on the lost node is {state} and not Lost")
        expect(not world.calls(UNPUBLISH, UNSTAGE), "a lost node was asked to unmount")
    # Before its Volumes may go: what is left on a node is undone by the handle of its volume.
    world.cluster.wait_for("the node to clean up", lambda: not leaks.records(lost.directory / "moor"), 120, 0.5)
    world.remove("VolumeClaim", "new", "kept")
    world.write(lost, world.ready_claim("again", lost) + "/file", "after the return")


@scenario("forceDetach frees a deleted claim of a node that is cut off, and the node cleans up when it is back", limit=300)
def forced(world: World) -> None:
    lost, other = lost_and_other(world)
    volume_called_from(world, other)
    target = world.ready_claim("old", lost)
    world.write(lost, f"{target}/file", "before the cut")
    lost.disconnect()
    try:
        world.delete("VolumeClaim", "old")
        _await_silent(world, "old", "NoHeartbeat", lost.name)
        tell(world, LOST, lost)
        world.cluster.kubectl(
            "-n", world.namespace, "patch", "volumeclaim", "old", "--type=merge", "-p", '{"spec":{"forceDetach":true}}'
        )
        world.await_gone("VolumeClaim", "old", SILENCE)
        world.ready_claim("new", other)
        world.expect_text(other, world.target("new") + "/file", "before the cut")
        expect(target in "\n".join(lost.mounts()), "the cut off node has unmounted by itself: this shows nothing")
    finally:
        lost.connect()
    world.cluster.wait_for("the returned node to unmount", lambda: target not in "\n".join(lost.mounts()), 120, 0.5)
    world.cluster.wait_for("the node to clean up", lambda: not leaks.records(lost.directory / "moor"), 120, 0.5)
    world.remove("VolumeClaim", "new")
    again = world.ready_claim("again", lost)
    world.expect_text(lost, f"{again}/file", "before the cut")
    expect(len(world.calls(DETACH)) >= 2, "the volume moved without having been detached")


def lost_and_other(world: World) -> tuple[Node, Node]:
    """The other one runs a controller: with the last of them gone nobody would say anything."""
    if world.pods.running(CONTROLLER, world.first.name):
        return world.second, world.first
    return world.first, world.second


def volume_called_from(world: World, node: Node) -> None:
    """A Volume whose controller calls are made on this node. Which one makes them follows from the Volume's UID."""
    for _ in range(30):
        handle = world.ready_volume()["status"]["handleName"]
        agent = world.cluster.get("volumehandle", str(handle))["spec"]["controller"]["agent"]
        if agent == node.name:
            return
        world.remove("Volume", "data")
    raise Failed(f"30 Volumes in a row and none is called from {node.name}")


def tell(world: World, role: str, node: Node) -> None:
    """Tells the check of the calls what happens to the node."""
    world.kills.append(Kill(int(time.time() * 1000), role, node.name))


def _await_silent(world: World, claim: str, reason: str, *words: str) -> None:
    def says(item: objects.Object) -> bool:
        found = objects.condition(item, SILENT)
        return found.get("status") == "True" and found.get("reason") == reason

    item = world.await_that("VolumeClaim", claim, f"to say {SILENT} for the reason {reason}", says, SILENCE)
    message = objects.condition(item, SILENT)["message"]
    for word in words:
        expect(word in message, f"the condition {SILENT} of claim {claim} does not mention {word!r}: {message}")


@contextmanager
def back_again(world: World, node: Node) -> Iterator[None]:
    """Whatever happens inside, the node is started again and in service afterwards."""
    try:
        yield
    finally:
        node.start()
        world.cluster.kubectl("taint", "node", node.name, "node.kubernetes.io/out-of-service-", check=False)
        world.cluster.wait_nodes_ready()
