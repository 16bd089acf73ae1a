"""A volume that is made larger while a VolumeClaim uses it, and while none does, with real bytes on a real device."""

from __future__ import annotations

import json

from e2e.cluster import Node

from .. import objects
from ..registry import scenario
from ..world import World, expect

MEBI = 1024 * 1024
WORDS = "kept\n"


@scenario("a volume grows while a claim uses it, and for the next claim", namespace="grows")
def grows(world: World) -> None:
    small, larger, largest = 320, 448, 576
    # What grows while it is mounted wherever this runs: see XFS and EXT4 of content.py.
    world.ready_volume(capacity=f"{small}Mi", mountOptions={"fsType": "xfs"})
    path = world.ready_claim("user", world.first)
    world.write(world.first, f"{path}/file", WORDS)
    _grow(world, larger)
    _expect_size(world.first, path, small, larger)
    world.expect_text(world.first, f"{path}/file", WORDS)
    world.remove("VolumeClaim", "user")

    # Nobody has it, and the next one finds it as large as it is to be.
    _ask(world, largest)
    world.await_that("Volume", "data", "to wait for a node", lambda item: _said(item).get("reason") == "NodesToFollow")
    path = world.ready_claim("next", world.second)
    _expect_size(world.second, path, larger, largest)
    world.expect_text(world.second, f"{path}/file", WORDS)
    _await_grown(world)
    calls = [call.rpc for call in world.calls("NodeExpandVolume")]
    expect(len(calls) == 2, f"the calls were {calls}")


def _ask(world: World, mebibytes: int) -> None:
    patch = json.dumps({"spec": {"capacity": f"{mebibytes}Mi"}})
    world.cluster.kubectl("patch", "volume", "data", "-n", world.namespace, "--type=merge", f"--patch={patch}")


def _grow(world: World, mebibytes: int) -> None:
    _ask(world, mebibytes)
    _await_grown(world)


def _said(item: objects.Object) -> objects.Object:
    found = objects.condition(item, "Expanded")
    return found if found.get("observedGeneration") == item["metadata"]["generation"] else {}


def _await_grown(world: World) -> None:
    world.await_that("Volume", "data", "to have grown", lambda item: _said(item).get("status") == "True")


def _expect_size(node: Node, path: str, above: int, most: int) -> None:
    """The file system is larger than it could be before, and as large as its device lets it be."""
    size = int(node.shell(f"df --output=size --block-size=1 {path} | tail -1"))
    expect(above * MEBI < size <= most * MEBI, f"the file system at {path} has {size} bytes")
