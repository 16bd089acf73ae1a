"""A volume without a Pod: the examples of Volumes and VolumeClaims, on two nodes."""

from __future__ import annotations

from e2e.cluster.paths import REPOSITORY

from .. import objects, watching
from ..calls import ATTACH, CREATE, DETACH, PUBLISH, STAGE, UNPUBLISH, UNSTAGE, mutating
from ..registry import scenario
from ..world import World, expect

VOLUME, FIRST, SECOND = "data", "writer", "writer-2"
WORDS = "moor kept these bytes\n"


@scenario("the examples without Pods: a volume is made, used, moved, waited for and deleted", namespace="default", limit=180)
def native_examples(world: World) -> None:
    _apply(world, "plugin", "volume", "claim-node-1")
    world.cluster.kubectl("wait", "--for=condition=Ready", f"volumeclaim/{FIRST}", "--timeout=60s")
    _expect_attached(world)
    target = world.target(FIRST)
    world.write(world.first, f"{target}/hello", WORDS)

    _detach_watched(world)
    left = world.first.exec("findmnt", "--mountpoint", target, check=False)
    expect(left.returncode != 0, f"still mounted on node-1: {left.stdout}")

    _apply(world, "claim-node-2")
    world.await_ready("VolumeClaim", SECOND)
    world.expect_text(world.second, f"{world.target(SECOND)}/hello", WORDS)

    _second_writer_waits(world)
    world.remove("VolumeClaim", SECOND)
    world.await_ready("VolumeClaim", FIRST, timeout=15)
    world.expect_text(world.first, f"{world.target(FIRST)}/hello", WORDS)

    _clean_up(world)
    once = [ATTACH, STAGE, PUBLISH, UNPUBLISH, UNSTAGE, DETACH]
    found = [call.rpc for call in mutating(world.calls())]
    expect(found == [CREATE, *once, *once, *once, "DeleteVolume"], f"the calls were {', '.join(found)}")


def _apply(world: World, *names: str) -> None:
    files = [word for name in names for word in ("-f", str(REPOSITORY / "examples" / f"{name}.yaml"))]
    world.cluster.kubectl("apply", *files)


def _expect_attached(world: World) -> None:
    attachment = world.attachment_of(FIRST)
    expect(objects.is_ready(attachment), f"not Ready: {objects.told(attachment)}")
    expect(objects.state(attachment) == "Attached", f"not Attached: {objects.told(attachment)}")
    expect(attachment["spec"]["nodeName"] == "node-1", "the Attachment is on another node")
    handles = [item["spec"]["volumeHandle"] for item in world.every("VolumeHandle")]
    expect(handles == [world.handle(VOLUME)], f"the VolumeHandles are {handles}")
    listed = world.cluster.kubectl("get", "volumeclaim", FIRST, "--no-headers").stdout.split()
    expect(listed[:4] == [FIRST, VOLUME, "Ready", "node-1"], f"kubectl get shows {listed}")


def _detach_watched(world: World) -> None:
    """The states of the undo pass by, one after the other."""
    name = world.attachment_of(FIRST)["metadata"]["name"]
    with watching.watch(world.cluster, "attachments", name) as seen:
        world.cluster.kubectl("delete", f"volumeclaim/{FIRST}", "--timeout=60s")
        world.cluster.wait_for("the watch to show the end", lambda: watching.states(seen, name)[-1] == "DELETED", 10)
    passed = watching.states(seen, name)
    expect(passed == ["Attached", "NodeDetached", "DELETED"], f"the states were {passed}")


def _second_writer_waits(world: World) -> None:
    _apply(world, "claim-node-1")
    waiting = world.await_reason("VolumeClaim", FIRST, "Held", f"default/{SECOND}", "node-2")
    holder = waiting["status"]["waitingFor"]
    expect(holder["holder"] == f"default/{SECOND}", f"waitingFor is {holder}")
    expect(holder["nodeName"] == "node-2", f"waitingFor is {holder}")
    expect(objects.state(waiting) == "Pending", f"it waits as {objects.state(waiting)}")
    listed = world.cluster.kubectl("get", "volumeclaim", FIRST, "--no-headers").stdout
    expect(f"default/{SECOND}" in listed, f"kubectl get does not show the holder: {listed}")


def _clean_up(world: World) -> None:
    """As often as one likes: the driver's Plugin comes back."""
    world.remove("VolumeClaim", FIRST)
    world.remove("Volume", VOLUME)
    world.remove("Plugin", objects.PLUGIN)
    _apply(world, "plugin")
    world.await_ready("Plugin", objects.PLUGIN)
