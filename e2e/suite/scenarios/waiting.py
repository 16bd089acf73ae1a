"""Claims and volumes that cannot proceed yet: they say for what they wait, and go on when it is there."""

from __future__ import annotations

from .. import objects
from ..objects import PLUGIN
from ..registry import scenario
from ..world import World, expect

# How soon a waiting object goes on once it can.
SECONDS = 10


@scenario("a claim for an unknown Volume names it, and proceeds when it appears")
def unknown_volume(world: World) -> None:
    world.claim("early", world.first, volumeName="later")
    world.await_reason("VolumeClaim", "early", "VolumeNotFound", "later")
    world.volume("later")
    world.await_ready("VolumeClaim", "early", timeout=SECONDS)


@scenario("a Volume of an unknown Plugin names it, and proceeds when it appears")
def unknown_plugin(world: World) -> None:
    world.remove("Plugin", PLUGIN)
    try:
        world.volume()
        world.claim("early", world.first)
        waiting = world.await_that("Volume", "data", f"to name the Plugin {PLUGIN}", _names_the_plugin)
        expect(not objects.is_ready(waiting), "the Volume is Ready without a Plugin")
        world.await_reason("VolumeClaim", "early", "VolumeNotReady", "data")
    finally:
        world.create(objects.plugin(balancing="Spread"))
    world.await_ready("Volume", "data", timeout=SECONDS)
    world.await_ready("VolumeClaim", "early", timeout=SECONDS)


def _names_the_plugin(item: objects.Object) -> bool:
    return PLUGIN in objects.condition(item).get("message", "")


@scenario("a claim for a use that the Volume does not list says which it lists")
def unlisted_use(world: World) -> None:
    world.ready_volume()
    world.claim("raw", world.first, attachmentMode="BlockDevice")
    world.claim("many", world.first, accessMode="MultiNodeMultiWriter")
    world.await_reason("VolumeClaim", "raw", "UseNotListed", "BlockDevice", "SingleNodeWriter", "FileSystem")
    world.await_reason("VolumeClaim", "many", "UseNotListed", "MultiNodeMultiWriter", "SingleNodeWriter")
    # Claims that can never be granted do not stand in the way of one that can.
    world.ready_claim("fitting", world.first)


@scenario("a claim for a node that does not exist names it and holds up nobody")
def unknown_node(world: World) -> None:
    world.ready_volume()
    world.create(objects.claim(world.namespace, "nowhere", nodeName="node-99"))
    world.await_reason("VolumeClaim", "nowhere", "NodeNotUsable", "node-99")
    world.ready_claim("here", world.first)
    world.remove("VolumeClaim", "nowhere", timeout=SECONDS)
